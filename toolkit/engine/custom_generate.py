"""Our engine behind Hugging Face's own call: `model.generate(ids, custom_generate=custom_generate(NGram()), ...)`.

Letters: B rows, L prompt tokens, N new tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from toolkit.engine.engine import Engine
from toolkit.models.hf import HFModel
from toolkit.protocols import Drafter, Rule
from toolkit.sampling import Sampling, Stopping
from toolkit.trace import StepRecord
from toolkit.verification import Rejection


def custom_generate(
    drafter: Drafter,
    rule: Rule | None = None,
    *,
    watch: Callable[[StepRecord], object] | None = None,
    streamer: Any = None,
) -> Callable[..., Tensor]:
    """A decoding loop for `generate`'s argument `custom_generate`, which prepares inputs and logits processors itself.

    All of its logits processors and sampling filters apply, along each path of the tree. Left-padded batches, several
    sequences a prompt and eos tokens work; draws follow torch's seed. `watch` is given every step's record. `streamer` is one of
    transformers'; it belongs here, for `generate` hands a callable none. It is given row 0.
    Returns [B, L + N] token ids, rows that end early padded as `generate` does. Raises ValueError for beams, dictionaries as
    output and stopping criteria other than length and eos tokens.
    """
    known: dict[int, HFModel] = {}

    def run(
        model: Any,
        input_ids: Tensor,
        logits_processor: Sequence[Any],
        stopping_criteria: Sequence[Any],
        generation_config: Any,
        **inputs: Any,
    ) -> Tensor:
        _refuse(generation_config, stopping_criteria)
        if id(model) not in known:
            known.clear()
            known[id(model)] = HFModel(model)
        target = known[id(model)]
        mask = inputs.get("attention_mask")
        mask = torch.ones_like(input_ids) if mask is None else mask.to(input_ids.device)
        prompts = [row[keep.bool()].tolist() for row, keep in zip(input_ids, mask, strict=True)]
        new = generation_config.max_length - input_ids.shape[1]
        ends = generation_config._eos_token_tensor
        stopping = Stopping(new, () if ends is None else tuple(ends.flatten().tolist()))
        warm = bool(generation_config.do_sample)
        base = Sampling(1.0 if warm else 0.0, processors=tuple(logits_processor), seed=_seed() if warm else 0)
        engine = Engine(target, drafter, rule or Rejection())
        session = engine.start(prompts, sampling=[base.sample(b) for b in range(len(prompts))], stopping=stopping)
        if streamer is not None:
            streamer.put(input_ids[:1].cpu())
        for record in engine.run(session):
            if watch:
                watch(record)
            if streamer is not None and (row := record.rows[0]) is not None:
                streamer.put(torch.tensor(row.emitted))
        if streamer is not None:
            streamer.end()
        return _padded(input_ids, session.outputs, generation_config._pad_token_tensor)

    return run


def _refuse(config: Any, criteria: Sequence[Any]) -> None:
    if (config.num_beams or 1) > 1:
        raise ValueError(f"num_beams={config.num_beams} searches, and speculative decoding samples: use num_beams=1")
    if config.return_dict_in_generate:
        raise ValueError(
            "custom_generate returns token ids: leave out return_dict_in_generate, and pass `watch` for records"
        )
    if odd := [type(c).__name__ for c in criteria if type(c).__name__ not in ("MaxLengthCriteria", "EosTokenCriteria")]:
        raise ValueError(
            f"custom_generate ends at max_length and eos tokens, and {', '.join(odd)} would not be asked inside an accepted run: "
            f"use Engine with Stopping(strings=...)"
        )


def _seed() -> int:
    """From torch's own generator, so that `torch.manual_seed` is obeyed."""
    return int(torch.randint(2**62, ()))


def _padded(input_ids: Tensor, outputs: Sequence[Sequence[int]], pad: Tensor | None) -> Tensor:
    longest = max(map(len, outputs))
    fill = 0 if pad is None else int(pad)
    tail = torch.tensor([[*out, *[fill] * (longest - len(out))] for out in outputs], device=input_ids.device)
    return torch.cat([input_ids, tail], 1)

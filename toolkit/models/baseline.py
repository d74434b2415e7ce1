"""Hugging Face's own `generate`, as the judge of equality and the arm to be compared with."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LogitsProcessorList, PreTrainedModel

from toolkit.sampling import Sampling


@torch.inference_mode()
def hf_generate(
    model: PreTrainedModel,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    stop_tokens: Sequence[int] = (),
    sampling: Sampling | None = None,
    lookup: int | None = None,
) -> list[int]:
    """New tokens of `model.generate` for one prompt; `lookup` turns on its prompt lookup with that many tokens. Raises
    ValueError for sampling parameters that it does not know."""
    options = hf_options(sampling or Sampling())
    ids = torch.tensor([list(prompt)], device=model.device)
    run: Any = model.generate  # typed as a module attribute, which it is not
    out = run(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_new_tokens,
        eos_token_id=list(stop_tokens) or None,
        pad_token_id=stop_tokens[0] if stop_tokens else 0,
        prompt_lookup_num_tokens=lookup,
        **options,
    )
    return out[0, len(prompt) :].tolist()


def hf_options(sampling: Sampling) -> dict[str, Any]:
    """What `generate` calls these sampling parameters. Raises ValueError for those it has no name for."""
    without = ("presence_penalty", "frequency_penalty", "grammar", "allowed", "forced", "logprobs")
    if unknown := [name for name in without if getattr(sampling, name) not in (0, None, {})]:
        raise ValueError(
            f"Hugging Face's generate knows no {' and no '.join(unknown)}: leave that out where outputs are compared with it"
        )
    warm = sampling.heat > 0
    filters = {
        "temperature": sampling.heat,
        "top_k": sampling.top_k or None,
        "top_p": sampling.top_p if sampling.top_p < 1 else None,
        "min_p": sampling.min_p or None,
        "typical_p": sampling.typical_p if sampling.typical_p < 1 else None,
    }
    return {
        "do_sample": warm,
        **{name: value if warm else None for name, value in filters.items()},
        "repetition_penalty": sampling.repetition_penalty if sampling.repetition_penalty != 1 else None,
        "sequence_bias": [[list(ids), value] for ids, value in sampling.biases.items()] or None,
        "bad_words_ids": [list(word) for word in sampling.bad_words] or None,
        "min_new_tokens": sampling.min_new_tokens or None,
        "logits_processor": LogitsProcessorList(sampling.processors),
    }


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two greedy outputs part, and how close the model finds the two tokens there."""

    at: int  # index among the new tokens
    tokens: tuple[int | None, int | None]  # None where an output has ended
    gap: float | None  # logit of the first minus logit of the second, in float32; None where one has ended
    top_gap: float | None  # between the model's two likeliest tokens there

    @property
    def near_tie(self) -> bool:
        """Within what half precision can't tell apart: rounding decided, no fault."""
        return self.gap is not None and abs(self.gap) < 0.5


def diverge(model: PreTrainedModel, prompt: Sequence[int], a: Sequence[int], b: Sequence[int]) -> Divergence | None:
    """None for equal outputs; else the first difference, judged by a plain float32 pass over the common text."""
    if list(a) == list(b):
        return None
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    x, y = (s[at] if at < len(s) else None for s in (a, b))
    if x is None or y is None:
        return Divergence(at, (x, y), None, None)
    exact = model if model.dtype in (torch.float32, torch.float64) else copy.deepcopy(model).float()
    with torch.inference_mode():
        text = torch.tensor([[*prompt, *a[:at]]], device=model.device)
        logits = exact(input_ids=text, use_cache=False).logits[0, -1]
    best = logits.topk(2).values
    return Divergence(at, (x, y), float(logits[x] - logits[y]), float(best[0] - best[1]))


def _endless(model: PreTrainedModel, tokens: int) -> GenerationConfig:
    """Greedy, and exactly so many new tokens."""
    return GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=None, pad_token_id=0)


@torch.inference_mode()
def hf_batches(model: PreTrainedModel, prompts: Sequence[Sequence[int]], *, rows: int, tokens: int) -> list[list[int]]:
    """`generate` in batches of `rows` prompts, padded on the left, greedy, `tokens` new ones each."""
    out: list[list[int]] = []
    run: Any = model.generate
    for i in range(0, len(prompts), rows):
        batch = prompts[i : i + rows]
        longest = max(map(len, batch))
        ids = torch.tensor([[0] * (longest - len(p)) + list(p) for p in batch], device=model.device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in batch], device=model.device)
        made = run(ids, attention_mask=mask, generation_config=_endless(model, tokens))
        out += made[:, longest:].tolist()
    return out


def hf_continuous(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], *, rows: int, tokens: int
) -> list[list[int]]:
    """transformers' own continuous batching (`generate_batch`), at most `rows` requests at once, greedy, `tokens` each."""
    size = 32
    blocks = sum(-(-(len(p) + tokens) // size) + 1 for p in sorted(prompts, key=len)[-rows:])
    config = ContinuousBatchingConfig(
        page_size=size, num_blocks=blocks, max_batch_tokens=512, max_requests_per_batch=rows
    )
    run: Any = model.generate_batch
    made = run(
        [list(p) for p in prompts],
        generation_config=_endless(model, tokens),
        continuous_batching_config=config,
        warmup=False,
    )
    found = [made[f"req_{i}"] for i in range(len(prompts))]
    if failed := next((f.error for f in found if f.error), None):
        raise RuntimeError(f"generate_batch failed: {failed}")
    return [list(f.generated_tokens) for f in found]

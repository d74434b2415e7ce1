"""Hugging Face's own `generate`, as the judge of equality and the arm to be compared with."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

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
    """New tokens of `model.generate` for one prompt; `lookup` turns on its prompt lookup with that many tokens."""
    ids = torch.tensor([list(prompt)], device=model.device)
    sampling = sampling or Sampling()
    warm = sampling.heat > 0
    options = {
        "do_sample": warm,
        "temperature": sampling.heat if warm else None,
        "top_k": (sampling.top_k or None) if warm else None,
        "top_p": sampling.top_p if warm and sampling.top_p < 1 else None,
        "min_p": sampling.min_p if warm and sampling.min_p else None,
        "prompt_lookup_num_tokens": lookup,
    }
    run: Any = model.generate  # typed as a module attribute, which it is not
    out = run(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_new_tokens,
        eos_token_id=list(stop_tokens) or None,
        pad_token_id=stop_tokens[0] if stop_tokens else 0,
        **options,
    )
    return out[0, len(prompt) :].tolist()


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

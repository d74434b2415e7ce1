"""Lenient acceptance: a guess passes when it is among the target's likeliest tokens. Fast, simple and biased.

`TopKLenient` is the relaxed acceptance of serving engines (TensorRT-LLM's relaxed acceptance for thinking phases): accept
x when it is one of the target's `top` likeliest tokens and its probability is within `margin` of the likeliest one's.
`Threshold` accepts x when p(x) exceeds a constant. Both keep the deepest path that passes whole and draw the bonus
from p. With top=1, or margin=0, what passes is the arg-max: exact at temperature 0 and nowhere else.

Cost: one pass over [B, N, V].

Letters: B rows, N nodes, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toolkit.protocols import Draw, Proposal, Sampler, Verdict
from toolkit.verification.typical import deepest


@dataclass(frozen=True, slots=True)
class TopKLenient:
    """LOSSY. Tokens tied with the last of the `top` pass too; impossible ones never do. Raises ValueError for top below 1
    and margin outside [0, 1]."""

    lossless: ClassVar[bool] = False
    draws: ClassVar[frozenset[Draw]] = frozenset(("certain", "independent", "distinct"))

    top: int = 3
    margin: float = 1.0

    def __post_init__(self) -> None:
        if self.top < 1:
            raise ValueError(f"TopKLenient needs top of at least 1; got {self.top}")
        if not 0 <= self.margin <= 1:
            raise ValueError(f"TopKLenient needs margin in [0, 1] (1 asks for the rank alone); got {self.margin}")

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        probs = sampler.probs(logits, proposal.tree)  # [B, N, V]
        best = probs.topk(min(self.top, probs.shape[-1]), -1).values  # falling
        least = torch.maximum(best[..., -1], best[..., 0] - self.margin)
        below = torch.nextafter(least, torch.zeros_like(least))  # so that what equals the least passes
        return deepest(proposal, probs, below, sampler)


@dataclass(frozen=True, slots=True)
class Threshold:
    """LOSSY. Accepts a guess when the target gives it more than `least`. Raises ValueError outside [0, 1]."""

    lossless: ClassVar[bool] = False
    draws: ClassVar[frozenset[Draw]] = frozenset(("certain", "independent", "distinct"))

    least: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.least <= 1:
            raise ValueError(f"Threshold needs least in [0, 1]; got {self.least}")

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        probs = sampler.probs(logits, proposal.tree)
        return deepest(proposal, probs, torch.full_like(probs[..., 0], self.least), sampler)

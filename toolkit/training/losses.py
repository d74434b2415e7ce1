"""Losses of draft heads: how far a head's distribution q is from the target's p. A loss is a function; yours is as good.

Every one takes logits of the head [M, W], logits of the target [M, W] over the same tokens, and the target's likeliest token
[M] as an index into them (-1 where it is not among them), and returns one value a guess [M]. p and q are both normalised over
the W tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def soft_ce(head: Tensor, target: Tensor, best: Tensor) -> Tensor:
    """-sum p log q: KL(p || q) up to the target's entropy, which does not depend on the head (EAGLE, section 3)."""
    return -(target.softmax(-1) * head.log_softmax(-1)).sum(-1)


def kl(head: Tensor, target: Tensor, best: Tensor) -> Tensor:
    """KL(p || q), which is zero where the head is right."""
    p = target.log_softmax(-1)
    return (p.exp() * (p - head.log_softmax(-1))).sum(-1)


def reverse_kl(head: Tensor, target: Tensor, best: Tensor) -> Tensor:
    """KL(q || p): the head keeps to what the target finds likely (MiniLLM, 2023)."""
    q = head.log_softmax(-1)
    return (q.exp() * (q - target.log_softmax(-1))).sum(-1)


def hard_ce(head: Tensor, target: Tensor, best: Tensor) -> Tensor:
    """-log q of the target's likeliest token; 0 where the head cannot say it (Medusa, section 2.2)."""
    return cross_entropy(head, best, ignore_index=-1, reduction="none")


def tv(head: Tensor, target: Tensor, best: Tensor) -> Tensor:
    """Total variation: 1 - sum min(p, q), the rate of refusal itself (Leviathan et al. 2023, section 3.2)."""
    return 0.5 * (target.softmax(-1) - head.softmax(-1)).abs().sum(-1)


def negative_log_acceptance(head: Tensor, target: Tensor, best: Tensor) -> Tensor:
    """-log sum min(p, q)."""
    return -acceptance(head, target).clamp(min=1e-6).log()


def lk_hybrid(head: Tensor, target: Tensor, best: Tensor) -> Tensor:
    """KL while the head is bad, TV once it is good: lambda KL + (1 - lambda) TV with lambda = exp(-3 alpha), which is not
    differentiated ("LK losses", 2026)."""
    share = torch.exp(-3 * acceptance(head, target)).detach()
    return share * kl(head, target, best) + (1 - share) * tv(head, target, best)


def acceptance(head: Tensor, target: Tensor) -> Tensor:
    """[M] sum min(p, q): the probability that a guess drawn from q is accepted by rejection sampling."""
    return torch.minimum(target.softmax(-1), head.softmax(-1)).sum(-1)


LOSSES: Mapping[str, Loss] = {
    f.__name__: f for f in (soft_ce, kl, reverse_kl, hard_ce, tv, negative_log_acceptance, lk_hybrid)
}

Weigh = Callable[[Tensor], Tensor]
"""Confidence [O, D] of the guesses from one start in the target's likeliest tokens, 0 where there is no guess, to weights [O, D].
Not differentiated."""


@dataclass(frozen=True, slots=True)
class Decay:
    """rate ** (depth - 1): the later a guess, the rarer it is looked at (EAGLE-3 uses 0.8)."""

    rate: float = 0.8

    def __call__(self, confidence: Tensor) -> Tensor:
        depth = torch.arange(confidence.shape[1], device=confidence.device)
        return (self.rate**depth).expand_as(confidence)


@dataclass(frozen=True, slots=True)
class Fading:
    """exp(-(depth - 1) / width), as DFlash (2026) weighs the places of a block."""

    width: float = 4.0

    def __call__(self, confidence: Tensor) -> Tensor:
        return Decay(math.exp(-1 / self.width))(confidence)


@dataclass(frozen=True, slots=True)
class DPace:
    """A guess weighs what it contributes to the expected length: the sum, over all depths from its own on, of the products of
    smoothed confidences up to there ("D-PACE", 2026)."""

    smooth: float = 0.5

    def __call__(self, confidence: Tensor) -> Tensor:
        prefix = (self.smooth * confidence + 1 - self.smooth).cumprod(1)
        return prefix.flip(1).cumsum(1).flip(1)


@dataclass(frozen=True, slots=True)
class Objective:
    """What is minimised: losses by weight, guesses weighed by depth, and for heads whose states are to be the target's own a
    smooth L1 distance between the two (EAGLE, section 3: 1.0, with 0.1 of soft cross-entropy).

    terms  pairs of a loss (a name in LOSSES, or a function) and its weight

    Raises ValueError for an unknown name.
    """

    terms: tuple[tuple[str | Loss, float], ...] = (("soft_ce", 1.0),)
    weigh: Weigh = Decay()
    feature: float = 0.0

    def __post_init__(self) -> None:
        for loss, _ in self.terms:
            if isinstance(loss, str) and loss not in LOSSES:
                raise ValueError(f"unknown loss {loss!r}: use one of {', '.join(LOSSES)}, or a function")

    def __call__(self, head: Tensor, target: Tensor, best: Tensor) -> Tensor:
        """[M]"""
        total = head.new_zeros(len(head))
        for loss, weight in self.terms:
            total = total + weight * (LOSSES[loss] if isinstance(loss, str) else loss)(head, target, best)
        return total

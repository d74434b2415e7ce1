"""Temperature and truncation where of most tokens only their common weight is known.

What is known of the tokens that are left out: their number, the largest of their logits, and the logarithm of their weight,
log sum exp(b l), at b = 1 and at b = 1 / (the request's own temperature). Below the largest of their logits ranks are not
known, above it they are: so a truncation is known exactly when it cuts above. Where it cuts below, the tokens that are left
out stay in together, with as much weight as the truncation can leave them.

As a function of b the logarithm of the weight is convex, so at another temperature the line between two known points is an
upper bound, and beyond them it rises by the largest logit at most.

Letters: N nodes, U tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.sampling import Sampling, filters


@dataclass(frozen=True, slots=True)
class Shaped:
    """Distributions after the sampling parameters. `sure` [N]: nothing was guessed about ranks among what is left out."""

    probs: Tensor  # [N, U]
    rest: Tensor  # [N] what is left out, at most where the temperature is another one than at the recording
    sure: Tensor  # [N] bool


@dataclass(frozen=True, slots=True)
class Left:
    """What is known of the tokens that are left out, [N] each."""

    count: Tensor
    most: Tensor
    tail: Tensor  # logsumexp at temperature 1
    warm: Tensor  # and at temperature `heat`
    heat: float

    def weight(self, heat: float) -> Tensor:
        """[N] their logsumexp at a temperature: an upper bound, exact at the two that are known."""
        b, points = 1 / heat, {0.0: self.count.double().log(), 1.0: self.tail, 1 / self.heat: self.warm}
        if b in points:
            return points[b]
        last = max(points)
        if b > last:
            return points[last] + (b - last) * self.most
        low, high = max(x for x in points if x < b), min(x for x in points if x > b)
        share = (b - low) / (high - low)
        bound = (1 - share) * points[low] + share * points[high]
        return torch.where(self.tail == -math.inf, self.tail, bound)

    def least(self, heat: float) -> Tensor:
        """[N] a lower bound of it, exact where `weight` is."""
        return self.weight(heat) if heat in (1.0, self.heat) else self.most / heat


def shaped(logits: Tensor, left: Left, s: Sampling) -> Shaped:
    """Logits [N, U], -inf for tokens that a node does not know, to distributions, in the order of `BatchSampler.probs`."""
    sure = torch.ones(len(logits), dtype=torch.bool)
    if s.heat == 0:
        best = torch.zeros_like(logits).scatter(1, logits.argmax(-1, keepdim=True), 1)
        return Shaped(best, torch.zeros_like(left.tail), sure)
    x, rest, most = logits / s.heat, left.weight(s.heat), left.most / s.heat
    gone, least = torch.full_like(rest, -math.inf), left.least(s.heat)
    if s.top_k:
        k = min(s.top_k, x.shape[1])
        x = filters.top_k(x, torch.tensor(k), k)
        room = s.top_k - (x > most[:, None]).sum(-1)  # how many of those left out may be among the k
        rest = torch.where(room > 0, torch.minimum(rest, room.clamp(min=1).log() + most), gone)
        least = torch.where(room > 0, most, gone)
    if s.top_p < 1:
        x, rest, sure = _top_p(x, rest, least, most, s.top_p)
    if s.min_p > 0:
        bar = x.amax(-1) + math.log(s.min_p)
        x = filters.min_p(x, torch.tensor(s.min_p, dtype=x.dtype))
        rest = torch.where(most < bar, gone, rest)
    if s.typical_p < 1:
        sure &= rest == -math.inf  # the entropy of what is left out is not known
        whole = filters.typical_p(torch.cat([x, rest[:, None]], 1), torch.tensor(s.typical_p, dtype=x.dtype))
        x, rest = whole[:, :-1], whole[:, -1]
    probs = torch.cat([x, rest[:, None]], 1).softmax(-1)
    return Shaped(probs[:, :-1], probs[:, -1], sure)


def _top_p(x: Tensor, rest: Tensor, least: Tensor, most: Tensor, p: float) -> tuple[Tensor, Tensor, Tensor]:
    """As `filters.top_p`, with what is left out, between `least` and `rest` [N], below everything else; and where that was
    no guess: where the cut is above all of it, and the same for the least and the most that it may weigh."""
    ranked, order = x.sort(-1)  # rising
    mass = torch.cat([rest[:, None], ranked], 1).softmax(-1)
    drop = mass.cumsum(-1)[:, 1:] <= 1 - p
    drop[:, -1] = False
    low = ranked <= most[:, None]  # these may rank among what is left out
    heavy = torch.cat([rest[:, None], ranked.masked_fill(~low, -math.inf)], 1).logsumexp(-1)
    above = ranked.masked_fill(low, -math.inf)
    light, dark = (torch.cat([w[:, None], above], 1).softmax(-1).cumsum(-1) <= 1 - p for w in (least, heavy))
    sure = (dark[:, 0] & ((light == dark) | torch.cat([low[:, :1], low], 1))[:, 1:-1].all(-1)) | (rest == -math.inf)
    owed = (p - (mass[:, 1:] * ~drop).sum(-1)).clamp(min=0)  # the kept mass reaches p, and hardly more
    share = torch.minimum(owed / mass[:, 0].clamp(min=torch.finfo(mass.dtype).tiny), torch.ones_like(owed))
    rest = torch.where(sure, torch.full_like(rest, -math.inf), rest + share.log())
    return x.masked_fill(torch.zeros_like(drop).scatter(1, order, drop), -math.inf), rest, sure

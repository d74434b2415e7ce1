"""Two draws that share their noise, exactly.

A race has exponential variates E(x), one a token; under weights a the winner is argmax a(x) / E(x), under b it is
argmax b(x) / E(x). Each alone is a plain draw; this is the law of the second given the first.

Letters: B rows, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor


def second_winner(a: Tensor, winner: Tensor, b: Tensor) -> Tensor:
    """[B, V] the law of the winner under weights b, given that `winner` [B] won under weights a (both [B, V]).

    i wins under a and j under b when E(k) >= max(s a(k) / a(i), t b(k) / b(j)) for all k, with s = E(i), t = E(j) and the
    same for i and j themselves. The density of s and t is exp(-s D(t / s)), D(c) = sum_k max(a(k) / a(i), c b(k) / b(j)).
    Along each ray c = t / s that leaves the integral of 1 / D(c)^2, and D is linear between the breakpoints where the
    maximum changes sides, so each piece is (c2 - c1) / (D(c1) D(c2)).
    """
    i = winner[:, None]
    alpha = a / a.gather(1, i)  # [B, V], 1 at i
    out = torch.zeros_like(b)
    for j in range(b.shape[1]):
        possible = b[:, j] > 0
        beta = b / torch.where(possible, b[:, j], 1)[:, None]  # [B, V], 1 at j
        same = i[:, 0] == j
        tie = 1 / torch.maximum(alpha, beta).sum(-1)  # i = j: the one variate loses to nobody
        low = alpha[:, j, None]  # t >= s a(j) / a(i), or i would not win under a
        high = 1 / beta.gather(1, i)  # s >= t b(i) / b(j), or j would not win under b; infinite where b(i) = 0
        ends = (alpha / beta).nan_to_num(0, torch.inf).clamp(min=low)
        ends = torch.minimum(ends, high)
        ends = torch.cat([low, ends, high], 1).sort(1).values  # [B, V + 2]
        out[:, j] = torch.where(
            possible, torch.where(same, tie, _between(ends, alpha, beta).where(low[:, 0] < high[:, 0], 0)), 0
        )
    return out / (a.gather(1, i) / a.sum(-1, keepdim=True))


def _between(ends: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """[B] the integral of 1 / D(c)^2 from the first to the last of the sorted ends [B, W], the last maybe infinite."""
    finite = ends.isfinite()
    c = ends.where(finite, 0)
    d = torch.maximum(alpha[:, None], c[..., None] * beta[:, None]).sum(-1)  # [B, W]
    slope = beta.sum(-1, keepdim=True)  # of D beyond the last breakpoint
    rise = (c[:, 1:] - c[:, :-1]) / d[:, 1:]
    rise = torch.where(finite[:, 1:], rise, finite[:, :-1] / slope)  # (c2 - c1) / D(c2) as c2 grows
    return (rise / d[:, :-1]).sum(1)

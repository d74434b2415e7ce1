"""Truncations of a distribution. Each takes and gives logits [..., V]; dropped tokens get -inf.

Letters: V vocabulary; parameters have a shape that broadcasts against [..., 1].
"""

from __future__ import annotations

import torch
from torch import Tensor


def top_k(logits: Tensor, k: Tensor, most: int) -> Tensor:
    """Keep the k most likely tokens and ties with the k-th; k = 0 keeps all. `most` is the largest k, on the host."""
    ranked = logits.topk(min(most, logits.shape[-1]), -1).values  # [..., most]
    place = (k.clamp(1, ranked.shape[-1]) - 1).expand(*logits.shape[:-1], 1)
    return logits.masked_fill((logits < ranked.gather(-1, place)) & (k > 0), -torch.inf)


def top_p(logits: Tensor, p: Tensor) -> Tensor:
    """Keep the smallest set of most likely tokens whose mass reaches p, at least one; p = 1 keeps all."""
    ranked, order = logits.sort(-1)  # rising
    tail = (1 - p.double()).to(ranked.dtype)  # subtracted in float64, then rounded once, as Hugging Face does
    drop = (ranked.softmax(-1).cumsum(-1) <= tail) & (p < 1)
    drop[..., -1] = False
    return logits.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -torch.inf)


def min_p(logits: Tensor, p: Tensor) -> Tensor:
    """Keep the tokens that are at least p times as likely as the most likely one."""
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < p.to(probs.dtype) * probs.amax(-1, keepdim=True), -torch.inf)


def typical_p(logits: Tensor, p: Tensor) -> Tensor:
    """Keep the tokens whose surprise is nearest to the entropy until their mass reaches p, at least one, and ties with the
    last kept one; p = 1 keeps all. Meister et al. 2023, section 4."""
    logp = logits.log_softmax(-1)
    entropy = torch.special.entr(logp.exp()).sum(-1, keepdim=True)
    strange = (-logp - entropy).abs()  # inf for dropped tokens
    ranked, order = strange.sort(-1)
    mass = logp.gather(-1, order).exp().cumsum(-1)
    last = (mass < p.to(mass.dtype)).sum(-1, keepdim=True).clamp(max=mass.shape[-1] - 1)
    return logits.masked_fill((strange > ranked.gather(-1, last)) & (p < 1), -torch.inf)

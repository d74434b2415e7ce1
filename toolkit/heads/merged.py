"""Causal attention, to which every place adds a few keys of its own: fast on CPUs, since no scores are kept.

Two parts of one softmax join by their normalizers: with L the log of the sum of exponentiated scores over all keys, each part
weighs exp(its own normalizer - L). And the fused kernel's backward pass needs of the softmax only its outcome and L: given
those of the whole, it yields the gradients of its part (Dao et al. 2022, "FlashAttention", section 3.1).

Letters: B rows, A heads, N places, P further keys a place, D head size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def merged(q: Tensor, k: Tensor, v: Tensor, own_k: Tensor, own_v: Tensor) -> Tensor:
    """Queries, keys and values [B, A, N, D] on a CPU, further keys and values [P, B, A, N, D] that their own place alone sees:
    [B, A, N, D]."""
    return _Merged.apply(q, k, v, own_k, own_v)  # type: ignore[no-any-return]


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, own_k: Tensor, own_v: Tensor) -> Tensor:
        scale = q.shape[-1] ** -0.5
        past, total = _forward(q, k, v, 0.0, True, scale=scale)  # [B, A, N, D], [B, A, N]
        wide = total.dtype
        score = (q * own_k).sum(-1, dtype=wide) * scale  # [P, B, A, N]
        whole = torch.logaddexp(total, score.logsumexp(0))
        own = ((score - whole).exp()[..., None] * own_v).sum(0)
        out = ((total - whole).exp()[..., None] * past + own).to(q.dtype)
        ctx.save_for_backward(q, k, v, own_k, own_v, out, whole, score)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        q, k, v, own_k, own_v, out, whole, score = ctx.saved_tensors
        given, scale = grads[0].contiguous(), q.shape[-1] ** -0.5
        of_q, of_k, of_v = _backward(given, q, k, v, out, whole, 0.0, True, scale=scale)
        share = (score - whole).exp()  # [P, B, A, N]
        mean = (given * out).sum(-1, dtype=whole.dtype)
        of_score = (share * ((given * own_v).sum(-1, dtype=whole.dtype) - mean) * scale)[..., None]
        of_own_k, of_own_v = (of_score * q).to(q.dtype), (share[..., None] * given).to(q.dtype)
        return of_q + (of_score * own_k).sum(0).to(q.dtype), of_k, of_v, of_own_k, of_own_v

"""Attention over grouped keys without copies: the function behind `attention`, and behind draft heads.

Query heads that share a key head are laid side by side as further queries, so a cache view is read where it lies.
Soft-capping (Gemma 2) and attention sinks (GPT-OSS), which the fused kernel lacks, take an explicit path with the same
layout.

Letters: B rows, H query heads, K key heads, G = H / K query heads a key head, M queries, S keys, D size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


def grouped_attention(
    module: nn.Module | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """query [B, H, M, D], key and value [B, K, S, D], additive mask [B, 1, M, S] to [B, M, H, D].

    A mask of no slots, [B, 1, M, 0], says that every query sees every key. No mask, or one of truth values, comes from a plain
    pass over the same model in another thread: without one a query sees the keys up to its own.
    """
    rows, heads, m, size = query.shape
    groups = heads // key.shape[1]
    if attention_mask is None:
        slots = key.shape[2]
        attention_mask = torch.ones(m, slots, dtype=torch.bool, device=query.device).tril(slots - m)[None, None]
    if attention_mask.dtype == torch.bool and (softcap is not None or s_aux is not None):
        attention_mask = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(
            ~attention_mask, torch.finfo(query.dtype).min
        )
    q = query.reshape(rows, key.shape[1], groups * m, size)  # [B, K, G * M, D]
    mask: Tensor | None = None
    if attention_mask.shape[-1]:
        mask = attention_mask.expand(-1, -1, groups, -1) if m == 1 else attention_mask.repeat(1, 1, groups, 1)
    if softcap is None and s_aux is None:
        out = scaled_dot_product_attention(q, key, value, attn_mask=mask, scale=scaling)
    else:
        out = _explicit(q, key, value, mask, scaling or size**-0.5, softcap, s_aux)
    return out.reshape(rows, heads, m, value.shape[-1]).transpose(1, 2), None


def _explicit(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float, softcap: float | None, sinks: Tensor | None
) -> Tensor:
    if k.stride(-2) != k.shape[-1]:  # gathered from pages: a product over other strides rounds otherwise
        k, v = k.contiguous(), v.contiguous()
    scores = q @ k.transpose(2, 3) * scaling  # [B, K, G * M, S]
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = scores + mask
    if sinks is None:
        return scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype) @ v
    groups = sinks.numel() // k.shape[1]
    sink = sinks.view(1, k.shape[1], groups, 1, 1).expand(q.shape[0], -1, -1, q.shape[2] // groups, -1)
    scores = torch.cat([scores, sink.reshape(*scores.shape[:3], 1)], -1)
    scores = scores - scores.amax(-1, keepdim=True)
    return scores.softmax(-1)[..., :-1].to(q.dtype) @ v

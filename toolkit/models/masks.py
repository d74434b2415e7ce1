"""What each node may attend to, as additive masks, one a kind of layer.

Letters: B rows, N nodes, M nodes just read, S slots in reach.
"""

from __future__ import annotations

import torch
from torch import Tensor

from toolkit.protocols import KVCache
from toolkit.tree import TokenTree


def positions(tree: TokenTree, cache: KVCache) -> Tensor:
    """[B, N] absolute positions: the root stands after the settled slots, siblings share theirs."""
    return cache.length[:, None] + tree.depth


def visible(tree: TokenTree, cache: KVCache, start: int) -> Tensor:
    """[B, M, S] bool: a node sees every settled slot and, among the provisional ones, its own path."""
    n = tree.size
    slot = torch.arange(cache.used + n, device=tree.token.device)
    node = slot - cache.length[:, None]  # [B, S] which node a slot holds, if any
    own = tree.ancestors[:, start:].gather(2, node.clamp(0, n - 1)[:, None].expand(-1, n - start, -1))
    return (node < 0)[:, None] | (own & ((node >= 0) & (node < n))[:, None])


def near(tree: TokenTree, cache: KVCache, start: int, window: int) -> Tensor:
    """[B, M, S] bool: is a slot less than `window` positions behind a node."""
    n = tree.size
    place = positions(tree, cache)
    slot = torch.arange(cache.used + n, device=place.device)
    node = slot - cache.length[:, None]
    key = torch.where((node >= 0) & (node < n), place.gather(1, node.clamp(0, n - 1)), slot)  # [B, S] positions
    return place[:, start:, None] - key[:, None] < window


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, M, S] bool to [B, 1, M, S]: 0 where seen, the lowest number elsewhere."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)[:, None]

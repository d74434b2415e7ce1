"""Attention over a key-value cache and a token tree, for heads while they draft.

Letters: B rows, N nodes, M nodes just read, A query heads, K key heads, D head size, S slots in reach.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from toolkit.cache import LayerSpec, Store, layout_for
from toolkit.heads.config import HeadConfig
from toolkit.models.grouped import grouped_attention
from toolkit.models.masks import additive, visible
from toolkit.protocols import Context, KVCache
from toolkit.tree import TokenTree


@dataclass(frozen=True, slots=True)
class CachedAttend:
    """Answers the `Attend` socket: writes what is new into the provisional slots, and looks at all that a node may see."""

    cache: KVCache
    start: int
    mask: Tensor  # [B, 1, M, S] additive

    @classmethod
    def tree(cls, cache: KVCache, tree: TokenTree, start: int, dtype: torch.dtype) -> Self:
        """Nodes from `start` on see every settled slot and their own path."""
        return cls(cache, start, additive(visible(tree, cache, start), dtype))

    @classmethod
    def block(cls, cache: KVCache, places: int, dtype: torch.dtype) -> Self:
        """`places` provisional slots that all see one another and every settled slot."""
        slot = torch.arange(cache.used + places, device=cache.length.device)
        seen = slot < cache.length[:, None] + places  # [B, S]
        return cls(cache, 0, additive(seen[:, None].expand(-1, places, -1), dtype))

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self.cache.write(layer, self.start, k, v)
        return grouped_attention(None, q, keys, values, self.mask)[0]


@dataclass(slots=True)
class HeadCache:
    """A head's cache from step to step: made anew for features of another origin, which are another target's or another
    session's."""

    store: Store | None = None
    origin: object = None

    def fit(self, context: Context, config: HeadConfig, like: Tensor, *, places: int = 0) -> tuple[Store, bool]:
        """The cache for this context, with room for `places` more slots than it has tokens, and whether it is a new one."""
        store = self.store
        same = store is not None and (context.who or len(store.filled) == context.rows)
        if store is not None and same and context.origin is self.origin:
            return store, False
        spec = LayerSpec(config.kv_heads, config.head_dim, config.head_dim, like.device, like.dtype)
        specs = dict.fromkeys(range(config.layers), spec)
        slots = context.token.shape[1] + places
        store = Store.empty(layout_for(context.paging), specs, context.rows, slots, like.device)
        self.store, self.origin = store, context.origin
        return store, True

    def release(self, who: Hashable) -> None:
        if self.store is not None:
            self.store.release(who)

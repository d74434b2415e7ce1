"""The plain layout: each row owns S slots in a row of memory, so a view of its past costs nothing.

Letters: G layers of one kind, B rows, H heads, S slots, D head size, N nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Slab:
    """Answers the `Layout` socket of `Store` with tensors [G, B, H, S, D]."""

    def make(self, like: Tensor, layers: int, slots: int) -> Tensor:
        """Room for `layers` layers shaped like one layer's [B, H, N, D]."""
        rows, heads, _, size = like.shape
        return like.new_zeros(layers, rows, heads, slots, size)

    def grow(self, store: Tensor, slots: int) -> Tensor:
        """The same contents with room for `slots` slots."""
        more = store.new_zeros(*store.shape[:3], slots - store.shape[3], store.shape[4])
        return torch.cat([store, more], 3)

    def put(self, layer: Tensor, at: Tensor | int, x: Tensor) -> None:
        """Write x [B, H, N, D] into one layer [B, H, S, D]: into the slots at [B, N], or from slot `at` on in all rows,
        which is several times faster."""
        if isinstance(at, int):
            layer.narrow(2, at, x.shape[2]).copy_(x)
        else:
            layer.scatter_(2, at[:, None, :, None].expand(x.shape), x)

    def move(self, store: Tensor, source: Tensor, to: Tensor) -> None:
        """Copy slots source [B, N] to slots to [B, N] in all layers at once; all are read before any is written."""
        shape = (store.shape[0], -1, store.shape[2], -1, store.shape[4])
        taken = store.gather(3, source[None, :, None, :, None].expand(shape))
        store.scatter_(3, to[None, :, None, :, None].expand(shape), taken)

    def view(self, layer: Tensor, reach: int) -> Tensor:
        """[B, H, reach, D]: the first slots of one layer [B, H, S, D]."""
        return layer.narrow(2, 0, reach)

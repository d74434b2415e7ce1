"""The bookkeeping of a key-value cache: settled tokens first, then provisional room for one tree.

A layout says where a slot is; everything else is written once, here.

Letters: B rows, H heads, S slots, D head size, N nodes, M nodes just read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from toolkit.protocols import Context
from toolkit.tree import TokenTree, path_first


class Layout(Protocol):
    """Where slots are. `store` holds all layers of one kind, `layer` is one of its entries."""

    def make(self, like: Tensor, layers: int, slots: int) -> Tensor: ...
    def grow(self, store: Tensor, slots: int) -> Tensor: ...
    def put(self, layer: Tensor, at: Tensor | int, x: Tensor) -> None: ...
    def move(self, store: Tensor, source: Tensor, to: Tensor) -> None: ...
    def view(self, layer: Tensor, reach: int) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What one layer writes: heads, key size, value size, where and in which dtype. Equal specs share their memory."""

    heads: int
    key: int
    value: int
    device: torch.device
    dtype: torch.dtype


@dataclass(slots=True)
class _Kind:
    """The memory of all layers with one spec."""

    keys: Tensor
    values: Tensor


@dataclass(slots=True)
class Store:
    """Answers the `KVCache` socket for any layout."""

    layout: Layout
    specs: dict[int, LayerSpec]  # by layer; layers that share another layer's keys are absent
    slots: int
    length: Tensor  # [B] settled slots
    used: int  # an upper bound of length, known on the host
    known: np.ndarray  # [B, n] tokens the host knows to be settled ...
    filled: np.ndarray  # [B] ... and how many they are
    level: int | None = 0  # what `length` is in every row, if the host knows it to be one number
    kinds: dict[LayerSpec, _Kind] = field(default_factory=dict, repr=False)
    place: dict[int, int] = field(default_factory=dict, repr=False)  # layer -> its index within its kind
    _views: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    @classmethod
    def empty(
        cls, layout: Layout, specs: dict[int, LayerSpec], rows: int, slots: int, device: torch.device | str
    ) -> Store:
        """A cache of `rows` rows with nothing in it. It grows by itself when a tree reaches past `slots`."""
        store = cls(
            layout,
            specs,
            slots,
            torch.zeros(rows, dtype=torch.long, device=device),
            0,
            np.zeros((rows, 0), np.int64),
            np.zeros(rows, np.int64),
        )
        for spec in set(specs.values()):
            layers = [i for i, s in specs.items() if s == spec]
            store.place |= {layer: n for n, layer in enumerate(layers)}
            like = torch.empty(rows, spec.heads, 0, 1, dtype=spec.dtype, device=spec.device)
            store.kinds[spec] = _Kind(
                layout.make(like.expand(-1, -1, -1, spec.key), len(layers), slots),
                layout.make(like.expand(-1, -1, -1, spec.value), len(layers), slots),
            )
        return store

    def reserve(self, reach: int) -> None:
        """Make room for `reach` slots a row."""
        if reach <= self.slots:
            return
        self.slots = max(reach, self.slots + self.slots // 2)
        for kind in self.kinds.values():
            kind.keys = self.layout.grow(kind.keys, self.slots)
            kind.values = self.layout.grow(kind.values, self.slots)
        self._views.clear()

    def at(self, start: int, n: int) -> Tensor:
        """[B, n] the provisional slots of nodes start..start+n."""
        return self.length[:, None] + torch.arange(start, start + n, device=self.length.device)

    def write(self, layer: int, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Put k [B, H, M, D] and v at the provisional slots from `start` on; return keys and values [B, H, reach, D]."""
        reach = self.used + start + k.shape[2]
        self.reserve(reach)
        keys, values = self._layer(layer)
        at = self.level + start if self.level is not None else self.at(start, k.shape[2]).to(k.device)
        self.layout.put(keys, at, k)
        self.layout.put(values, at, v)
        return self.layout.view(keys, reach), self.layout.view(values, reach)

    def _layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, kept at hand: a pass asks for them once a layer."""
        if layer not in self._views:
            kind, n = self.kinds[self.specs[layer]], self.place[layer]
            self._views[layer] = kind.keys[n], kind.values[n]
        return self._views[layer]

    def keep(self, tree: TokenTree, path: Tensor) -> None:
        """Settle the nodes where path [B, N] is True: move them to the front, forget the others.

        `path` must be closed under parents. On a chain nothing moves: its nodes already stand in order.
        """
        if not tree.linear:
            self.reserve(self.used + tree.size)
            to = self.at(0, tree.size)
            source = to.gather(1, path_first(path))
            for spec, kind in self.kinds.items():
                for memory in (kind.keys, kind.values):
                    self.layout.move(memory, source.to(spec.device), to.to(spec.device))
        self.length = self.length + path.sum(1)
        self.used, self.level = self.used + tree.size, None

    def trust(self, host: np.ndarray, filled: np.ndarray) -> None:
        """The host vouches that the first `filled` [B] tokens of each row of `host` [B, S] are settled now."""
        self.known, self.filled = host[:, : int(filled.max())].copy(), filled
        self.length = torch.from_numpy(filled).to(self.length.device)
        self.used = int(filled.max())
        self.level = self.used if self.used == int(filled.min()) else None

    def agree(self, context: Context) -> None:
        """Trust only the common prefix of what is known to be settled and what is committed now, the pending token
        left out. From this one rule follow swapping drafters, rewinding, resuming and reuse of a common beginning."""
        n = min(self.known.shape[1], context.host.shape[1])
        same = (self.known[:, :n] == context.host[:, :n]).cumprod(1).sum(1)
        self.trust(context.host, np.minimum(np.minimum(self.filled, same), np.array(context.lengths) - 1))

"""The plain layout: each row owns S slots in a row of memory, so a view of its past costs nothing.

Letters: G layers of one kind, B rows, H heads, S slots, D head size, N nodes, M nodes just read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toolkit.cache.layout import LayerSpec


@dataclass(slots=True)
class Slab:
    """Answers the `Layout` socket with tensors [G, B, H, S, D]. It grows by itself when a tree reaches past its slots."""

    slots: int = 0
    memory: dict[LayerSpec, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)
    _layers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)  # views of one layer each
    _place: dict[int, tuple[LayerSpec, int]] = field(default_factory=dict, repr=False)
    _spans: dict[tuple[int, int], dict[int, tuple[Tensor, Tensor]]] = field(
        default_factory=dict, repr=False
    )  # views of the same slots of each layer
    _room: int = 0  # slots that were reserved after `_room_of`
    _room_of: np.ndarray | None = field(default=None, repr=False)

    def open(self, specs: dict[int, LayerSpec], rows: int, slots: int, device: torch.device) -> None:
        self.slots, self._place = slots, places(specs)
        for spec in dict.fromkeys(specs.values()):
            layers = sum(s == spec for s in specs.values())
            shape = (layers, rows, spec.heads, slots)
            self.memory[spec] = (
                torch.zeros(*shape, spec.key, dtype=spec.dtype, device=spec.device),
                torch.zeros(*shape, spec.value, dtype=spec.dtype, device=spec.device),
            )
        self._look()

    def reserve(self, settled: np.ndarray, nodes: int) -> None:
        if nodes <= self._room and settled is self._room_of:  # asked for once a layer
            return
        self._room, self._room_of = nodes, settled
        reach = int(settled.max()) + nodes
        if reach <= self.slots:
            return
        self.slots = max(reach, self.slots + self.slots // 2)
        self._replace(lambda m: torch.cat([m, m.new_zeros(*m.shape[:3], self.slots - m.shape[3], m.shape[4])], 3))

    def write(self, layer: int, length: Tensor, level: int | None, start: int, k: Tensor, v: Tensor) -> None:
        if level is not None:  # several times faster
            keys, values = self._span(level + start, k.shape[2])[layer]
            keys.copy_(k)
            values.copy_(v)
            return
        keys, values = self._layers[layer]
        at = (length[:, None] + torch.arange(start, start + k.shape[2], device=length.device)).to(k.device)
        keys.scatter_(2, at[:, None, :, None].expand(k.shape), k)
        values.scatter_(2, at[:, None, :, None].expand(v.shape), v)

    def view(self, layer: int, reach: int) -> tuple[Tensor, Tensor]:
        return self._span(0, reach)[layer]

    def _span(self, begin: int, count: int) -> dict[int, tuple[Tensor, Tensor]]:
        """Keys and values [B, H, count, D] of these slots, by layer. A pass asks for the same two spans once a layer, and a view costs as much as a small
        copy, so all layers' views are made at once."""
        if (begin, count) not in self._spans:
            if len(self._spans) > 1:
                self._spans.clear()
            cut = {s: [m.narrow(3, begin, count).unbind() for m in pair] for s, pair in self.memory.items()}
            self._spans[begin, count] = {i: (cut[s][0][n], cut[s][1][n]) for i, (s, n) in self._place.items()}
        return self._spans[begin, count]

    def move(self, source: Tensor, to: Tensor) -> None:
        for spec, pair in self.memory.items():
            here, there = (at.to(spec.device)[None, :, None, :, None] for at in (source, to))
            for m in pair:
                shape = (m.shape[0], -1, m.shape[2], -1, m.shape[4])
                m.scatter_(3, there.expand(shape), m.gather(3, here.expand(shape)))

    def settle(self, tokens: np.ndarray, settled: np.ndarray) -> None:
        """Nothing is given back."""

    def sound(self, b: int, settled: int) -> bool:
        return True

    def seat(self, source: Sequence[int | None]) -> list[int | None]:
        rows = next(iter(self.memory.values()))[0].shape[1] if self.memory else 0
        free = iter(b for b in range(rows) if b not in source)
        filled = [b if b is not None else next(free, None) for b in source]
        if filled == list(range(rows)):
            return filled

        def taken(m: Tensor) -> Tensor:
            out = m.new_zeros(m.shape[0], len(filled), *m.shape[2:])
            kept = [b for b, old in enumerate(filled) if old is not None]
            out[:, kept] = m[:, [old for old in filled if old is not None]]
            return out

        self._replace(taken)
        return filled

    def park(self, b: int) -> None:
        return None

    def unpark(self, b: int, parked: Any) -> None:
        raise NotImplementedError("a slab parks nothing")

    def free(self, parked: Any) -> None:
        raise NotImplementedError("a slab parks nothing")

    def file(self, feature: Tensor, slot: Tensor, real: Tensor) -> None:
        """Rows share nothing."""

    def recall(self, b: int, count: int) -> Tensor:
        raise NotImplementedError("a slab shares nothing")

    def adopt(self, b: int, tokens: np.ndarray) -> int:
        return 0

    def _replace(self, change: Any) -> None:
        self.memory = {spec: (change(k), change(v)) for spec, (k, v) in self.memory.items()}
        self._look()

    def _look(self) -> None:
        self._spans.clear()
        self._layers = {
            layer: (self.memory[spec][0][n], self.memory[spec][1][n]) for layer, (spec, n) in self._place.items()
        }


def places(specs: dict[int, LayerSpec]) -> dict[int, tuple[LayerSpec, int]]:
    """Each layer's spec, and which of the layers with that spec it is."""
    seen: dict[LayerSpec, int] = {}
    found = {}
    for layer, spec in specs.items():
        found[layer] = spec, seen.get(spec, 0)
        seen[spec] = seen.get(spec, 0) + 1
    return found

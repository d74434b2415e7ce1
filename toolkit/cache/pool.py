"""Pages of key-value memory that requests share: who is free, how often each is held, and the memory itself.

Letters: G layers of one kind, P pages, T tokens a page, H heads, D size.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from toolkit.cache.layout import LayerSpec

JUNK = 0  # a page that nobody owns: what has no place is written there and never looked at


class NoPages(RuntimeError):
    """The pool is exhausted, and nothing in it may be given up."""


@dataclass(slots=True)
class Pool:
    """`count` pages of `size` tokens for layers that look equally far back, and the junk page. A pool that `grows` has no
    limit. Raises NoPages when it is exhausted."""

    size: int
    count: int
    grows: bool = False
    free: list[int] = field(default_factory=list, repr=False)
    held: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)  # [1 + P] how often
    memory: dict[LayerSpec, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)  # [G, 1 + P, T, H, D]

    def open(self, specs: dict[LayerSpec, int]) -> None:
        """Memory for so many layers of each kind."""
        for spec, layers in specs.items():
            self.add(spec, layers)
        self.held = np.zeros(1 + self.count, np.int64)
        self.held[JUNK] = 1
        self.free = list(range(self.count, 0, -1))

    def add(self, spec: LayerSpec, layers: int) -> None:
        """Memory for layers of one more kind."""
        tokens = layers * (1 + self.count) * self.size
        asked = tokens * spec.heads * (spec.key + spec.value) * spec.dtype.itemsize
        if spec.device.type == "cpu" and asked > (there := _memory()):  # the system would kill us instead of saying no
            raise ValueError(
                f"{self.count} pages of {self.size} tokens take {asked / 2**30:.1f} GiB, and this machine has "
                f"{there / 2**30:.1f}: give fewer or smaller pages"
            )
        shape = (layers, 1 + self.count, self.size, spec.heads)
        self.memory[spec] = (
            torch.zeros(*shape, spec.key, dtype=spec.dtype, device=spec.device),
            torch.zeros(*shape, spec.value, dtype=spec.dtype, device=spec.device),
        )

    def take(self, give_up: Callable[[], bool]) -> int:
        """A page of one's own. `give_up()` is asked to free one where none is left; False when it cannot."""
        while not self.free:
            if give_up():
                continue
            if not self.grows:
                raise NoPages(f"all {self.count} pages of {self.size} tokens are held: give the pool more")
            self._grow()
        page = self.free.pop()
        for pair in self.memory.values():  # what somebody left may be no number, which no weight of nothing hides
            for m in pair:
                m[:, page] = 0
        self.held[page] = 1
        return page

    def hold(self, page: int) -> None:
        """One more holder."""
        if page != JUNK:
            self.held[page] += 1

    def drop(self, page: int) -> None:
        """One holder less; the last one frees it."""
        if page == JUNK:
            return
        self.held[page] -= 1
        if not self.held[page]:
            self.free.append(page)

    def copy(self, source: int, to: int) -> None:
        """The contents of a page, in all layers."""
        for pair in self.memory.values():
            for m in pair:
                m[:, to] = m[:, source]

    def move(self, source: Tensor, to: Tensor) -> None:
        """Copy slots (page * T + place) to slots, both [n], in all layers; all are read before any is written."""
        for spec, pair in self.memory.items():
            here, there = source.to(spec.device), to.to(spec.device)
            for m in pair:
                flat = m.flatten(1, 2)
                flat.index_copy_(1, there, flat.index_select(1, here))

    def _grow(self) -> None:
        more = max(1, self.count)
        self.free += range(self.count + more, self.count, -1)
        self.count += more
        self.held = np.concatenate([self.held, np.zeros(more, np.int64)])
        self.memory = {
            spec: (
                torch.cat([k, k.new_zeros(k.shape[0], more, *k.shape[2:])], 1),
                torch.cat([v, v.new_zeros(v.shape[0], more, *v.shape[2:])], 1),
            )
            for spec, (k, v) in self.memory.items()
        }


def _memory() -> int:
    """Bytes of this machine; without a limit where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**63

"""The bookkeeping of a key-value cache: settled tokens first, then provisional room for one tree.

A layout says where a slot is; everything else is written once, here.

Letters: B rows, H heads, D head size, N nodes, M nodes just read.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toolkit.cache.layout import LayerSpec, Layout
from toolkit.protocols import Context
from toolkit.tree import TokenTree, path_first


@dataclass(slots=True)
class Store:
    """Answers the `KVCache` socket for any layout."""

    layout: Layout
    length: Tensor  # [B] settled slots
    bound: np.ndarray  # [B] an upper bound of length, known on the host
    known: np.ndarray  # [B, n] tokens the host knows to be settled ...
    filled: np.ndarray  # [B] ... and how many they are
    used: int = 0  # the largest bound: asked for once a layer
    level: int | None = 0  # what `length` is in every row, if the host knows it to be one number
    seats: tuple[Hashable, ...] = ()  # whose rows these are; () before anybody has said
    parked: dict[Hashable, tuple[np.ndarray, Any]] = field(
        default_factory=dict, repr=False
    )  # tokens settled, and where
    found: dict[Hashable, int] = field(
        default_factory=dict, repr=False
    )  # tokens adopted from others at the first sight

    @classmethod
    def empty(
        cls, layout: Layout, specs: dict[int, LayerSpec], rows: int, slots: int, device: torch.device | str
    ) -> Store:
        """A cache of `rows` rows with nothing in it, and room for `slots` slots a row at first. `specs` by layer; layers that
        share another layer's keys are absent."""
        layout.open(specs, rows, slots, torch.device(device))
        none = np.zeros(rows, np.int64)
        return cls(
            layout,
            torch.zeros(rows, dtype=torch.long, device=device),
            none,
            np.zeros((rows, 0), np.int64),
            none,
        )

    def write(self, layer: int, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Put k [B, H, M, D] and v at the provisional slots from `start` on; return keys and values [B, H, reach, D]."""
        nodes = start + k.shape[2]
        self.layout.reserve(self.bound, nodes)
        self.layout.write(layer, self.length, self.level, start, k, v)
        return self.layout.view(layer, self.used + nodes)

    def keep(self, tree: TokenTree, path: Tensor) -> None:
        """Settle the nodes where path [B, N] is True: move them to the front, forget the others.

        `path` must be closed under parents. On a chain nothing moves: its nodes already stand in order.
        """
        if not tree.linear:
            self.layout.reserve(self.bound, tree.size)
            to = self.length[:, None] + torch.arange(tree.size, device=self.length.device)
            self.layout.move(to.gather(1, path_first(path)), to)
        self.length = self.length + path.sum(1)
        self.bound, self.used, self.level = self.bound + tree.size, self.used + tree.size, None

    def trust(self, host: np.ndarray, filled: np.ndarray) -> None:
        """The host vouches that the first `filled` [B] tokens of each row of `host` [B, S] are settled now."""
        most = int(filled.max(initial=0))
        self.known, self.filled, self.bound = host[:, :most].copy(), filled, filled
        self.length = torch.from_numpy(filled).to(self.length.device)
        self.used = most
        self.level = most if most == int(filled.min(initial=most)) else None
        self.layout.settle(self.known, filled)

    def file(self, feature: Tensor, slot: Tensor, real: Tensor) -> None:
        """Keep features [B, M, F] of the tokens at slots [B, M] where `real`, for rows that will share them."""
        self.layout.file(feature, slot, real)

    def recall(self, row: int, count: int) -> Tensor:
        """[count, F] what was filed of a row's first tokens."""
        return self.layout.recall(row, count)

    def agree(self, context: Context) -> None:
        """Trust only the common prefix of what is known to be settled and what is committed now, the pending token
        left out. From this one rule follow swapping drafters, rewinding, resuming and reuse of a common beginning."""
        fresh = self.seat(context.who) if context.who else []
        if len(self.filled) != context.rows:
            raise ValueError(
                f"a cache of {len(self.filled)} rows cannot follow a batch of {context.rows}: open another one"
            )
        n = min(self.known.shape[1], context.host.shape[1])
        same = (self.known[:, :n] == context.host[:, :n]).cumprod(1).sum(1)
        goal = np.array(context.lengths) - 1
        settled = np.minimum(np.minimum(self.filled, same), goal)
        for b in range(context.rows):
            if settled[b] and not self.layout.sound(b, int(settled[b])):
                settled[b] = 0
        for b in fresh:
            if not settled[b] and goal[b]:
                settled[b] = self.layout.adopt(b, context.host[b, : goal[b]])
                self.found[context.who[b]] = int(settled[b])
        self.trust(context.host, settled)

    def seat(self, who: tuple[Hashable, ...]) -> list[int]:
        """Make row b the one of who[b]. Rows of others are put aside where the layout can do that, and are else there for
        newcomers, whose text may begin like theirs. Returns the rows in which nothing is settled."""
        if who != self.seats:
            place = {name: b for b, name in enumerate(self.seats)}
            if not self.seats:  # nobody has said yet whose rows they are
                place = dict(zip(who, range(len(self.filled)), strict=False))
            for b, name in enumerate(self.seats):
                if name not in who and (parked := self.layout.park(b)) is not None:
                    self.parked[name] = self.known[b, : self.filled[b]].copy(), parked
            source = self.layout.seat([place.get(name) for name in who])
            texts = [self.known[:0].ravel() if b is None else self.known[b, : self.filled[b]] for b in source]
            for b, name in enumerate(who):
                if name in self.parked:
                    texts[b], parked = self.parked.pop(name)
                    self.layout.unpark(b, parked)
            known = np.zeros((len(who), max(map(len, texts), default=0)), np.int64)
            for row, text in zip(known, texts, strict=True):
                row[: len(text)] = text
            self.seats = who
            self.trust(known, np.array([len(text) for text in texts], np.int64))
        return [b for b, n in enumerate(self.filled) if not n]

    def release(self, who: Hashable) -> None:
        """Give back what `who` holds, seated or not."""
        self.found.pop(who, None)
        if who in self.parked:
            self.layout.free(self.parked.pop(who)[1])
        elif who in self.seats:
            self.seat(tuple(name for name in self.seats if name != who))
            if who in self.parked:
                self.layout.free(self.parked.pop(who)[1])

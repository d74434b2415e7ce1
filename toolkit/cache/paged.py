"""Rows as lists of pages: rows with a common beginning share it, and what a row no longer needs is there for others.

Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with PagedAttention", sections 4.2 to 4.4;
Zheng et al. 2024, "SGLang", section 3 (RadixAttention), for reuse across requests.

Letters: B rows, H heads, S slots, T tokens a page, P pages of a row, D head size, N nodes, M nodes just read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from toolkit.cache.layout import LayerSpec
from toolkit.cache.pool import JUNK, Pool
from toolkit.cache.prefix import Node, Prefixes
from toolkit.cache.slab import places


@dataclass(slots=True)
class Row:
    """Where one row's slots are: its pages in each pool, and the nodes of the prefix tree that its full pages are."""

    pages: list[list[int]]
    nodes: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Paged:
    """Answers the `Layout` socket.

    size    tokens a page
    count   pages; None grows without limit
    shared  full pages of settled tokens are kept for rows to come, until their room is wanted

    Layers with a window have a pool of their own, and give back what no later token looks at. Views are gathered page by
    page; the numbers in them are the slab's own. Raises NoPages when all pages are held.
    """

    size: int = 16
    count: int | None = None
    shared: bool = True
    pools: list[Pool] = field(default_factory=list, repr=False)
    windows: list[int | None] = field(default_factory=list, repr=False)  # how far back the layers of a pool look
    rows: list[Row] = field(default_factory=list, repr=False)
    prefixes: Prefixes = field(init=False, repr=False)
    _device: torch.device | str = field(default="cpu", init=False, repr=False)
    _features: tuple[int, LayerSpec] | None = field(default=None, init=False, repr=False)  # their pool and kind
    _place: dict[int, tuple[int, LayerSpec, int]] = field(default_factory=dict, init=False, repr=False)
    _room: int = field(default=0, init=False, repr=False)  # provisional slots that every row has room for ...
    _room_of: np.ndarray | None = field(default=None, init=False, repr=False)  # ... after so many settled ones
    _tables: dict[tuple[int, int], Tensor] = field(default_factory=dict, init=False, repr=False)
    _slots: dict[tuple[int, int, int], Tensor] = field(default_factory=dict, init=False, repr=False)
    _slots_of: Tensor | None = field(default=None, init=False, repr=False)  # the lengths that `_slots` are for

    def __post_init__(self) -> None:
        if self.size < 1 or (self.count is not None and self.count < 1):
            raise ValueError(
                f"a paged cache needs pages of at least 1 token, and at least 1 page; got {self.size} and {self.count}"
            )
        self.prefixes = Prefixes(self.size)

    # ---- the Layout socket ---------------------------------------------------------------------------------------

    def open(self, specs: dict[int, LayerSpec], rows: int, slots: int, device: torch.device) -> None:
        self._device = device
        count = self.count if self.count is not None else max(1, rows * -(-slots // self.size))
        kinds = dict.fromkeys(specs.values())
        for window in dict.fromkeys(spec.window for spec in kinds):
            pool = Pool(self.size, count, self.count is None)
            pool.open({s: sum(x == s for x in specs.values()) for s in kinds if s.window == window})
            self.pools.append(pool)
            self.windows.append(window)
        for layer, (spec, n) in places(specs).items():
            self._place[layer] = self.windows.index(spec.window), spec, n
        self.rows = [self._fresh() for _ in range(rows)]

    def reserve(self, settled: np.ndarray, nodes: int) -> None:
        if nodes <= self._room and settled is self._room_of:
            return
        for row, n in zip(self.rows, settled.tolist(), strict=True):
            for g, pages in enumerate(row.pages):
                pool, last = self.pools[g], n // self.size
                if last < len(pages) and pool.held[pages[last]] > 1:  # somebody else wants what we would write over
                    own = pool.take(self.give_up)
                    pool.copy(pages[last], own)
                    pool.drop(pages[last])
                    pages[last] = own
                while len(pages) * self.size < n + nodes:
                    pages.append(pool.take(self.give_up))
        self._room, self._room_of = nodes, settled
        self._changed()

    def write(self, layer: int, length: Tensor, level: int | None, start: int, k: Tensor, v: Tensor) -> None:
        g, spec, n = self._place[layer]
        slot = self._slot(g, length, start, k.shape[2]).to(k.device)
        for memory, x in zip(self.pools[g].memory[spec], (k, v), strict=True):
            memory[n].view(-1, *memory.shape[3:]).index_copy_(0, slot, x.transpose(1, 2).flatten(0, 1))

    def view(self, layer: int, reach: int) -> tuple[Tensor, Tensor]:
        g, spec, n = self._place[layer]
        table = self._table(g, -(-reach // self.size))
        k, v = (self._gather(m[n], table.to(m.device), reach) for m in self.pools[g].memory[spec])
        return k, v

    def move(self, source: Tensor, to: Tensor) -> None:
        for g, pool in enumerate(self.pools):
            pool.move(self._flat(g, source).flatten(), self._flat(g, to).flatten())

    def settle(self, tokens: np.ndarray, settled: np.ndarray) -> None:
        self._room = 0
        for row, text, n in zip(self.rows, tokens, settled.tolist(), strict=True):
            for pool, pages in zip(self.pools, row.pages, strict=True):
                while len(pages) > n // self.size + 1:
                    pool.drop(pages.pop())
            if self.shared:
                self._share(row, text, n)
            for g, window in enumerate(self.windows):
                for j in range(self._first_wanted(window, n)):
                    if j < len(row.pages[g]):
                        self.pools[g].drop(row.pages[g][j])
                        row.pages[g][j] = JUNK
        self._changed()

    def sound(self, b: int, settled: int) -> bool:
        return all(
            JUNK not in pages[self._first_wanted(window, settled) : -(-settled // self.size)]
            for window, pages in zip(self.windows, self.rows[b].pages, strict=True)
        )

    def seat(self, source: Sequence[int | None]) -> list[int | None]:
        old = self.rows
        self.rows = [self._fresh() if b is None else old[b] for b in source]
        self._room = 0
        self._changed()
        return list(source)

    def park(self, b: int) -> Row:
        return self.rows[b]

    def unpark(self, b: int, parked: Row) -> None:
        self.rows[b] = parked
        self._changed()

    def free(self, parked: Row) -> None:
        for pool, pages in zip(self.pools, parked.pages, strict=True):
            for page in pages:
                pool.drop(page)

    def file(self, feature: Tensor, slot: Tensor, real: Tensor) -> None:
        """Features are one more layer, in pages that no window drops."""
        if not self.shared:
            return
        spec = LayerSpec(1, feature.shape[-1], 0, feature.device, feature.dtype)
        if self._features is None or self._features[1] != spec:
            self._open_features(spec)
        assert self._features is not None
        g = self._features[0]
        at = self._flat(g, slot.clamp(max=self._reach(g) - 1)).where(real, JUNK).flatten()
        memory = self.pools[g].memory[spec][0][0]  # [1 + P, T, 1, F]
        memory.view(-1, feature.shape[-1]).index_copy_(0, at, feature.flatten(0, 1))

    def recall(self, b: int, count: int) -> Tensor:
        assert self._features is not None
        g, spec = self._features
        table = torch.tensor(self.rows[b].pages[g], device=spec.device)
        return self.pools[g].memory[spec][0][0].index_select(0, table).flatten(0, 2)[:count]

    def adopt(self, b: int, tokens: np.ndarray) -> int:
        path = self.match(tokens)
        row, n = self.rows[b], len(path) * self.size
        self.free(row)
        for g, (pool, window) in enumerate(zip(self.pools, self.windows, strict=True)):
            first = self._first_wanted(window, n)
            row.pages[g] = [node.pages[g] if j >= first else JUNK for j, node in enumerate(path)]
            for page in row.pages[g]:
                pool.hold(page)
        row.nodes = path
        self._changed()
        return n

    # ---- the prefix tree -----------------------------------------------------------------------------------------

    def match(self, tokens: np.ndarray) -> list[Node]:
        """The shared pages that a row with these tokens [n] can begin with."""
        path = self.prefixes.find(tokens) if self.shared else []
        while path and not self._usable(path):
            path.pop()
        return path

    def give_up(self) -> bool:
        """Free the least recently used page that nobody but the prefix tree holds; False when there is none."""
        for leaf in self.prefixes.leaves():
            if self.idle(leaf):
                self._forget(leaf)
                return True
        return False

    def forget_prefixes(self) -> None:
        """Forget what is kept for rows to come."""
        for node in reversed(list(self.prefixes.nodes())):
            self._forget(node)
        for row in self.rows:
            row.nodes.clear()

    # ---- within --------------------------------------------------------------------------------------------------

    def _open_features(self, spec: LayerSpec) -> None:
        """Memory for features. Pages that were shared before have none, so they are not found any more."""
        self.forget_prefixes()
        if None not in self.windows:
            pool = Pool(self.size, self.pools[0].count, self.count is None)
            pool.open({})
            self.pools.append(pool)
            self.windows.append(None)
            for row in self.rows:  # every row has its slots there, too
                row.pages.append([pool.take(self.give_up) for _ in row.pages[0]])
        g = self.windows.index(None)
        if self._features:
            del self.pools[g].memory[self._features[1]]
        self.pools[g].add(spec, 1)
        self._features = g, spec
        self._changed()

    def _reach(self, g: int) -> int:
        """Slots that the longest row has pages for."""
        return self.size * max((len(row.pages[g]) for row in self.rows), default=0)

    def _fresh(self) -> Row:
        return Row([[] for _ in self.pools])

    def idle(self, node: Node) -> bool:
        """Does nobody hold its pages but the tree."""
        return all(page == JUNK or pool.held[page] == 1 for pool, page in zip(self.pools, node.pages, strict=True))

    def _forget(self, leaf: Node) -> None:
        self.prefixes.forget(leaf)
        for pool, page in zip(self.pools, leaf.pages, strict=True):
            pool.drop(page)

    def _share(self, row: Row, text: np.ndarray, n: int) -> None:
        """Put the full pages of the row's first n tokens into the prefix tree. Where another row was first, each keeps its
        own page."""
        full = n // self.size
        del row.nodes[full:]
        while row.nodes and row.nodes[-1].gone:  # given up since, with all that stood below
            row.nodes.pop()
        for j in range(len(row.nodes), full):
            tokens = tuple(text[j * self.size : (j + 1) * self.size].tolist())
            above = row.nodes[-1] if row.nodes else None
            node, new = self.prefixes.put(above, tokens, [pages[j] for pages in row.pages])
            if new:
                for pool, page in zip(self.pools, node.pages, strict=True):
                    pool.hold(page)
            row.nodes.append(node)

    def _first_wanted(self, window: int | None, n: int) -> int:
        """The first page that a token after the first n looks at."""
        return 0 if window is None else max(0, n - window + 1) // self.size

    def _usable(self, path: list[Node]) -> bool:
        n = len(path) * self.size
        return all(
            node.pages[g] != JUNK
            for g, window in enumerate(self.windows)
            for node in path[self._first_wanted(window, n) :]
        )

    def _changed(self) -> None:
        self._tables.clear()
        self._slots.clear()

    def _table(self, g: int, pages: int) -> Tensor:
        """[B, P] the first pages of each row, junk where it has fewer."""
        if (g, pages) not in self._tables:
            rows = [(row.pages[g] + [JUNK] * pages)[:pages] for row in self.rows]
            self._tables[g, pages] = torch.tensor(rows, device=self._device)
        return self._tables[g, pages]

    def _slot(self, g: int, length: Tensor, start: int, n: int) -> Tensor:
        """[B * n] where the nodes from `start` on stand in the memory; the same for all layers of a pass."""
        if self._slots_of is not length:
            self._slots.clear()
            self._slots_of = length
        if (g, start, n) not in self._slots:
            at = length[:, None] + torch.arange(start, start + n, device=length.device)
            self._slots[g, start, n] = self._flat(g, at).flatten()
        return self._slots[g, start, n]

    def _flat(self, g: int, slot: Tensor) -> Tensor:
        """[B, n] places in the memory of slots [B, n]."""
        table = self._table(g, self._reach(g) // self.size)
        return table.gather(1, slot // self.size) * self.size + slot % self.size

    def _gather(self, layer: Tensor, table: Tensor, reach: int) -> Tensor:
        """[B, H, reach, D] from one layer's [pages, T, H, D] and a table [B, P]."""
        found = layer.index_select(0, table.flatten())
        return found.view(len(table), -1, *layer.shape[2:])[:, :reach].transpose(1, 2)

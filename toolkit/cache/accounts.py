"""What a store of pages holds for whom, and whether it all adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from toolkit.cache.paged import Paged, Row
from toolkit.cache.pool import JUNK
from toolkit.cache.store import Store


@dataclass(frozen=True, slots=True)
class Accounts:
    """A store and its pages. Pages are counted in the pool of the layers that look furthest back, which fills first."""

    store: Store
    pages: Paged

    @classmethod
    def of(cls, store: Store) -> Accounts:
        """Raises TypeError for a store that is not made of pages."""
        if not isinstance(store.layout, Paged):
            raise TypeError(f"pages can be counted in a paged store alone; this one is a {type(store.layout).__name__}")
        return cls(store, store.layout)

    def row(self, who: Hashable) -> tuple[Row, int] | None:
        """A request's pages and how many of its tokens are settled, seated or not."""
        if who in self.store.parked:
            tokens, row = self.store.parked[who]
            return row, len(tokens)
        if who in self.store.seats:
            b = self.store.seats.index(who)
            return self.pages.rows[b], int(self.store.filled[b])
        return None

    def settled(self, who: Hashable) -> int:
        """Tokens of a request that are in the cache."""
        found = self.row(who)
        return found[1] if found else 0

    def needed(self, who: Hashable, nodes: int) -> int:
        """More pages that room for so many nodes after a request's settled tokens takes, in the pool that needs most: max(0,
        ceil((nodes - slack) / page)), and one more where the last page is shared and must be copied."""
        size = self.pages.size
        found = self.row(who)
        if found is None:
            return -(-nodes // size)
        row, settled = found
        most = 0
        for pool, pages in zip(self.pages.pools, row.pages, strict=True):
            last = settled // size
            copied = last < len(pages) and pool.held[pages[last]] > 1
            slack = len(pages) * size - settled
            most = max(most, max(0, -(-(nodes - slack) // size)) + int(copied))
        return most

    def found(self, tokens: np.ndarray) -> tuple[int, int]:
        """Pages of the prefix cache that a request with these tokens [n] would begin with, and how many of them nobody holds,
        so that they would not be spare any more."""
        path = self.pages.match(tokens)
        return len(path), sum(self.pages.idle(node) for node in path)

    def fork(self, who: Hashable, new: Hashable) -> None:
        """Let a newcomer begin with all that a request has settled; whoever writes first copies a partly filled page. Raises
        KeyError for one that holds nothing."""
        found = self.row(who)
        if found is None:
            raise KeyError(f"{who!r} holds nothing that could be shared")
        row, settled = found
        tokens = self.store.parked[who][0] if who in self.store.parked else None
        if tokens is None:
            tokens = self.store.known[self.store.seats.index(who), :settled].copy()
        for pool, pages in zip(self.pages.pools, row.pages, strict=True):
            for page in pages:
                pool.hold(page)
        self.store.parked[new] = tokens, Row([list(pages) for pages in row.pages], list(row.nodes))

    @property
    def total(self) -> int:
        """Pages of the smallest pool."""
        return min(pool.count for pool in self.pages.pools)

    @property
    def spare(self) -> int:
        """Pages that may be had: free ones, and those that only the prefix tree holds. Unlimited pools count as they are."""
        pages = self.pages
        kept = [0] * len(pages.pools)
        fixed: set[int] = set()  # nodes with something below that is in use
        for node in reversed(list(pages.prefixes.nodes())):
            if id(node) in fixed or not pages.idle(node):
                fixed.add(id(node.above))
                continue
            for g, page in enumerate(node.pages):
                kept[g] += page != JUNK
        return min((len(pool.free) + n for pool, n in zip(pages.pools, kept, strict=True)), default=0)

    def has(self, pages: int) -> bool:
        """Could so many pages be had."""
        free = min((len(pool.free) for pool in self.pages.pools), default=0)
        return pages <= free or pages <= self.spare  # counting the tree takes longer

    @property
    def cached(self) -> int:
        """Pages that nobody but the prefix cache holds."""
        return sum(self.pages.idle(node) for node in self.pages.prefixes.nodes())

    @property
    def held(self) -> int:
        """Pages that requests hold, shared ones once."""
        pool = self.pages.pools[0]
        return pool.count - len(pool.free) - self.cached

    def holders(self) -> list[list[Hashable]]:
        """Who holds each page of the first pool."""
        out: list[list[Hashable]] = [[] for _ in range(self.pages.pools[0].count)]
        for who in (*self.store.seats, *self.store.parked):
            found = self.row(who)
            for page in found[0].pages[0] if found else ():
                if page != JUNK:
                    out[page - 1].append(who)
        return out

    def check(self) -> None:
        """Raise RuntimeError unless every page is free or held, and held as often as there are holders."""
        rows = [*self.pages.rows, *(row for _, row in self.store.parked.values())]
        for g, pool in enumerate(self.pages.pools):
            count = Counter(page for row in rows for page in row.pages[g] if page != JUNK)
            count.update(page for node in self.pages.prefixes.nodes() if (page := node.pages[g]) != JUNK)
            wrong = [page for page in range(1, pool.count + 1) if pool.held[page] != count[page]]
            free = sorted(pool.free)
            if wrong or free != [page for page in range(1, pool.count + 1) if not count[page]]:
                raise RuntimeError(
                    f"pages {wrong[:5]} of pool {g} are held otherwise than counted, or free ones are lost"
                )
        for b, row in enumerate(self.pages.rows):
            if any(len(pages) * self.pages.size < self.store.filled[b] for pages in row.pages):
                raise RuntimeError(f"row {b} has {self.store.filled[b]} settled tokens and pages for fewer")

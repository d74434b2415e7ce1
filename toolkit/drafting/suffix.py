"""Suffix decoding: continue the text the way its present ending went on before, the more often the likelier.

Oliaro et al. 2024 (SuffixDecoding), the scoring and the adaptive size of its section on speculation trees. For an
ending of p tokens, a node's score is the product of C(child) / C(parent) along its path, C counting earlier places where
the ending was followed by that path; the best nodes, `factor * p` at most, make a tree; of all p the tree with the
largest total score goes out.

Differs from the paper: it counts by scanning the tokens in every step, instead of keeping a suffix tree of them. So for a
row's own text nothing is kept, and swaps and rewinds need no care. With `memory` the texts of earlier requests and of the
batch's other rows are looked through as well, as many tokens of them as asked for, the latest.
Cost: `longest` passes over n tokens on the host, and nodes times places for each p; no device work.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from toolkit.protocols import Context, Proposal
from toolkit.tree import TokenTree

BREAK = -1  # between texts: no token follows it, and none ends with it


@dataclass(slots=True)
class Suffix:
    """longest: endings up to this are tried; factor: nodes for each token of the ending; budget: nodes at most; memory:
    tokens of other texts that are looked through, 0 for none.

    Raises ValueError for values that leave no guess.
    """

    longest: int = 16
    factor: float = 2.0
    budget: int = 24
    memory: int = 0
    past: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)  # earlier texts, with BREAKs
    _now: list[np.ndarray] = field(default_factory=list, init=False, repr=False)  # the rows' texts, as seen last

    def __post_init__(self) -> None:
        for name in ("longest", "factor", "budget"):
            if getattr(self, name) < 1:
                raise ValueError(f"Suffix needs {name} of at least 1; got {getattr(self, name)}")
        if self.memory < 0:
            raise ValueError(f"memory is a number of tokens, at least 0; got {self.memory}")

    def propose(self, context: Context) -> Proposal:
        rows = [context.row(b) for b in range(context.rows)]
        if self.memory:
            self._remember(rows)
        paths = [self.guesses(rows[b], context.room[b], self._others(rows, b)) for b in range(context.rows)]
        return Proposal(TokenTree.from_paths(context.pending, paths))

    def guesses(self, text: np.ndarray, room: int, others: np.ndarray | None = None) -> list[tuple[int, ...]]:
        """Paths of nodes that continue text [n], the likeliest first and each after its parent, none beyond `room`; counted
        in `others` [k] too, texts with BREAKs between them."""
        if room < 1 or len(text) == 0:
            return []
        whole = text if others is None or len(others) == 0 else np.concatenate([others, [BREAK], text])
        n = len(whole)
        best, total = [], 0.0
        places = np.flatnonzero(whole[: n - 1] == whole[-1])  # an earlier copy of the ending ends here
        for p in range(1, min(self.longest, len(text)) + 1):
            if p > 1:
                places = places[places >= p - 1]
                places = places[whole[places - (p - 1)] == whole[n - p]]
            if len(places) == 0:
                break
            paths, score = _tree(whole, places + 1, min(self.budget, int(self.factor * p)), room)
            if score >= total:
                best, total = paths, score
        return best

    def _remember(self, rows: list[np.ndarray]) -> None:
        """Put the rows' last texts away once other ones have come in their place."""
        for b, old in enumerate(self._now):
            if b >= len(rows) or not np.array_equal(rows[b][: len(old)], old):
                self.past = np.concatenate([self.past, [BREAK], old])[-self.memory :]
        self._now = [row.copy() for row in rows]

    def _others(self, rows: list[np.ndarray], b: int) -> np.ndarray:
        if not self.memory:
            return self.past
        beside = [x for i, row in enumerate(rows) if i != b for x in (np.array([BREAK]), row)]
        return np.concatenate([self.past, *beside])[-self.memory :]


def _tree(text: np.ndarray, starts: np.ndarray, nodes: int, room: int) -> tuple[list[tuple[int, ...]], float]:
    """The `nodes` likeliest continuations counted from the places `starts`, and the sum of their scores."""
    chosen: list[tuple[int, ...]] = []
    total, made = 0.0, 0
    heap: list[tuple[float, int, tuple[int, ...], np.ndarray]] = [(-1.0, 0, (), starts)]
    while heap and len(chosen) < nodes:
        score, _, path, at = heapq.heappop(heap)
        if path:
            chosen.append(path)
            total -= score
        inside = at[at < len(text)]
        inside = inside[text[inside] != BREAK]
        if len(path) == room or len(inside) == 0:
            continue
        for token, count in zip(*np.unique(text[inside], return_counts=True), strict=True):
            made += 1  # breaks ties before arrays are compared
            here = inside[text[inside] == token] + 1
            heapq.heappush(heap, (score * int(count) / len(at), made, (*path, int(token)), here))
    return chosen, total

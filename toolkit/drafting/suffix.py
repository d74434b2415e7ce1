"""Suffix decoding: continue the text the way its present ending went on before, the more often the likelier.

Oliaro et al. 2024 (SuffixDecoding), the scoring and the adaptive size of its section on speculation trees. For an
ending of p tokens, a node's score is the product of C(child) / C(parent) along its path, C counting earlier places where
the ending was followed by that path; the best nodes, `factor * p` at most, make a tree; of all p the tree with the
largest total score goes out.

Differs from the paper: it looks only at the row's own committed tokens, and counts by scanning them in every step,
instead of keeping a suffix tree over past requests. So nothing is kept, and swaps and rewinds need no care.
Cost: `longest` passes over n tokens on the host, and nodes times places for each p; no device work.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from toolkit.protocols import Context, Proposal
from toolkit.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Suffix:
    """longest: endings up to this are tried; factor: nodes for each token of the ending; budget: nodes at most.

    Raises ValueError for values that leave no guess.
    """

    longest: int = 16
    factor: float = 2.0
    budget: int = 24

    def __post_init__(self) -> None:
        for name in ("longest", "factor", "budget"):
            if getattr(self, name) < 1:
                raise ValueError(f"Suffix needs {name} of at least 1; got {getattr(self, name)}")

    def propose(self, context: Context) -> Proposal:
        paths = [self.guesses(context.row(b), context.room[b]) for b in range(context.rows)]
        return Proposal(TokenTree.from_paths(context.pending, paths))

    def guesses(self, text: np.ndarray, room: int) -> list[tuple[int, ...]]:
        """Paths of nodes that continue text [n], the likeliest first and each after its parent, none beyond `room`."""
        n = len(text)
        if room < 1 or n < 2:
            return []
        best, total = [], 0.0
        places = np.flatnonzero(text[: n - 1] == text[-1])  # an earlier copy of the ending ends here
        for p in range(1, min(self.longest, n - 1) + 1):
            if p > 1:
                places = places[places >= p - 1]
                places = places[text[places - (p - 1)] == text[n - p]]
            if len(places) == 0:
                break
            paths, score = _tree(text, places + 1, min(self.budget, int(self.factor * p)), room)
            if score >= total:
                best, total = paths, score
        return best


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
        if len(path) == room or len(inside) == 0:
            continue
        for token, count in zip(*np.unique(text[inside], return_counts=True), strict=True):
            made += 1  # breaks ties before arrays are compared
            here = inside[text[inside] == token] + 1
            heapq.heappush(heap, (score * int(count) / len(at), made, (*path, int(token)), here))
    return chosen, total

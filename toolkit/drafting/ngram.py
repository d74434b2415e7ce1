"""Guess that the text repeats itself: find where its last tokens stood before and copy what came next.

Prompt lookup decoding (Saxena 2023; LLMA, Yang et al. 2023). Differences: the longest matching suffix wins, the latest
place among equals, and several different continuations may go out as branches of one tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from toolkit.protocols import Context, Proposal
from toolkit.tree import TokenTree


@dataclass(frozen=True, slots=True)
class NGram:
    """Looks back over each row's own committed tokens, on the host: no model, no device work, no sync.

    longest   suffix lengths up to this are told apart; shortest: a shorter match than this guesses nothing.
    length    tokens copied from each place; branches: how many places, at most.
    Raises ValueError for counts below one and shortest > longest.
    """

    longest: int = 4
    shortest: int = 2
    length: int = 10
    branches: int = 1

    def __post_init__(self) -> None:
        for name in ("longest", "shortest", "length", "branches"):
            if getattr(self, name) < 1:
                raise ValueError(f"NGram needs {name} of at least 1; got {getattr(self, name)}")
        if self.shortest > self.longest:
            raise ValueError(f"NGram needs shortest <= longest; got {self.shortest} > {self.longest}")

    def propose(self, context: Context) -> Proposal:
        paths = [self.guesses(context.row(b), context.room[b]) for b in range(context.rows)]
        return Proposal(TokenTree.from_paths(context.pending, paths))

    def guesses(self, text: np.ndarray, room: int) -> list[list[int]]:
        """Continuations of text [n], the most trusted first, none longer than `room`."""
        places = self.places(text)[: self.branches] if room > 0 else []
        return [text[at : at + min(self.length, room)].tolist() for at in places]

    def places(self, text: np.ndarray) -> list[int]:
        """Where the copies would begin: longest suffix match first, then the latest."""
        n = len(text)
        if n < 2:
            return []
        ends = np.flatnonzero(text[: n - 1] == text[-1])  # a match ends here; the tail itself is left out
        match = np.ones(len(ends), np.int64)
        alive = np.ones(len(ends), bool)
        for back in range(1, min(self.longest, n)):
            alive &= (ends >= back) & (text[ends - back] == text[n - 1 - back])
            match += alive
        good = match >= self.shortest
        order = np.lexsort((-ends[good], -match[good]))
        return (ends[good][order] + 1).tolist()

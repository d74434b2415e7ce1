"""Shapes that are chosen anew in every step: by how many rows are running, and by what that costs.

A pass over more nodes costs nothing while memory is the limit and more when arithmetic is, and every running row brings its
nodes. So a long draft pays for one row and not for thirty-two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from toolkit.drafting.costs import expected_tokens
from toolkit.drafting.shapes import Chain
from toolkit.protocols import Context, Shape


@dataclass(frozen=True, slots=True)
class ByBatch:
    """table: a number of running rows to the shape used up to it, for instance {2: Chain(6), 8: Chain(3), 32: Chain(1)}.
    More rows than the table knows get no guesses. Raises ValueError for an empty table and counts below one."""

    table: Mapping[int, Shape]

    def __post_init__(self) -> None:
        if not self.table or min(self.table) < 1:
            raise ValueError(f"ByBatch needs shapes for numbers of rows from 1 on; got {dict(self.table)}")

    def pick(self, context: Context) -> Shape | None:
        rows = running(context)
        return next((self.table[most] for most in sorted(self.table) if rows <= most), None)


@dataclass(frozen=True, slots=True)
class ByCost:
    """The chain length with the most tokens a second, for the rows that run now (Leviathan et al. 2023, section 3.3, with
    a measured cost curve in the place of a constant).

    alpha    how often a guess is accepted, given that those before it were
    target   milliseconds of a target pass over that many nodes of all rows, for instance `trace.measures.cost_curve`
    draft    milliseconds of one guess, of all rows together
    most     the longest chain; 0 guesses are made where drafting does not pay
    Raises ValueError for values out of range.
    """

    alpha: float
    target: Callable[[int], float]
    draft: float
    most: int = 16
    coupled: bool = False

    def __post_init__(self) -> None:
        expected_tokens(self.alpha, 0)
        if self.draft < 0 or self.most < 1:
            raise ValueError(
                f"ByCost needs a time of at least 0 and a length of at least 1; got {self.draft} and {self.most}"
            )

    def length(self, rows: int) -> int:
        """The best length for `rows` running rows, the smallest among equals."""

        def rate(length: int) -> float:
            return expected_tokens(self.alpha, length) / (self.draft * length + self.target(rows * (length + 1)))

        return max(range(self.most + 1), key=rate)

    def pick(self, context: Context) -> Shape | None:
        length = self.length(max(1, running(context)))
        return Chain(length, self.coupled) if length else None


def running(context: Context) -> int:
    """Rows that can still commit a guess."""
    return sum(room > 0 for room in context.room)

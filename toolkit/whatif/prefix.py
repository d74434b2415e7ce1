"""The part of a recorded tree that a smaller shape would have kept."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.trace import RowRecord


@dataclass(frozen=True, slots=True)
class Prefix:
    """None keeps all.

    levels    levels of guesses below the root
    siblings  children of a node, the first ones in draw order
    budget    guesses in all. Of certain ones with a known confidence those on the likeliest paths are kept, as shapes with a
              budget do; of others the first ones, for a choice by what was drawn would bias the rest.

    Raises ValueError for numbers below zero.
    """

    levels: int | None = None
    siblings: int | None = None
    budget: int | None = None

    def __post_init__(self) -> None:
        for name in ("levels", "siblings", "budget"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"a prefix needs {name} of at least 0, or None to keep all; got {value}")

    def nodes(self, record: RowRecord) -> tuple[int, ...]:
        """The kept nodes, rising, the root first, closed under parents."""
        depth, kept, children = record.depth, {0}, [0] * len(record.parent)
        for i, above in enumerate(record.parent):
            if i == 0 or above not in kept:
                continue
            inside = self.levels is None or depth[i] <= self.levels
            if inside and (self.siblings is None or children[above] < self.siblings):
                kept.add(i)
            children[above] += 1
        if self.budget is not None and len(kept) > 1 + self.budget:
            order = sorted(kept, key=lambda i: (-score[i], i)) if (score := _scores(record)) else sorted(kept)
            kept = set(order[: 1 + self.budget])
        return tuple(sorted(kept))


def _scores(record: RowRecord) -> list[float]:
    """The drafter's probability of each node's path; none where it may not choose."""
    if not record.confidence or (record.evidence and record.evidence.draw != "certain"):
        return []
    score = [1.0]
    for above, sure in zip(record.parent[1:], record.confidence[1:], strict=True):
        score.append(score[above] * min(sure, 1.0))
    return score

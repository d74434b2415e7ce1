"""What a drafter is worth, from the records of its steps.

All look at the children of kept nodes alone: of other guesses nobody knows what the target would have said.

- rank acceptance   P(the child of rank r is the accepted one | its parent was kept and it was drafted). Ranks follow the
                    drafter's own probability, siblings of equal or unknown probability their order. What `planned.optimal`
                    and `from_ranks` plan with.
- drawn rank        the same over all depths, siblings ranked in the order they were drawn in.
- target rank       where an accepted guess stood among the target's own likeliest tokens, as far as those were recorded.
- calibration       does a guess of confidence c come true in c of all cases: reliability by bins, and the expected
                    calibration error (Naeini et al. 2015; Guo et al. 2017).
- draft cost        milliseconds of drafting for each guess that was sent.
- cost curve        milliseconds of a target pass by its nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from statistics import median

from toolkit.trace.metrics import row_steps
from toolkit.trace.records import RowRecord, StepRecord


@dataclass(frozen=True, slots=True)
class Rate:
    """A frequency with its denominator."""

    reached: int
    accepted: int

    @property
    def rate(self) -> float:
        return self.accepted / self.reached if self.reached else nan

    def interval(self, z: float = 1.96) -> tuple[float, float]:
        """Wilson's score interval; z is in standard deviations. (0, 1) without cases."""
        n = self.reached
        if not n:
            return 0.0, 1.0
        middle = (self.accepted + z * z / 2) / (n + z * z)
        half = z / (n + z * z) * sqrt(self.accepted * (n - self.accepted) / n + z * z / 4)
        return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class Bin:
    """Guesses with confidence in [low, high): how sure the drafter was on average, and how often it was right."""

    low: float
    high: float
    confidence: float
    outcome: Rate


def rank_acceptance(steps: Sequence[StepRecord], row: int | None = None) -> list[list[Rate]]:
    """One list a depth from 1 on, in it one rate a rank from 0 on."""
    reached: Counter[tuple[int, int]] = Counter()
    accepted: Counter[tuple[int, int]] = Counter()
    for r in row_steps(steps, row):
        for depth, children in _children_of_the_path(r):
            kept = set(r.path)
            for rank, node in enumerate(sorted(children, key=lambda i: (-_confidence(r, i), i))):
                reached[depth, rank] += 1
                accepted[depth, rank] += node in kept
    depths = max((d for d, _ in reached), default=0)
    ranks = [1 + max(r for d, r in reached if d == depth) for depth in range(1, depths + 1)]
    return [
        [Rate(reached[depth, rank], accepted[depth, rank]) for rank in range(n)]
        for depth, n in zip(range(1, depths + 1), ranks, strict=True)
    ]


def drawn_rank_acceptance(steps: Sequence[StepRecord], row: int | None = None) -> list[Rate]:
    """One rate a drawn rank from 0 on."""
    reached, accepted = Counter[int](), Counter[int]()
    for r in row_steps(steps, row):
        for rank, right in drawn_ranks(r):
            reached[rank] += 1
            accepted[rank] += right
    return [Rate(reached[rank], accepted[rank]) for rank in range(max(reached, default=-1) + 1)]


def target_ranks(steps: Sequence[StepRecord], row: int | None = None) -> Counter[int]:
    """How many accepted guesses had which target rank, from 0 on; -1 counts those beyond the recorded tokens. Empty
    where the target's tokens were not recorded."""
    return Counter(rank for r in row_steps(steps, row) for rank in accepted_target_ranks(r))


def drawn_ranks(r: RowRecord) -> Iterator[tuple[int, bool]]:
    """For each child of a kept node: its drawn rank, and whether it was kept."""
    kept = set(r.path)
    for _, children in _children_of_the_path(r):
        for rank, node in enumerate(children):
            yield rank, node in kept


def accepted_target_ranks(r: RowRecord) -> Iterator[int]:
    """The target rank of each accepted guess, -1 beyond the recorded tokens; nothing where none were recorded."""
    if r.top:
        for parent, node in zip(r.path, r.path[1:], strict=False):
            yield next((i for i, (token, _) in enumerate(r.top[parent]) if token == r.token[node]), -1)


def sure_guesses(r: RowRecord) -> Iterator[tuple[float, bool]]:
    """For each child of a kept node: the drafter's confidence in it, and whether it was kept. Nothing where the drafter
    names no confidence."""
    if r.confidence:
        kept = set(r.path)
        for _, children in _children_of_the_path(r):
            for node in children:
                yield r.confidence[node], node in kept


def drawn_guesses(r: RowRecord) -> Iterator[tuple[float, bool]]:
    """For each child of a kept node that was drawn by chance: the probability q it was drawn with, and whether it was
    kept. Nothing where all guesses were certain."""
    kept = set(r.path)
    for _, children in _children_of_the_path(r):
        for node in children:
            if r.q[node] < 1:
                yield r.q[node], node in kept


def reliability(steps: Sequence[StepRecord], row: int | None = None, *, bins: int = 10) -> list[Bin]:
    """The bins of equal width that hold any guess; none where the drafter names no confidence. Raises ValueError for
    bins below one."""
    if bins < 1:
        raise ValueError(f"reliability needs at least one bin; got {bins}")
    count, right = Counter[int](), Counter[int]()
    sure: dict[int, float] = {}
    for r in row_steps(steps, row):
        for confidence, kept in sure_guesses(r):
            b = min(bins - 1, int(confidence * bins))
            count[b] += 1
            right[b] += kept
            sure[b] = sure.get(b, 0.0) + confidence
    return [Bin(b / bins, (b + 1) / bins, sure[b] / count[b], Rate(count[b], right[b])) for b in sorted(count)]


def calibration_error(steps: Sequence[StepRecord], row: int | None = None, *, bins: int = 10) -> float:
    """Expected calibration error, 0..1: the bins' gaps between confidence and frequency, weighted by their guesses. NaN
    where the drafter names no confidence."""
    return error_of(reliability(steps, row, bins=bins))


def error_of(found: Sequence[Bin]) -> float:
    """`calibration_error` of these bins."""
    total = sum(b.outcome.reached for b in found)
    return sum(b.outcome.reached * abs(b.confidence - b.outcome.rate) for b in found) / total if total else nan


def draft_ms_per_guess(steps: Sequence[StepRecord]) -> float:
    """Milliseconds of drafting for each guess sent, over all rows; NaN when nothing was guessed."""
    guesses = sum(len(r.token) - 1 for r in row_steps(steps))
    return sum(s.ms.get("draft", 0.0) for s in steps) / guesses if guesses else nan


def cost_curve(steps: Sequence[StepRecord]) -> Callable[[int], float]:
    """Milliseconds of a target pass by its number of nodes, those of all running rows together: medians of what was
    measured, with straight lines between them, level beyond the smallest and rising by the last slope beyond the largest.
    Raises ValueError without steps."""
    seen: dict[int, list[float]] = {}
    for s in steps:
        seen.setdefault(s.nodes * sum(r is not None for r in s.rows), []).append(s.ms.get("target", 0.0))
    if not seen:
        raise ValueError("a cost curve needs steps: run some with short and some with long drafts")
    known = [(n, median(times)) for n, times in sorted(seen.items())]

    def cost(nodes: int) -> float:
        if nodes <= known[0][0] or len(known) == 1:
            return known[0][1]
        right = next((i for i, (n, _) in enumerate(known) if n >= nodes), len(known) - 1)
        (a, low), (b, high) = known[right - 1], known[right]
        return max(low + (high - low) * (nodes - a) / (b - a), min(low, high))

    return cost


def _children_of_the_path(r: RowRecord) -> Iterator[tuple[int, list[int]]]:
    """For each kept node with children: their depth and their indices."""
    for depth, node in enumerate(r.path, start=1):
        if children := [i for i, parent in enumerate(r.parent) if parent == node]:
            yield depth, children


def _confidence(r: RowRecord, node: int) -> float:
    return r.confidence[node] if r.confidence else 0.0

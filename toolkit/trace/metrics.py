"""The numbers of the field, each under one name and with one definition.

- acceptance length   tokens committed per row and target pass, the bonus or correction counted (tau in the EAGLE
                      papers). Ratio of totals, not a mean of means.
- accepted per step   the same without the bonus: accepted drafts per row and target pass.
- acceptance by depth P(a node of depth d is accepted | the path before it was accepted and depth d was drafted): the
                      n-alpha of the EAGLE papers, on chains and trees.
- prefix acceptance   P(at least d drafts are accepted), over all row steps.
- draft token acceptance  accepted / drafted nodes. Depends on the tree's size: compare only equal shapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from toolkit.trace.records import RowRecord, StepRecord


def row_steps(steps: Sequence[StepRecord], row: int | None = None) -> Iterator[RowRecord]:
    """Every row's entry in every step, or those of one row."""
    for step in steps:
        for b, entry in enumerate(step.rows):
            if entry is not None and row in (None, b):
                yield entry


@dataclass(frozen=True, slots=True)
class DepthAcceptance:
    depth: int
    reached: int  # row steps in which the path before was accepted and this depth was drafted
    accepted: int

    @property
    def rate(self) -> float:
        return self.accepted / self.reached if self.reached else float("nan")


def acceptance_length(steps: Sequence[StepRecord], row: int | None = None) -> float:
    """Tokens committed per row step, with the bonus; NaN without steps."""
    counts = [len(r.emitted) for r in row_steps(steps, row)]
    return sum(counts) / len(counts) if counts else float("nan")


def accepted_per_step(steps: Sequence[StepRecord], row: int | None = None) -> float:
    """Accepted drafts per row step, without bonus or correction; NaN without steps."""
    counts = [r.origins.count("accepted") for r in row_steps(steps, row)]
    return sum(counts) / len(counts) if counts else float("nan")


def draft_token_acceptance(steps: Sequence[StepRecord], row: int | None = None) -> float:
    """Accepted drafts per drafted node; NaN when nothing was drafted."""
    rows = list(row_steps(steps, row))
    drafted = sum(len(r.token) - 1 for r in rows)
    return sum(len(r.path) - 1 for r in rows) / drafted if drafted else float("nan")


def acceptance_by_depth(steps: Sequence[StepRecord], row: int | None = None) -> list[DepthAcceptance]:
    """One entry a depth from 1 on, with its conditional denominator."""
    reached: Counter[int] = Counter()
    accepted: Counter[int] = Counter()
    for r in row_steps(steps, row):
        path = r.path
        depth = r.depth
        accepted.update(range(1, len(path)))
        reached.update({depth[i] for i, parent in enumerate(r.parent) if parent in path})
    return [DepthAcceptance(d, reached[d], accepted[d]) for d in range(1, max(reached, default=0) + 1)]


def origins(steps: Sequence[StepRecord], row: int | None = None) -> Counter[str]:
    """How many committed tokens were accepted drafts, bonus tokens and corrections."""
    return Counter(o for r in row_steps(steps, row) for o in r.origins)


def phase_ms(steps: Sequence[StepRecord]) -> dict[str, float]:
    """Median milliseconds of each phase of a step."""
    names = dict.fromkeys(name for s in steps for name in s.ms)
    return {name: median(s.ms.get(name, 0.0) for s in steps) for name in names}

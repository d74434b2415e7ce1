"""The numbers of the field, each under one name and with one definition.

- acceptance length   tokens committed per row and target pass, the bonus or correction counted (tau in the EAGLE
                      papers). Ratio of totals, not a mean of means.
- accepted per step   the same without the bonus: accepted drafts per row and target pass.
- acceptance by depth P(a node of depth d is accepted | the path before it was accepted and depth d was drafted): the
                      n-alpha of the EAGLE papers, on chains and trees.
- prefix acceptance   P(at least d drafts are accepted), over all row steps; the rates of all depths add up to the mean
                      number of accepted drafts.
- draft token acceptance  accepted / drafted nodes. Depends on the tree's size: compare only equal shapes.
- drafted tokens      guesses sent to the target: real nodes without the roots.
- verified tokens     real nodes in target passes, the roots included.
- discarded tokens    drafted tokens that were not committed.
- floor               median milliseconds of a target pass over one node: what a step cannot go below. Measured on the
                      steps of one node among those given, never estimated.

Acceptance by depth, prefix acceptance and draft token acceptance speak of verdicts, all else of what was committed: the two
differ where a request ends inside an accepted run.

Wherever a function takes a `row`, a number is a place in the batch and a string the id of a request; where steps name no
requests, the row's number is its id. None is all rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from toolkit.trace.records import RowRecord, StepRecord


def who(step: StepRecord) -> tuple[str, ...]:
    """The id of each row's request."""
    return step.ids or tuple(map(str, range(len(step.rows))))


def row_steps(steps: Sequence[StepRecord], row: int | str | None = None) -> Iterator[RowRecord]:
    """Every row's entry in every step, or those of one row."""
    for step in steps:
        known = who(step) if isinstance(row, str) else range(len(step.rows))
        for name, entry in zip(known, step.rows, strict=True):
            if entry is not None and row in (None, name):
                yield entry


@dataclass(frozen=True, slots=True)
class DepthAcceptance:
    depth: int
    reached: int  # row steps in which the path before was accepted and this depth was drafted; all, for prefixes
    accepted: int

    @property
    def rate(self) -> float:
        return self.accepted / self.reached if self.reached else float("nan")


@dataclass(frozen=True, slots=True)
class Tokens:
    """What became of the tokens of some row steps.

    accepted    guesses that were committed
    bonus       tokens the target added where it had refused nothing
    correction  tokens it put in the place of a refused guess
    """

    drafted: int
    verified: int
    accepted: int
    bonus: int
    correction: int

    @property
    def row_steps(self) -> int:
        """Each has one root."""
        return self.verified - self.drafted

    @property
    def committed(self) -> int:
        return self.accepted + self.bonus + self.correction

    @property
    def discarded(self) -> int:
        return self.drafted - self.accepted

    @property
    def acceptance_length(self) -> float:
        return self.committed / self.row_steps if self.row_steps else float("nan")

    @property
    def accepted_per_step(self) -> float:
        return self.accepted / self.row_steps if self.row_steps else float("nan")


@dataclass(frozen=True, slots=True)
class PhaseMs:
    """The median milliseconds of a phase, and the number of steps it is the median of."""

    median: float
    steps: int


def acceptance_length(steps: Sequence[StepRecord], row: int | str | None = None) -> float:
    """Tokens committed per row step, with the bonus; NaN without steps."""
    counts = [len(r.emitted) for r in row_steps(steps, row)]
    return sum(counts) / len(counts) if counts else float("nan")


def accepted_per_step(steps: Sequence[StepRecord], row: int | str | None = None) -> float:
    """Accepted drafts per row step, without bonus or correction; NaN without steps."""
    counts = [r.origins.count("accepted") for r in row_steps(steps, row)]
    return sum(counts) / len(counts) if counts else float("nan")


def draft_token_acceptance(steps: Sequence[StepRecord], row: int | str | None = None) -> float:
    """Accepted drafts per drafted node; NaN when nothing was drafted."""
    rows = list(row_steps(steps, row))
    drafted = sum(len(r.token) - 1 for r in rows)
    return sum(len(r.path) - 1 for r in rows) / drafted if drafted else float("nan")


def acceptance_by_depth(steps: Sequence[StepRecord], row: int | str | None = None) -> list[DepthAcceptance]:
    """One entry a depth from 1 on, with its conditional denominator."""
    return by_depth(row_steps(steps, row))


def prefix_acceptance(steps: Sequence[StepRecord], row: int | str | None = None) -> list[DepthAcceptance]:
    """One entry a drafted depth from 1 on. All have the same denominator: a row step that drafted less accepted less."""
    rows = list(row_steps(steps, row))
    lengths = Counter(len(r.path) - 1 for r in rows)
    deepest = max((max(r.depth) for r in rows), default=0)
    found, accepted = [], len(rows)
    for d in range(1, deepest + 1):
        accepted -= lengths[d - 1]
        found.append(DepthAcceptance(d, len(rows), accepted))
    return found


def tokens(steps: Sequence[StepRecord], row: int | str | None = None) -> Tokens:
    """What became of all tokens, or of those of one row."""
    return counted(row_steps(steps, row))


def origins(steps: Sequence[StepRecord], row: int | str | None = None) -> Counter[str]:
    """How many committed tokens were accepted drafts, bonus tokens and corrections."""
    return Counter(o for r in row_steps(steps, row) for o in r.origins)


def phase_ms(steps: Sequence[StepRecord]) -> dict[str, float]:
    """Median milliseconds of each phase of a step."""
    names = dict.fromkeys(name for s in steps for name in s.ms)
    return {name: median(s.ms.get(name, 0.0) for s in steps) for name in names}


def phase_ms_by_rows(steps: Sequence[StepRecord]) -> dict[int, dict[str, PhaseMs]]:
    """What each phase takes by the number of rows in the batch, over the steps that had the phase; no step is left out as
    a warm-up."""
    seen: dict[int, dict[str, list[float]]] = {}
    for s in steps:
        phases = seen.setdefault(sum(r is not None for r in s.rows), {})
        for name, ms in s.ms.items():
            phases.setdefault(name, []).append(ms)
    return {
        rows: {name: PhaseMs(median(ms), len(ms)) for name, ms in phases.items()}
        for rows, phases in sorted(seen.items())
    }


def floor_ms(steps: Sequence[StepRecord]) -> PhaseMs | None:
    """The floor, and of how many steps of one node it is the median; None where there are none."""
    found = [s.ms["target"] for s in steps if s.nodes == 1 and "target" in s.ms]
    return PhaseMs(median(found), len(found)) if found else None


def plain_ms(step: StepRecord) -> float | None:
    """What plain decoding would have taken for a step of one node: its milliseconds without drafting and prefill. None
    for a step that carried guesses."""
    return sum(ms for name, ms in step.ms.items() if name not in ("draft", "prefill")) if step.nodes == 1 else None


def reached_depths(r: RowRecord) -> set[int]:
    """The depths that had a node whose path before it was kept."""
    path, depth = set(r.path), r.depth
    return {depth[i] for i, parent in enumerate(r.parent) if parent in path}


def by_depth(rows: Iterable[RowRecord]) -> list[DepthAcceptance]:
    """`acceptance_by_depth` of these row steps."""
    reached: Counter[int] = Counter()
    accepted: Counter[int] = Counter()
    for r in rows:
        accepted.update(range(1, len(r.path)))
        reached.update(reached_depths(r))
    return [DepthAcceptance(d, reached[d], accepted[d]) for d in range(1, max(reached, default=0) + 1)]


def counted(rows: Iterable[RowRecord]) -> Tokens:
    """`tokens` of these row steps."""
    came: Counter[str] = Counter()
    drafted = verified = 0
    for r in rows:
        came.update(r.origins)
        drafted += len(r.token) - 1
        verified += len(r.token)
    return Tokens(drafted, verified, came["accepted"], came["bonus"], came["correction"])

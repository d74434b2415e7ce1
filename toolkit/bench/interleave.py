"""Arms that take turns. On a shared machine a minute may be twice as slow as the next, so speeds are only compared
within one round, in which every arm runs once, in rotated order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

from toolkit.trace import StepRecord


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of an arm: the new tokens, how long it took in seconds, and the steps if the arm keeps them."""

    tokens: tuple[int, ...]
    seconds: float
    steps: tuple[StepRecord, ...] = ()

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return len(self.tokens) / self.seconds


Arm = Callable[[], tuple[list[int], list[StepRecord]]]
"""Does the work of one run; returns the new tokens, and the step records or []."""


@dataclass(slots=True)
class Comparison:
    """Rounds of samples by arm, the warm-up left out."""

    order: tuple[str, ...]  # of the arms; the first is the baseline
    rounds: list[dict[str, Sample]] = field(default_factory=list)
    interrupted: bool = False

    def samples(self, arm: str) -> list[Sample]:
        return [r[arm] for r in self.rounds if arm in r]

    def rate(self, arm: str) -> float:
        """Median tokens per second; NaN without samples."""
        rates = [s.rate for s in self.samples(arm)]
        return median(rates) if rates else float("nan")

    def ratios(self, arm: str) -> list[float]:
        """Speed relative to the baseline, one a round that has both."""
        return [r[arm].rate / r[self.baseline].rate for r in self.rounds if arm in r and self.baseline in r]

    def ratio(self, arm: str) -> float:
        """Median of `ratios`; NaN without rounds."""
        found = self.ratios(arm)
        return median(found) if found else float("nan")

    @property
    def baseline(self) -> str:
        return self.order[0]

    @property
    def arms(self) -> list[str]:
        """Those that ran, the baseline first."""
        return [name for name in self.order if self.samples(name)]


def interleave(
    arms: Mapping[str, Arm], *, repeats: int = 5, warmup: int = 1, report: Callable[[str], None] | None = None
) -> Comparison:
    """Run every arm `warmup + repeats` times in turns. An interrupt ends it and keeps the rounds so far.

    `report` is told what runs. Raises ValueError without arms or for counts below one.
    """
    if not arms:
        raise ValueError("there is nothing to compare: give at least one arm")
    if repeats < 1 or warmup < 0:
        raise ValueError(f"repeats must be at least 1 and warmup at least 0; got {repeats} and {warmup}")
    result = Comparison(tuple(arms))
    try:
        for n in range(warmup + repeats):
            if n >= warmup:
                result.rounds.append({})
            for name in rotated(list(arms), n):
                if report:
                    report(f"{'warm-up' if n < warmup else f'round {n - warmup + 1} of {repeats}'}: {name}")
                began = perf_counter()
                tokens, steps = arms[name]()
                sample = Sample(tuple(tokens), perf_counter() - began, tuple(steps))
                if n >= warmup:
                    result.rounds[-1][name] = sample
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def rotated(names: list[str], n: int) -> Iterator[str]:
    yield from names[n % len(names) :]
    yield from names[: n % len(names)]

"""Numbers of a run that grows and may be rewound: sums and medians in little time, long runs in few points."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from statistics import median

POINTS = 300  # drawn at most, however long the run is: a figure's arrays travel whole at every update
TAIL = 60  # the newest steps, always drawn one by one


@dataclass(frozen=True, slots=True)
class Window:
    """Steps that are drawn as one point: places `first` to `end - 1` of a series."""

    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first


def windows(count: int, points: int = POINTS, tail: int = TAIL) -> list[Window]:
    """How `count` steps are drawn: one by one while there are at most `points`, else the last `tail` one by one and those
    before in windows. A window's width is a power of two, so that windows that are full stay as they are until all
    double."""
    if count <= points:
        return [Window(i, i + 1) for i in range(count)]
    head, width = count - tail, 1
    while -(-head // width) > points - tail:
        width *= 2
    coarse = [Window(i, min(i + width, head)) for i in range(0, head, width)]
    return [*coarse, *(Window(i, i + 1) for i in range(head, count))]


@dataclass(slots=True)
class Series:
    """Some numbers a step, kept as running sums: the sum of any window is one subtraction, and a rewind forgets the end."""

    columns: int
    steps: list[int] = field(default_factory=list)  # the number of each step
    _sums: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sums = [[0] for _ in range(self.columns)]

    def push(self, step: int, *values: float) -> None:
        self.steps.append(step)
        for sums, value in zip(self._sums, values, strict=True):
            sums.append(sums[-1] + value)

    def pop(self) -> None:
        self.steps.pop()
        for sums in self._sums:
            sums.pop()

    def __len__(self) -> int:
        return len(self.steps)

    def sum(self, column: int, window: Window | None = None) -> float:
        """Over a window, or over all."""
        sums = self._sums[column]
        return sums[window.end] - sums[window.first] if window else sums[-1]

    def mean(self, column: int, window: Window | None = None) -> float:
        return self.sum(column, window) / (window.size if window else len(self))

    def place(self, window: Window) -> float:
        """Where a window is drawn: at its middle."""
        return (self.steps[window.first] + self.steps[window.end - 1]) / 2

    def label(self, window: Window) -> str:
        """What a window is called."""
        if window.size == 1:
            return f"step {self.steps[window.first]}"
        return f"steps {self.steps[window.first]} to {self.steps[window.end - 1]}, mean of {window.size}"


@dataclass(slots=True)
class Sorted:
    """Numbers in order, for a median that is at hand."""

    values: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        insort(self.values, value)

    def remove(self, value: float) -> None:
        del self.values[bisect_left(self.values, value)]

    def __len__(self) -> int:
        return len(self.values)

    def median(self) -> float:
        """NaN without numbers."""
        n = len(self.values)
        # Of the middle alone: `statistics.median` would sort all of them again.
        return median(self.values[(n - 1) // 2 : n // 2 + 1]) if n else float("nan")

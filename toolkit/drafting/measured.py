"""A chain length that finds itself: measured acceptance times measured cost, weighed anew in every step.

Leviathan et al. 2023, section 3.3, choose gamma by alpha and c. Here both come from the steps that were made: alpha from what
was accepted, and the cost of a step as a straight line over its nodes and its guesses, for draft and target together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from toolkit.drafting.chosen import running
from toolkit.drafting.costs import expected_tokens
from toolkit.drafting.shapes import Chain
from toolkit.protocols import Context, Shape


@dataclass(frozen=True, slots=True)
class Last:
    """The step that is being measured."""

    began: float
    who: tuple[Hashable, ...]
    lengths: tuple[int, ...]
    room: tuple[int, ...]
    guesses: int


@dataclass(slots=True)
class ByMeasure:
    """Stands where a shape stands. The chain with the most tokens a second, by what has been measured so far.

    most    the longest chain
    every   each so many steps another length is tried, so that a change of text or load is noticed
    fade    weight of the past against a new step, 0..1: 0.98 remembers about fifty steps

    It begins with a round over 0, half and all of `most`. Times are the wall's between two proposals, so the work of a whole
    step is in them. Nothing it learns changes a token. Steps after which the rows are others are not counted. Raises
    ValueError for numbers out of range.
    """

    most: int = 8
    every: int = 16
    fade: float = 0.98
    coupled: bool = False
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False)
    accepted: float = field(default=0.0, init=False)  # guesses, old ones fading ...
    tested: float = field(default=0.0, init=False)  # ... and those that were tested
    _normal: np.ndarray = field(
        default_factory=lambda: np.eye(3) * 1e-9, init=False, repr=False
    )  # least squares: X'X ...
    _right: np.ndarray = field(default_factory=lambda: np.zeros(3), init=False, repr=False)  # ... and X'y
    _steps: int = field(default=0, init=False, repr=False)
    _last: Last | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.most < 1 or self.every < 2:
            raise ValueError(
                f"ByMeasure needs most of at least 1 and every of at least 2; got {self.most} and {self.every}"
            )
        if not 0 < self.fade <= 1:
            raise ValueError(f"fade is a weight above 0, at most 1; got {self.fade}")

    @property
    def alpha(self) -> float:
        """How often a guess is accepted, given that those before it were; a half before anything is known."""
        return min(0.999, (self.accepted + 0.5) / (self.tested + 1))

    def cost(self, rows: int, guesses: int) -> float:
        """Seconds of a step with so many guesses in each of so many rows, as measured."""
        seen = np.linalg.lstsq(self._normal, self._right, rcond=1e-9)[0]
        return max(1e-9, float(seen @ self._features(rows, guesses)))

    def best(self, rows: int) -> int:
        """The length that pays best, the shortest among equals."""
        return max(range(self.most + 1), key=lambda n: expected_tokens(self.alpha, n) / self.cost(rows, n))

    def pick(self, context: Context) -> Shape | None:
        self._learn(context)
        rows = max(1, running(context))
        begin = (0, self.most, max(1, self.most // 2))
        if self._steps < 2 * len(begin):
            guesses = begin[self._steps % len(begin)]
        else:
            guesses = self.best(rows)
            if self._steps % self.every == 0:  # look to one side, then to the other
                aside = guesses + (1 if self._steps // self.every % 2 else -1)
                guesses = min(max(aside, 0), self.most) if guesses else 1
        self._steps += 1
        self._last = Last(self.clock(), context.who, context.lengths, context.room, guesses)
        return Chain(guesses, self.coupled) if guesses else None

    def _features(self, rows: int, guesses: int) -> np.ndarray:
        return np.array([1.0, rows * (guesses + 1), guesses])

    def _learn(self, context: Context) -> None:
        last, self._last = self._last, None
        if last is None or last.who != context.who or len(last.lengths) != context.rows:
            return
        gained = [now - before for now, before in zip(context.lengths, last.lengths, strict=True)]
        if min(gained) < 0 or max(gained) < 1:
            return  # rewound
        rows = sum(room > 0 for room in last.room)
        x = self._features(max(1, rows), last.guesses)
        self._normal = self.fade * self._normal + np.outer(x, x)
        self._right = self.fade * self._right + x * (self.clock() - last.began)
        right, tests = 0, 0
        for g, room, still in zip(gained, last.room, context.room, strict=True):
            could = min(last.guesses, room)
            if could and g and still:  # a row that has ended tells nothing of what would have come
                right += g - 1
                tests += min(could, g)
        if last.guesses:
            self.accepted = self.fade * self.accepted + right
            self.tested = self.fade * self.tested + tests

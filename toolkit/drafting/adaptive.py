"""A drafter that knows when drafting does not pay.

Prompt lookup on open text, a draft model on the wrong subject: what costs time and commits nothing should stop. The
wrapper compares tokens per second of the steps with guesses with that of the steps without, as measured while it runs,
takes the faster way, and looks at the other one now and then, the less often the more clearly it lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from toolkit.protocols import Context, Drafter, Proposal
from toolkit.tree import TokenTree


@dataclass(slots=True)
class Pace:
    """Tokens and seconds of one way of making steps, old ones fading."""

    fade: float
    tokens: float = 0.0
    seconds: float = 0.0
    steps: int = 0

    def add(self, tokens: float, seconds: float) -> None:
        self.tokens = self.fade * self.tokens + tokens
        self.seconds = self.fade * self.seconds + seconds
        self.steps += 1

    @property
    def rate(self) -> float:
        """Tokens a second of the whole batch; 0 before the first step."""
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class Adaptive:
    """Lets `drafter` guess while that is faster than guessing nothing.

    probe   steps with guesses before they are judged, and of every later look at them; half of it, steps without
    patience  steps until the first such look; doubled, up to 16 times itself, each time the slower one is still slower
    fade    weight of the past against a new step, 0..1: 0.9 remembers about ten steps

    What it remembers only decides how fast a text is made; the rule makes the text right whatever is guessed. A step in
    which the inner drafter finds nothing to guess counts as one without. Times are the wall's between two proposals, so
    all work of a step is in them, the widgets' too. One decision for the whole batch. Steps after a rewind, a swap or a
    change of batch are not counted. Raises ValueError for counts below one and a fade outside 0..1.
    """

    drafter: Drafter
    probe: int = 4
    patience: int = 16
    fade: float = 0.9
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False)
    drafting: bool = field(default=True, init=False)  # the way taken at present
    with_guesses: Pace = field(init=False, repr=False)
    without: Pace = field(init=False, repr=False)
    _left: int = field(init=False, repr=False)  # steps until the other way is looked at, or until the look ends
    _looking: bool = field(default=False, init=False, repr=False)
    _wait: int = field(init=False, repr=False)
    _known: int = field(default=0, init=False, repr=False)  # steps without guesses at the last judgement
    _last: tuple[float, tuple[int, ...], np.ndarray, bool] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("probe", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"Adaptive needs {name} of at least 1; got {getattr(self, name)}")
        if not 0 <= self.fade <= 1:
            raise ValueError(f"fade is a weight in 0..1; got {self.fade}")
        self.with_guesses, self.without = Pace(self.fade), Pace(self.fade)
        self._left, self._wait = self.probe, self.patience

    @property
    def parts(self) -> tuple[Drafter, ...]:
        return (self.drafter,)

    def propose(self, context: Context) -> Proposal:
        self._learn(context)
        if self.drafting != self._looking:  # the faster way is to draft, or it is slower and being looked at
            proposal = self.drafter.propose(context)
        else:
            proposal = Proposal(TokenTree.chain(context.pending))
        self._last = (self.clock(), context.lengths, context.host.copy(), proposal.tree.size > 1)
        return proposal

    def _learn(self, context: Context) -> None:
        """Take the step that has just ended into account."""
        now = self.clock()
        last, self._last = self._last, None
        if last is None or not _goes_on(last[1], last[2], context):
            return
        began, lengths, _, guessed = last
        tokens = sum(context.lengths) - sum(lengths)
        if tokens <= 0:
            return
        (self.with_guesses if guessed else self.without).add(tokens, now - began)
        self._left -= 1
        if self._left > 0:
            return
        known = self.without.steps > self._known  # steps in which nothing was found to guess have told it
        if not self._looking and not (self.drafting and known):
            self._looking = True
            self._left = (
                max(1, self.probe // 2) if self.drafting else self.probe
            )  # a step without always brings one token
            return
        # No guess was seen yet: then guessing has cost nothing, and the first one should not wait for a look.
        faster = not self.with_guesses.steps or self.with_guesses.rate >= self.without.rate
        self._looking = False
        self._known = self.without.steps
        self._wait = min(2 * self._wait, 16 * self.patience) if faster == self.drafting else self.patience
        self.drafting, self._left = faster, self._wait


def _goes_on(lengths: tuple[int, ...], host: np.ndarray, context: Context) -> bool:
    """Is the text the one seen last time with something added."""
    if len(lengths) != context.rows:
        return False
    return all(
        n <= m and np.array_equal(host[b, :n], context.host[b, :n])
        for b, (n, m) in enumerate(zip(lengths, context.lengths, strict=True))
    )

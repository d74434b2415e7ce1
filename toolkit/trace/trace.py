"""The list of steps, and who watches it grow.

The engine appends and forgets; every watcher keeps its own place. A slow watcher misses nothing and delays nobody, a
broken one is reported once and left out, and no watcher's error reaches the loop.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolkit.trace.records import StepRecord

if TYPE_CHECKING:  # a trace is read where no torch is
    from toolkit.protocols import Watcher


@dataclass(slots=True)
class _Place:
    watcher: Watcher
    every: float
    had: int = 0
    last: float = float("-inf")
    error: BaseException | None = None


@dataclass(slots=True)
class Trace:
    """`steps` of one session, with the prompts and a description of the experiment. Safe to read from any thread.

    words  bytes by token, for those who read it without a tokenizer (`trace.words`); empty unless somebody put them in
    """

    prompts: tuple[tuple[int, ...], ...] = ()
    about: dict[str, str] = field(default_factory=dict)
    steps: list[StepRecord] = field(default_factory=list)
    words: dict[int, bytes] = field(default_factory=dict)
    _places: list[_Place] = field(default_factory=list, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def append(self, record: StepRecord) -> None:
        with self._lock:
            self.steps.append(record)
        self.notify()

    def rewind(self, steps: int) -> None:
        """Forget all but the first `steps` steps. Watchers are called with what replaces them, or with nothing yet."""
        with self._lock:
            del self.steps[steps:]
            for place in self._places:
                place.had, place.last = min(place.had, steps), float("-inf")
        self.notify(force=True)

    def watch(self, watcher: Watcher, every: float = 0.1) -> None:
        """Call `watcher(records)` with the records it has not had, at most once in `every` seconds, from the thread
        that runs the loop. `every=0` calls it after each step."""
        with self._lock:
            self._places.append(_Place(watcher, every))

    def unwatch(self, watcher: Watcher) -> None:
        with self._lock:
            self._places = [p for p in self._places if p.watcher != watcher]

    @contextmanager
    def watching(self, watcher: Watcher, every: float = 0.1) -> Generator[None]:
        self.watch(watcher, every)
        try:
            yield
        finally:
            self.notify(force=True)
            self.unwatch(watcher)

    def notify(self, *, force: bool = False) -> None:
        """Serve the watchers that are due; `force` serves all, also those for whom there is nothing new."""
        now = time.perf_counter()
        for place in list(self._places):
            if place.error or not (force or (now - place.last >= place.every and place.had < len(self.steps))):
                continue
            with self._lock:
                fresh, place.had, place.last = self.steps[place.had :], len(self.steps), now
            try:
                place.watcher(fresh)
            except Exception as error:  # a reader must never stop the loop
                place.error = error
                name = getattr(place.watcher, "__qualname__", type(place.watcher).__name__)
                print(f"watcher {name} failed and is left out: {error!r}", file=sys.stderr)

    @property
    def errors(self) -> list[BaseException]:
        """What went wrong in watchers."""
        return [p.error for p in self._places if p.error]

    def tokens(self, row: int = 0) -> tuple[int, ...]:
        """All tokens committed to a row, without its prompt."""
        return tuple(t for s in self.steps if (r := s.rows[row]) for t in r.emitted)

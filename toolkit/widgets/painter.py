"""Draws beside the run instead of inside it: pokes are cheap, and at most so many pictures a second are made."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from toolkit.engine import before_exit

LONGEST = 6.0  # seconds between two pictures, however dear they are
SOON = 0.05  # seconds between two pictures that somebody waits for


class Painter:
    """Calls `paint()` in a thread of its own soon after `poke()`, and once more after the last poke. Between two pictures
    pass at least `every` seconds, and as many more as keep drawing below a `share` of the run's time: the run needs the
    same interpreter, and the same cores where `elsewhere()` says that a page takes so many seconds of them for a picture.
    `hurry()` is for what somebody waits for, and cuts the pause short. An error in `paint` is printed once a kind and never
    reaches the run."""

    def __init__(
        self,
        paint: Callable[[], None],
        every: float = 0.2,
        share: float = 0.02,
        elsewhere: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.paint, self.every, self.share, self.elsewhere = paint, every, share, elsewhere
        self._poked = threading.Event()
        self._hurried = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._closed = False
        self._said: set[str] = set()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        before_exit(self, Painter.close)

    def poke(self, *_: object) -> None:
        """Ask for a picture. Safe from any thread, takes microseconds."""
        self._idle.clear()
        self._poked.set()
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._loop, name="specdec-painter", daemon=True)
                self._thread.start()

    def hurry(self, *_: object) -> None:
        """Ask for a picture at once."""
        self._hurried.set()
        self.poke()

    def settle(self, timeout: float = 10.0) -> bool:
        """Wait until everything asked for is drawn."""
        return self._idle.wait(timeout)

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closed, thread = True, self._thread
        self._hurried.set()
        self._poked.set()
        if thread and thread is not threading.current_thread():
            thread.join()

    def _loop(self) -> None:
        while not self._closed:
            self._poked.wait()
            self._poked.clear()
            self._hurried.clear()
            began, worked = time.perf_counter(), time.thread_time()
            try:
                if not self._closed:
                    self.paint()
            except Exception as error:  # a picture must never stop a run
                if repr(error) not in self._said:
                    self._said.add(repr(error))
                    print(f"drawing failed: {error!r}", file=sys.stderr)
            if not self._poked.is_set():
                self._idle.set()
                if self._poked.is_set():  # poked in between: it is not idle after all
                    self._idle.clear()
            rest = max(self.every, (time.thread_time() - worked + self.elsewhere()) / self.share)
            time.sleep(min(SOON, self.every))
            self._hurried.wait(max(0.0, min(rest, LONGEST) - (time.perf_counter() - began)))

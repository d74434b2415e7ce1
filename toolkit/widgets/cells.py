"""The end of a notebook's cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython import get_ipython


class AfterCells:
    """Calls `act()` after every cell until `close()`; outside a notebook it does nothing."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act, self._events = act, getattr(get_ipython(), "events", None)
        if self._events:
            self._events.register("post_run_cell", self._call)

    def close(self) -> None:
        if self._events:
            self._events.unregister("post_run_cell", self._call)
            self._events = None

    def _call(self, *_: Any) -> None:
        self._act()

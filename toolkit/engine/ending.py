"""Threads that compute end before Python does: one that is inside torch while the interpreter goes away aborts the process."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

Owner = TypeVar("Owner")


def before_exit(owner: Owner, end: Callable[[Owner], object]) -> None:
    """Call `end(owner)` when Python ends, if the owner is still there; nothing here keeps it alive. `end` must not hold it."""
    weakref.finalize(owner, _end, weakref.ref(owner), end)


def _end(owner: weakref.ref[Owner], end: Callable[[Owner], object]) -> None:
    if (found := owner()) is not None:
        end(found)

"""Progress on stderr: a bar for downloads, a line for long measurements; plain lines where that is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

QUIET = 10.0  # seconds at least between two plain lines


@contextmanager
def doing(console: Console, first: str = "") -> Generator[Callable[[str], None]]:
    """Gives a function that tells what goes on now: in place on a terminal, elsewhere a line now and then."""
    if not console.is_terminal:
        yield _now_and_then(console)
        return
    with console.status(first) as status:
        yield lambda text: status.update(text)


@contextmanager
def download_bar(name: str) -> Generator[Callable[[int, int], None]]:
    """Gives a function of (bytes so far, bytes in all). Nothing is shown before its first call."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(name)
        return
    columns = (TextColumn("fetching {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


def _now_and_then(console: Console) -> Callable[[str], None]:
    told = -QUIET

    def show(text: str) -> None:
        nonlocal told
        if (now := time.monotonic()) - told >= QUIET:
            told = now
            console.print(text, markup=False, highlight=False)

    return show


def _lines(name: str) -> Callable[[int, int], None]:
    shown = -1

    def show(done: int, total: int) -> None:
        nonlocal shown
        if (quarter := 4 * done // total) > shown:
            shown = quarter
            print(f"fetching {name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB", file=sys.stderr)

    return show

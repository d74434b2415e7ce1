"""A progress bar for downloads, on stderr; plain lines where that is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn


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


def _lines(name: str) -> Callable[[int, int], None]:
    shown = -1

    def show(done: int, total: int) -> None:
        nonlocal shown
        if (quarter := 4 * done // total) > shown:
            shown = quarter
            print(f"fetching {name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB", file=sys.stderr)

    return show

"""A comparison as a table in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from toolkit.bench.compare import Row

HEADS = ("AL", "ms/step", "tokens/s", "speedup", "same")


def compared_table(rows: Sequence[Row], about: str) -> Table:
    """A line for each arm and task. AL: acceptance length with the bonus; same: prompts with exactly plain decoding's tokens."""
    table = Table(title=Text(about), box=SIMPLE_HEAD)
    for name in ("task", "arm"):
        table.add_column(name)
    for name in HEADS:
        table.add_column(name, justify="right")
    for r in rows:
        figures = (
            (r.acceptance_length, ".2f"),
            (r.ms_per_step, ".1f"),
            (r.tokens_per_second, ".1f"),
            (r.speedup, ".2f"),
        )
        cells = ("-" if value is None else format(value, form) for value, form in figures)
        table.add_row(Text(r.task), Text(r.arm), *cells, f"{r.same}/{r.prompts}")
    return table

"""All charts by name, in the order of the menu."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from toolkit.widgets.charts.calibration import Calibration
from toolkit.widgets.charts.chart import Chart, Given
from toolkit.widgets.charts.depth import AcceptanceByDepth
from toolkit.widgets.charts.load import PagesAndSlots
from toolkit.widgets.charts.phases import PhaseTimes
from toolkit.widgets.charts.rank import AcceptanceByRank
from toolkit.widgets.charts.throughput import Throughput
from toolkit.widgets.charts.tokens import TokensPerStep

CHARTS: dict[str, Callable[[int, Given], Chart]] = {
    "tokens": lambda row, _: TokensPerStep(row),
    "depth": lambda row, _: AcceptanceByDepth(row),
    "phases": PhaseTimes,
    "throughput": Throughput,
    "rank": lambda row, _: AcceptanceByRank(row),
    "calibration": lambda row, _: Calibration(row),
    "pages": lambda row, _: PagesAndSlots(row),
}
DEFAULT = ("tokens", "depth", "phases")


def known(names: Iterable[str]) -> tuple[str, ...]:
    """The names in the menu's order. Raises ValueError for one that is not in it."""
    names = tuple(names)
    for name in names:
        if name not in CHARTS:
            raise ValueError(f"there is no chart {name!r}: choose from {', '.join(CHARTS)}")
    return tuple(name for name in CHARTS if name in names)

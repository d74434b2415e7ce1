"""The charts of a run, live: a menu of all, and the chosen ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ipywidgets as w
from plotly.subplots import make_subplots

from toolkit.trace import StepRecord
from toolkit.widgets.charts.calibration import Calibration
from toolkit.widgets.charts.chart import HEIGHT, NOTHING, Chart, Given, layout, read
from toolkit.widgets.charts.depth import AcceptanceByDepth
from toolkit.widgets.charts.load import PagesAndSlots
from toolkit.widgets.charts.panel import Panel, put
from toolkit.widgets.charts.phases import PhaseTimes
from toolkit.widgets.charts.rank import AcceptanceByRank
from toolkit.widgets.charts.svg import svg
from toolkit.widgets.charts.throughput import Throughput
from toolkit.widgets.charts.tokens import TokensPerStep
from toolkit.widgets.follow import Follower

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


class Charts:
    """Charts of one row. `widget` is what a cell shows; `update` brings it up to date with a list of steps that grows or
    was rewound, and its work is that of the new steps alone. A chart that is not chosen costs nothing.

    shown     names of `CHARTS`: tokens, depth, phases, throughput, rank, calibration, pages
    floor_ms  milliseconds of a target pass over one node; by default measured on this trace's own such steps
    baseline  tokens per second of plain decoding; likewise

    Raises ValueError for names and numbers that cannot be.
    """

    def __init__(
        self, shown: Sequence[str] = DEFAULT, *, floor_ms: float | None = None, baseline: float | None = None
    ) -> None:
        self._given = Given(floor_ms, baseline)
        self._row = 0
        self._follower = Follower()
        self._panels: dict[str, Panel] = {}
        self._lock = threading.RLock()  # buttons are pressed in another thread than updates come from
        self._buttons = {
            name: w.ToggleButton(description=name, tooltip=make(0, self._given).title, layout=w.Layout(width="auto"))
            for name, make in CHARTS.items()
        }
        menu = w.HBox([*self._buttons.values()])
        menu.add_class("sd-charts-menu")
        self._board = w.HBox([], layout=w.Layout(flex_flow="row wrap", align_items="flex-start", overflow="visible", grid_gap="8px"))
        self.widget = w.VBox([menu, self._board])
        self.widget.add_class("sd-charts")
        self.shown = shown
        for button in self._buttons.values():
            button.observe(self._pressed, "value")

    @property
    def shown(self) -> tuple[str, ...]:
        """The charts on the screen, in the order of the menu."""
        return tuple(self._panels)

    @shown.setter
    def shown(self, names: Iterable[str]) -> None:
        names = known(names)
        with self._lock:
            for name in [n for n in self._panels if n not in names]:
                self._panels.pop(name).close()
            for name in names:
                if name not in self._panels:
                    self._panels[name] = Panel(self._chart(name, self._follower.had))
                    self._panels[name].draw()
            self._panels = {n: self._panels[n] for n in names}
            self._board.children = [p.box for p in self._panels.values()]
            for name, button in self._buttons.items():
                button.value = name in names

    def update(self, steps: Sequence[StepRecord], row: int = 0) -> None:
        """Show these steps of a row."""
        with self._lock:
            if row != self._row:
                self._row, self._follower = row, Follower()
                for name, panel in self._panels.items():
                    panel.chart = self._chart(name, ())
            gone, fresh = self._follower.news(steps)
            for panel in self._panels.values():
                for step in gone:
                    panel.chart.pop(step)
                read(panel.chart, fresh)
                panel.draw()

    def figure(self, name: str) -> Any:
        """The live figure of a chart that is shown. Raises ValueError for one that is not."""
        if name not in self._panels:
            raise ValueError(f"the chart {name!r} is not shown; shown are {', '.join(self._panels) or 'none'}")
        return self._panels[name].figure

    def static(self, steps: Sequence[StepRecord], row: int = 0) -> Any:
        """A plain plotly figure of the chosen charts, for pages without a kernel."""
        made = figure(self.shown or DEFAULT)
        fill(made, steps, row, names=self.shown or DEFAULT, given=self._given)
        return made

    def svg(self, steps: Sequence[StepRecord], row: int = 0) -> str:
        """The three default charts as one small SVG without script or style sheet, for pages that show neither widgets nor
        plotly."""
        return svg([read(CHARTS[name](row, self._given), steps) for name in DEFAULT])

    def captions(self, steps: Sequence[StepRecord], row: int = 0) -> dict[str, str]:
        """What the chosen charts say, in words."""
        return {name: read(CHARTS[name](row, self._given), steps).caption() for name in self.shown}

    def caption(self, steps: Sequence[StepRecord], row: int = 0) -> str:
        """All of `captions` in one text."""
        return " ".join(self.captions(steps, row).values())

    def _chart(self, name: str, steps: Iterable[StepRecord]) -> Chart:
        return read(CHARTS[name](self._row, self._given), steps)

    def _pressed(self, _: object) -> None:
        wanted = tuple(name for name, button in self._buttons.items() if button.value)
        if wanted != self.shown:
            self.shown = wanted


def known(names: Iterable[str]) -> tuple[str, ...]:
    """The names in the menu's order. Raises ValueError for one that is not in it."""
    names = tuple(names)
    for name in names:
        if name not in CHARTS:
            raise ValueError(f"there is no chart {name!r}: choose from {', '.join(CHARTS)}")
    return tuple(name for name in CHARTS if name in names)


def figure(names: Iterable[str] = DEFAULT) -> Any:
    """An empty plain figure of some charts, at most three a line."""
    charts = [CHARTS[name](0, Given()) for name in known(names)]
    columns = min(3, len(charts))
    rows = -(-len(charts) // columns)
    second = {"secondary_y": True}
    made = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[c.title for c in charts],
        specs=[[second if i * columns + j < len(charts) else None for j in range(columns)] for i in range(rows)],
        horizontal_spacing=0.07,
    )
    made.update_layout(
        **{**layout(), "height": HEIGHT * rows + 40, "legend": {"orientation": "h", "y": -0.15, "yanchor": "top"}}
    )
    made.update_layout(margin={"l": 36, "r": 10, "t": 28, "b": 44})
    for i, chart in enumerate(charts):
        at = {"row": i // columns + 1, "col": i % columns + 1}
        for trace in chart.traces():
            right = trace.yaxis == "y2"
            trace.update(legendgroup=chart.title, meta=i)
            made.add_trace(trace, secondary_y=right, **at)
        axes = chart.axes()
        made.update_xaxes(axes["xaxis"], **at)
        made.update_yaxes(axes["yaxis"], secondary_y=False, **at)
    return made


def fill(
    fig: Any, steps: Sequence[StepRecord], row: int = 0, *, names: Iterable[str] = DEFAULT, given: Given = NOTHING
) -> None:
    """Put steps of a row into a figure that `figure` made of the same names. A chart with nothing to show says so in its
    place."""
    for i, name in enumerate(known(names)):
        chart = read(CHARTS[name](row, given), steps)
        arrays = chart.arrays()
        put([t for t in fig.data if t.meta == i], arrays)
        fig.layout.annotations[i].text = chart.title if arrays else f"{chart.title}: nothing to show"

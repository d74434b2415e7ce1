"""The charts of a run, live: a menu of all, and the chosen ones."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import ipywidgets as w

from toolkit.trace import StepRecord
from toolkit.widgets.charts.chart import Chart, Given, read
from toolkit.widgets.charts.menu import CHARTS, DEFAULT, known
from toolkit.widgets.charts.panel import Panel
from toolkit.widgets.charts.svg import svg
from toolkit.widgets.charts.whole import figure, fill
from toolkit.widgets.follow import Follower


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
        self._setting = False  # the buttons are moved by us
        self._lock = threading.RLock()  # buttons are pressed in another thread than updates come from
        self._buttons = {
            name: w.ToggleButton(description=name, tooltip=make(0, self._given).title, layout=w.Layout(width="auto"))
            for name, make in CHARTS.items()
        }
        menu = w.HBox([*self._buttons.values()])
        menu.add_class("sd-charts-menu")
        self._board = w.HBox(
            [], layout=w.Layout(flex_flow="row wrap", align_items="flex-start", overflow="visible", grid_gap="8px")
        )
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
            self._setting = True
            for name, button in self._buttons.items():
                button.value = name in names
            self._setting = False

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
        if not self._setting:
            self.shown = [name for name, button in self._buttons.items() if button.value]

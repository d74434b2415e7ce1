"""One chart on the screen: its figure, with its sentence below."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

import ipywidgets as w
import plotly.graph_objects as go

from toolkit.widgets.charts.chart import WIDTH, Arrays, Chart, layout
from toolkit.widgets.charts.shared import Figure


def put(traces: Iterable[Any], arrays: Arrays, before: Arrays | None = None) -> None:
    """Write arrays into the traces of their names; what is as it was `before` is left alone, and a trace without arrays
    is emptied."""
    for trace in traces:
        new = arrays.get(trace.name, {"x": [], "y": []})
        old = (before or {}).get(trace.name, {})
        trace.update({key: value for key, value in new.items() if key not in old or old[key] != value}, overwrite=False)


class Panel:
    """Draws a chart. A chart with nothing to show is its sentence alone."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.figure = Figure(go.Figure(chart.traces(), {**layout(), **chart.axes(), "width": WIDTH}))
        self.figure._config = {"displayModeBar": False}
        self.caption = w.HTML(layout=w.Layout(margin="0"))
        self.caption.add_class("sd-caption")
        self.box = w.VBox([self.caption], layout=w.Layout(width=f"{WIDTH}px", overflow="visible"))
        self._drawn: Arrays = {}

    def draw(self) -> None:
        """Bring figure and sentence up to date."""
        arrays = self.chart.arrays()
        if arrays:
            with self.figure.batch_update():
                put(self.figure.data, arrays, self._drawn)
        self._drawn = arrays
        text = f'<span class="name">{escape(self.chart.title)}.</span> {escape(self.chart.caption())}'
        if self.caption.value != text:
            self.caption.value = text
        children = (self.figure, self.caption) if arrays else (self.caption,)
        if self.box.children != children:
            self.box.children = children

    def close(self) -> None:
        """Take it from the page for good."""
        for widget in (self.box, self.figure, self.caption):
            widget.close()

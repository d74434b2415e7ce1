"""Several charts as one plain plotly figure, for pages without a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

from plotly.subplots import make_subplots

from toolkit.trace import StepRecord
from toolkit.widgets.charts.chart import HEIGHT, NOTHING, Given, layout, read
from toolkit.widgets.charts.menu import CHARTS, DEFAULT, known
from toolkit.widgets.charts.panel import put


def figure(names: Iterable[str] = DEFAULT) -> Any:
    """An empty figure of some charts, at most three a line. Raises ValueError for none and for names that are not in the
    menu."""
    charts = [CHARTS[name](0, NOTHING) for name in known(names)]
    if not charts:
        raise ValueError(f"a figure needs at least one chart: choose from {', '.join(CHARTS)}")
    columns = min(3, len(charts))
    rows = -(-len(charts) // columns)
    second = {"secondary_y": True}
    made = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[c.title for c in charts],
        specs=[[second if i * columns + j < len(charts) else None for j in range(columns)] for i in range(rows)],
        horizontal_spacing=0.07,
        vertical_spacing=0.45 / rows,
    )
    look = layout()
    made.update_layout(**{**look, "height": (HEIGHT + 60) * rows, "margin": {"l": 40, "r": 10, "t": 70, "b": 44}})
    for i, chart in enumerate(charts):
        at = {"row": i // columns + 1, "col": i % columns + 1}
        legend = f"legend{i + 1 if i else ''}"
        for trace in chart.traces():
            right = trace.yaxis == "y2"
            trace.update(legend=legend, meta=i)
            made.add_trace(trace, secondary_y=right, **at)
        axes = chart.axes()
        made.update_xaxes(axes["xaxis"], **at)
        made.update_yaxes(axes["yaxis"], secondary_y=False, **at)
        made.update_yaxes(showgrid=False, rangemode="tozero", tickmode="auto", secondary_y=True, **at)
        corner = {"x": next(made.select_xaxes(**at)).domain[0], "y": next(made.select_yaxes(**at)).domain[1]}
        made.layout[legend] = {**look["legend"], **corner}
    return made


def fill(
    fig: Any, steps: Sequence[StepRecord], row: int = 0, *, names: Iterable[str] = DEFAULT, given: Given = NOTHING
) -> None:
    """Put steps of a row into a figure that `figure` made of the same names. A chart with nothing to show says so in its
    place."""
    for i, name in enumerate(known(names)):
        chart = read(CHARTS[name](row, given), steps)
        arrays = chart.arrays()
        traces = [t for t in fig.data if t.meta == i]
        put(traces, arrays)
        for trace in traces:
            for kind, end in (("xaxis", trace.xaxis), ("yaxis", trace.yaxis)):
                fig.layout[kind + end[1:]].visible = bool(arrays)
        said = [] if arrays else ["", *wrap(chart.caption(), 44)]
        fig.layout.annotations[i].update(
            text="<br>".join([f"<b>{chart.title}</b>", *said]),
            font={"size": 12},
            yanchor="bottom" if arrays else "top",
            yshift=30 if arrays else 0,
        )

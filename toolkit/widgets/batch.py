"""Does drafting still pay as the batch grows: a figure of `bench.serving.by_rows`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

COLOURS = ("#9aa0a6", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")
DASHES = ("solid", "dash", "dot", "dashdot")


def batch_figure(points: Sequence[Any]) -> go.Figure:
    """Of `bench.serving.Point`s. Left: tokens a second. Middle: speedup against no drafter, measured and foretold by the cost
    curve. Right: the curve itself, milliseconds of a target pass by the nodes of all rows together."""
    titles = ("Tokens a second", "Speedup: measured, and foretold (dotted)", "Target pass, ms by nodes of all rows")
    fig = make_subplots(1, 3, subplot_titles=titles, horizontal_spacing=0.08)
    for i, name in enumerate(dict.fromkeys(p.drafter for p in points)):
        mine = [p for p in points if p.drafter == name]
        x = [p.rows for p in mine]
        line = {"color": COLOURS[i % len(COLOURS)], "dash": DASHES[i // len(COLOURS) % len(DASHES)]}
        style = {"mode": "lines+markers", "marker": {"symbol": i}, "line": line, "name": name, "legendgroup": name}
        text = [f"{name}: {p.length:.2f} tokens per row and pass" for p in mine]
        fig.add_trace(go.Scatter(x=x, y=[p.rate for p in mine], text=text, **style), 1, 1)
        fig.add_trace(go.Scatter(x=x, y=[p.speedup for p in mine], showlegend=False, text=text, **style), 1, 2)
        dotted = {**style, "line": {**line, "dash": "dot"}, "mode": "lines", "showlegend": False}
        fig.add_trace(go.Scatter(x=x, y=[p.foretold for p in mine], **dotted), 1, 2)
        nodes = [p.rows * p.nodes for p in mine]
        points_only = {**style, "mode": "markers", "showlegend": False}
        fig.add_trace(go.Scatter(x=nodes, y=[p.target_ms for p in mine], **points_only), 1, 3)
    fig.add_hline(1, line={"color": "#80868b", "width": 1}, row=1, col=2)  # type: ignore[arg-type]
    fig.update_xaxes(type="log", dtick=0.30103, title="rows")
    fig.update_xaxes(title="nodes", row=1, col=3)
    fig.update_yaxes(rangemode="tozero")
    fig.update_layout(template="none", height=340, margin={"l": 45, "r": 10, "t": 40, "b": 45})
    return fig

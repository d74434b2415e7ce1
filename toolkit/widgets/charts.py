"""Three charts of a run: tokens per step, acceptance by depth, time by phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from toolkit.trace import StepRecord, metrics

LAST = 120  # steps shown: growing traces would be sent whole at every update
PHASES = {"draft": "#e69f00", "target": "#0072b2", "verify": "#cc79a7", "commit": "#9aa0a6"}
TITLES = ("Tokens per step", "Acceptance by depth", "Milliseconds by phase")


def figure(widget: bool = True) -> Any:
    """The empty figure: a FigureWidget, or a plain Figure for pages without a kernel."""
    base = make_subplots(rows=1, cols=3, subplot_titles=TITLES, horizontal_spacing=0.07)
    # Lines, not bars, where there is one value a step: a browser draws a path where bars are hundreds of shapes.
    line = {"shape": "hvh", "width": 1}
    base.add_trace(
        go.Scatter(
            name="tokens",
            showlegend=False,
            mode="lines",
            fill="tozeroy",
            line={**line, "color": "#0072b2"},
            hovertemplate="step %{x}: %{y} tokens<extra></extra>",
        ),
        1,
        1,
    )
    hover = "depth %{x}: %{y:.0%} of %{customdata} tested<extra></extra>"
    base.add_trace(go.Bar(name="accepted", showlegend=False, marker_color="#009e73", hovertemplate=hover), 1, 2)
    for name, colour in PHASES.items():
        base.add_trace(
            go.Scatter(
                name=name,
                mode="lines",
                stackgroup="ms",
                line={**line, "color": colour},
                hovertemplate=f"{name}: %{{y:.1f}} ms<extra></extra>",
            ),
            1,
            3,
        )
    base.update_layout(
        height=250,
        margin={"l": 36, "r": 10, "t": 28, "b": 44},
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": -0.12, "yanchor": "top"},
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": "#80868b", "size": 11},
        bargap=0.15,
    )
    base.update_xaxes(gridcolor="rgba(128,134,139,0.2)", tickformat="d", rangemode="tozero")
    base.update_yaxes(gridcolor="rgba(128,134,139,0.25)", rangemode="tozero")
    base.update_yaxes(range=[0, 1], tickformat=".0%", row=1, col=2)
    return go.FigureWidget(base) if widget else base


class Charts:
    """Holds the figure; `update` shows the newest steps of a row."""

    def __init__(self) -> None:
        self.widget = figure()

    def update(self, steps: Sequence[StepRecord], row: int = 0) -> None:
        """Show these steps: the last ones one by one, acceptance over all of them."""
        with self.widget.batch_update():
            fill(self.widget, steps, row)

    def static(self, steps: Sequence[StepRecord], row: int = 0) -> Any:
        """A plain figure of the same."""
        made = figure(widget=False)
        fill(made, steps, row)
        return made


def fill(fig: Any, steps: Sequence[StepRecord], row: int) -> None:
    last = [s for s in steps[-LAST:] if s.rows[row]]
    x = [s.step for s in last]
    depths = metrics.acceptance_by_depth(steps, row)
    bars = fig.data
    bars[0].x, bars[0].y = x, [len(r.emitted) for s in last if (r := s.rows[row])]
    bars[1].x, bars[1].y = [d.depth for d in depths], [d.rate for d in depths]
    bars[1].customdata = [d.reached for d in depths]
    for bar, name in zip(bars[2:], PHASES, strict=True):
        bar.x, bar.y = x, [round(s.ms.get(name, 0.0), 3) for s in last]

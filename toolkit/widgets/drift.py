"""The drift meter drawn: what a lossy rule gains against what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from toolkit.verification.drift import Point

EXACT, LOSSY = "#009e73", "#d55e00"


def drift_figure(points: Sequence[Point]) -> Any:
    """A plotly figure of `frontier`'s points: accepted guesses a step against total variation and against KL, both a
    position and means over the positions. Rules that call themselves lossless are circles, others diamonds.

    Raises ValueError without points.
    """
    if not points:
        raise ValueError("there is nothing to draw: give the points of `frontier`")
    base = make_subplots(rows=1, cols=2, subplot_titles=("Total variation a token", "KL a token, nats"))
    for column, distances in enumerate(([p.tv for p in points], [p.kl for p in points]), 1):
        for lossless, name, colour, symbol in (
            (True, "lossless", EXACT, "circle"),
            (False, "lossy", LOSSY, "diamond"),
        ):
            chosen = [(p, sum(d) / len(d), d) for p, d in zip(points, distances, strict=True) if p.lossless == lossless]
            shown = [
                (p, mean, d) for p, mean, d in chosen if mean != float("inf")
            ]  # no axis holds infinity: see the table
            base.add_trace(
                go.Scatter(
                    name=name,
                    legendgroup=name,
                    showlegend=column == 1 and bool(shown),
                    mode="markers+text",
                    x=[mean for _, mean, _ in shown],
                    y=[p.accepted for p, _, _ in shown],
                    text=[p.name for p, _, _ in shown],
                    textposition="middle right",
                    customdata=[", ".join(f"{x:.4f}" for x in d) for _, _, d in shown],
                    marker={"color": colour, "size": 9, "symbol": symbol},
                    hovertemplate="%{text}<br>accepted %{y:.3f} a step<br>by position %{customdata}<extra></extra>",
                ),
                1,
                column,
            )
    base.update_xaxes(rangemode="tozero")
    base.update_yaxes(title_text="accepted guesses a step", row=1, col=1)
    base.update_layout(height=380, template="plotly_white", margin={"l": 60, "r": 20, "t": 40, "b": 40})
    return base

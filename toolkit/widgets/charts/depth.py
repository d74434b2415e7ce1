"""Acceptance by depth: if the path before was kept, and of all steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import plotly.graph_objects as go

from toolkit.trace import StepRecord, metrics
from toolkit.trace.measures import Rate
from toolkit.widgets.charts.chart import BLUE, VERMILION, Arrays, axis, entry, interval, line, percent, whiskers

BAND = "95% Wilson interval"


class AcceptanceByDepth:
    """The conditional rate (n-alpha) with its interval, and the share of all steps in which so many guesses held (prefix
    acceptance)."""

    title = "Acceptance by depth"

    def __init__(self, row: int = 0) -> None:
        self.row = row
        self._steps = 0
        self._reached: Counter[int] = Counter()
        self._accepted: Counter[int] = Counter()
        self._deepest: Counter[int] = Counter()

    def push(self, step: StepRecord) -> None:
        self._count(step, 1)

    def pop(self, step: StepRecord) -> None:
        self._count(step, -1)

    def _count(self, step: StepRecord, by: int) -> None:
        if r := entry(step, self.row):
            self._steps += by
            for depth in metrics.reached_depths(r):
                self._reached[depth] += by
            for depth in range(1, len(r.path)):
                self._accepted[depth] += by
            self._deepest[max(r.depth)] += by

    def _rates(self) -> list[Rate]:
        deepest = max((d for d, n in self._reached.items() if n), default=0)
        return [Rate(self._reached[d], self._accepted[d]) for d in range(1, deepest + 1)]

    def arrays(self) -> Arrays:
        rates = self._rates()
        if not rates:
            return {}
        depths = list(range(1, len(rates) + 1))
        ends = [r.interval() for r in rates]
        deepest = max(d for d, n in self._deepest.items() if n)
        prefixes = [Rate(self._steps, self._accepted[d]) for d in range(1, deepest + 1)]
        return {
            "low": {"x": depths, "y": [round(low, 4) for low, _ in ends]},
            BAND: {"x": depths, "y": [round(high, 4) for _, high in ends]},
            "if reached": {
                "x": depths,
                "y": [round(r.rate, 4) for r in rates],
                "error_y": whiskers(rates),
                "customdata": [f"{r.accepted} of {r.reached}; {interval(r)}" for r in rates],
            },
            "of all steps": {
                "x": list(range(1, deepest + 1)),
                "y": [round(r.rate, 4) for r in prefixes],
                "customdata": [f"{r.accepted} of {r.reached}" for r in prefixes],
            },
        }

    def caption(self) -> str:
        rates = self._rates()
        if not rates:
            return "No guess was made yet: acceptance by depth needs a drafter that proposes something."
        return (
            f"At depth 1, {percent(rates[0].rate)} of {rates[0].reached} reached guesses were accepted "
            f"({interval(rates[0])}). If reached: of the steps whose path before that depth was kept (n-alpha). Of all "
            f"steps: at least so many guesses accepted (prefix acceptance), {self._steps} steps."
        )

    def axes(self) -> dict[str, Any]:
        return {
            "xaxis": axis("depth of the guess", dtick=1),
            "yaxis": axis("accepted", range=[0, 1.02], tickformat=".0%"),
        }

    def traces(self) -> list[Any]:
        edge = {"mode": "lines", "line": {"width": 0, "color": BLUE}, "hoverinfo": "skip", "showlegend": False}
        return [
            go.Scatter(name="low", **edge),
            go.Scatter(name=BAND, fill="tonexty", fillcolor="rgba(0,114,178,0.2)", **edge),
            line(
                "if reached",
                BLUE,
                marker={"size": 7},
                error_y={"thickness": 1, "width": 4},
                hovertemplate="depth %{x}, if reached: %{y:.0%}<br>%{customdata}<extra></extra>",
            ).update(mode="lines+markers"),
            line(
                "of all steps",
                VERMILION,
                "dash",
                marker={"size": 7, "symbol": "square-open"},
                hovertemplate="depth %{x}, of all steps: %{y:.0%}<br>%{customdata}<extra></extra>",
            ).update(mode="lines+markers"),
        ]

"""Acceptance by rank: which sibling is worth its place, and what the target thought of what it took."""

from __future__ import annotations

from collections import Counter
from typing import Any

import plotly.graph_objects as go

from toolkit.trace import StepRecord
from toolkit.trace.measures import Rate, accepted_target_ranks, drawn_ranks
from toolkit.widgets.charts.chart import BLUE, VERMILION, Arrays, axis, entry, interval, percent, whiskers


class AcceptanceByRank:
    """Siblings in the order they were drawn in; accepted guesses by their place among the target's likeliest tokens."""

    title = "Acceptance by rank"

    def __init__(self, row: int = 0) -> None:
        self.row = row
        self._reached: Counter[int] = Counter()
        self._accepted: Counter[int] = Counter()
        self._target: Counter[int] = Counter()
        self._recorded: Counter[int] = Counter()  # how many of the target's tokens a step recorded

    def push(self, step: StepRecord) -> None:
        self._count(step, 1)

    def pop(self, step: StepRecord) -> None:
        self._count(step, -1)

    def _count(self, step: StepRecord, by: int) -> None:
        if r := entry(step, self.row):
            for rank, right in drawn_ranks(r):
                self._reached[rank] += by
                self._accepted[rank] += by * right
            for rank in accepted_target_ranks(r):
                self._target[rank] += by
            if r.top:
                self._recorded[len(r.top[0])] += by

    def _rates(self) -> list[Rate]:
        last = max((rank for rank, n in self._reached.items() if n), default=-1)
        return [Rate(self._reached[rank], self._accepted[rank]) for rank in range(last + 1)]

    def arrays(self) -> Arrays:
        rates = self._rates()
        if not rates:
            return {}
        found = {
            "sibling, in draw order": {
                "x": [str(rank + 1) for rank in range(len(rates))],
                "y": [round(r.rate, 4) for r in rates],
                "error_y": whiskers(rates),
                "customdata": [f"{r.accepted} of {r.reached}; {interval(r)}" for r in rates],
            }
        }
        if total := self._target.total():
            top = max(k for k, n in self._recorded.items() if n)
            names = [*(str(rank + 1) for rank in range(top)), f"beyond {top}"]
            counts = [self._target[rank] for rank in [*range(top), -1]]
            found["target's rank of the accepted"] = {
                "x": names,
                "y": [round(n / total, 4) for n in counts],
                "customdata": [f"{n} of {total}" for n in counts],
            }
        return found

    def caption(self) -> str:
        rates = self._rates()
        if not rates:
            return "No guess was made yet: acceptance by rank needs a drafter that proposes something."
        first = (
            f"The first sibling was accepted in {percent(rates[0].rate)} of {rates[0].reached} cases "
            f"({interval(rates[0])}), counting children of kept nodes. "
        )
        total = self._target.total()
        if not total:
            return first + "The target's own ranking of accepted guesses was not recorded, or nothing was accepted."
        return (
            first + f"{percent(self._target[0] / total)} of {total} accepted guesses were the target's likeliest token."
        )

    def axes(self) -> dict[str, Any]:
        return {
            "xaxis": axis("rank, 1 is the first", type="category"),
            "yaxis": axis("share", range=[0, 1.02], tickformat=".0%"),
        }

    def traces(self) -> list[Any]:
        return [
            go.Scatter(
                name="sibling, in draw order",
                mode="markers",
                marker={"color": BLUE, "size": 8},
                error_y={"thickness": 1, "width": 4},
                hovertemplate="sibling %{x}: accepted %{y:.0%}<br>%{customdata}<extra></extra>",
            ),
            go.Scatter(
                name="target's rank of the accepted",
                mode="markers",
                marker={"color": VERMILION, "size": 8, "symbol": "diamond-open", "line": {"width": 2}},
                hovertemplate="target's rank %{x}: %{y:.0%} of accepted guesses<br>%{customdata}<extra></extra>",
            ),
        ]

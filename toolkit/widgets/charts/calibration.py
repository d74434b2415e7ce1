"""Calibration: does a guess of confidence c come true in c of all cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from typing import Any

import plotly.graph_objects as go

from toolkit.trace import RowRecord, StepRecord
from toolkit.trace.measures import Bin, Rate, drawn_guesses, error_of, sure_guesses
from toolkit.widgets.charts.chart import BLUE, GREY, Arrays, axis, entry, interval, line, percent, whiskers

BINS = 10


class _Bins:
    """Guesses by confidence, in bins of equal width."""

    def __init__(self, guesses: Callable[[RowRecord], Iterator[tuple[float, bool]]]) -> None:
        self.guesses = guesses
        self.reached, self.accepted, self.sure = [0] * BINS, [0] * BINS, [0.0] * BINS

    def count(self, r: RowRecord, by: int) -> None:
        for confidence, right in self.guesses(r):
            b = min(BINS - 1, int(confidence * BINS))
            self.reached[b] += by
            self.accepted[b] += by * right
            self.sure[b] += by * confidence

    def filled(self) -> list[Bin]:
        return [
            Bin(b / BINS, (b + 1) / BINS, self.sure[b] / n, Rate(n, self.accepted[b]))
            for b, n in enumerate(self.reached)
            if n
        ]


class Calibration:
    """By the drafter's confidence; where it names none, by the probability q its tokens were drawn with."""

    title = "Calibration of the drafter"

    def __init__(self, row: int = 0) -> None:
        self.row = row
        self._bins = {"confidence": _Bins(sure_guesses), "probability q": _Bins(drawn_guesses)}

    def push(self, step: StepRecord) -> None:
        self._count(step, 1)

    def pop(self, step: StepRecord) -> None:
        self._count(step, -1)

    def _count(self, step: StepRecord, by: int) -> None:
        if r := entry(step, self.row):
            for bins in self._bins.values():
                bins.count(r, by)

    def _found(self) -> tuple[str, list[Bin]]:
        return next(((name, found) for name, b in self._bins.items() if (found := b.filled())), ("", []))

    def arrays(self) -> Arrays:
        _, found = self._found()
        if not found:
            return {}
        rates, counts = [b.outcome for b in found], [b.outcome.reached for b in found]
        return {
            "calibrated": {"x": [0, 1], "y": [0, 1]},
            "guesses": {
                "x": [round(b.confidence, 4) for b in found],
                "y": [round(r.rate, 4) for r in rates],
                "error_y": whiskers(rates),
                "text": [str(n) for n in counts],
                "customdata": [
                    f"{b.low:.0%} to {b.high:.0%}: {b.outcome.accepted} of {b.outcome.reached}; {interval(b.outcome)}"
                    for b in found
                ],
                "marker": {"size": [round(6 + 12 * sqrt(n / max(counts)), 1) for n in counts]},
            },
        }

    def caption(self) -> str:
        name, found = self._found()
        if not found:
            return "The drafter names no probability for its guesses, so there is nothing to calibrate."
        return (
            f"Expected calibration error {100 * error_of(found):.1f}%: the gap between {name} and acceptance in "
            f"{BINS} bins of equal width, weighted by guesses (Naeini et al. 2015). {sum(b.outcome.reached for b in found)} guesses "
            f"below kept nodes; a number at a mark is its count. Overall {percent(_rate(found))} accepted."
        )

    def axes(self) -> dict[str, Any]:
        return {
            "xaxis": axis("the drafter's probability", range=[0, 1], tickformat=".0%"),
            "yaxis": axis("accepted", range=[0, 1.02], tickformat=".0%"),
        }

    def traces(self) -> list[Any]:
        return [
            line("calibrated", GREY, "dash", hoverinfo="skip"),
            go.Scatter(
                name="guesses",
                mode="markers+text",
                textposition="top center",
                marker={"color": BLUE, "symbol": "circle", "line": {"width": 0}},
                error_y={"thickness": 1, "width": 4},
                hovertemplate="%{customdata}<br>mean %{x:.1%}, accepted %{y:.1%}<extra></extra>",
            ),
        ]


def _rate(found: list[Bin]) -> float:
    return sum(b.outcome.accepted for b in found) / sum(b.outcome.reached for b in found)

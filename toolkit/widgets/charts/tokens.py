"""Tokens per step: what each target pass brought."""

from __future__ import annotations

from typing import Any

from toolkit.trace import StepRecord
from toolkit.widgets.charts.chart import BLUE, VERMILION, Arrays, axis, entry, line
from toolkit.widgets.charts.series import Series, windows


class TokensPerStep:
    """One point a step, and the acceptance length as a line through all of them."""

    title = "Tokens per step, bonus included"

    def __init__(self, row: int = 0) -> None:
        self.row = row
        self._series = Series(2)  # committed, accepted guesses among them

    def push(self, step: StepRecord) -> None:
        if r := entry(step, self.row):
            self._series.push(step.step, len(r.emitted), r.origins.count("accepted"))

    def pop(self, step: StepRecord) -> None:
        if entry(step, self.row):
            self._series.pop()

    def arrays(self) -> Arrays:
        s = self._series
        if not len(s):
            return {}
        drawn, mean = windows(len(s)), round(s.mean(0), 3)
        return {
            "tokens": {
                "x": [s.place(w) for w in drawn],
                "y": [round(s.mean(0, w), 3) for w in drawn],
                "customdata": [s.label(w) for w in drawn],
            },
            "acceptance length": {"x": [s.steps[0], s.steps[-1]], "y": [mean, mean]},
        }

    def caption(self) -> str:
        s = self._series
        if not len(s):
            return "No step yet: there are no tokens to count."
        return (
            f"Acceptance length {s.mean(0):.2f} with bonus: tokens per step, the bonus or correction counted. "
            f"Without it {s.mean(1):.2f} accepted guesses per step. {len(s)} steps."
        )

    def axes(self) -> dict[str, Any]:
        return {"xaxis": axis("step", tickformat="d"), "yaxis": axis("tokens")}

    def traces(self) -> list[Any]:
        return [
            line(
                "tokens",
                BLUE,
                line_shape="hvh",
                fill="tozeroy",
                hovertemplate="%{customdata}: %{y:.3~g} tokens<extra></extra>",
            ),
            line(
                "acceptance length",
                VERMILION,
                "dash",
                hovertemplate="acceptance length, with bonus: %{y:.2f}<extra></extra>",
            ),
        ]

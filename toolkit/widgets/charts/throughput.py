"""Tokens per second of one row, against plain decoding."""

from __future__ import annotations

from typing import Any

from toolkit.trace import StepRecord
from toolkit.trace.metrics import plain_ms
from toolkit.widgets.charts.chart import BLUE, NOTHING, VERMILION, Arrays, Given, axis, entry, line
from toolkit.widgets.charts.series import Series, Sorted, Window, windows

RUNNING = 16  # steps


class Throughput:
    """Tokens of the row by the milliseconds of its steps, prefill left out, over the last `RUNNING` steps."""

    title = "Tokens per second of this row"

    def __init__(self, row: int = 0, given: Given = NOTHING) -> None:
        self.row, self.given = row, given
        self._series = Series(2)  # tokens, milliseconds
        self._plain = Sorted()

    def push(self, step: StepRecord) -> None:
        if r := entry(step, self.row):
            self._series.push(step.step, len(r.emitted), step.total_ms - step.ms.get("prefill", 0.0))
            if ms := plain_ms(step):
                self._plain.add(ms)

    def pop(self, step: StepRecord) -> None:
        if entry(step, self.row):
            self._series.pop()
            if ms := plain_ms(step):
                self._plain.remove(ms)

    @property
    def baseline(self) -> tuple[float, str] | None:
        """Tokens per second of plain decoding, and where the number is from."""
        if self.given.baseline is not None:
            return self.given.baseline, "baseline, as given"
        if not len(self._plain):
            return None
        return (
            1e3 / self._plain.median(),
            f"median of {len(self._plain)} one-node steps in this trace, drafting left out",
        )

    def _rate(self, window: Window) -> float:
        ms = self._series.sum(1, window)
        return 1e3 * self._series.sum(0, window) / ms if ms > 0 else 0.0

    def arrays(self) -> Arrays:
        s = self._series
        if not s.sum(1) > 0:
            return {}
        drawn, baseline = windows(len(s)), self.baseline
        level = round(baseline[0], 2) if baseline else 0
        return {
            "tokens/s": {
                "x": [s.steps[w.end - 1] for w in drawn],
                "y": [round(self._rate(Window(max(0, min(w.first, w.end - RUNNING)), w.end)), 2) for w in drawn],
            },
            "plain decoding": {"x": [s.steps[0], s.steps[-1]], "y": [level, level], "visible": baseline is not None},
        }

    def caption(self) -> str:
        s = self._series
        if not s.sum(1) > 0:
            return "No step was timed yet: throughput needs the milliseconds of steps."
        rate = self._rate(Window(0, len(s)))
        said = (
            f"{rate:.1f} tokens/s over {len(s)} steps, prefill left out; the line runs over the last {RUNNING} steps. "
        )
        if baseline := self.baseline:
            level, source = baseline
            return said + f"Plain decoding {level:.1f} tokens/s ({source}): {rate / level:.2f} times that."
        return said + "No baseline: this trace has no step of one node, and none was given."

    def axes(self) -> dict[str, Any]:
        return {"xaxis": axis("step", tickformat="d"), "yaxis": axis("tokens/s")}

    def traces(self) -> list[Any]:
        return [
            line("tokens/s", BLUE, hovertemplate="to step %{x}: %{y:.1f} tokens/s<extra></extra>"),
            line("plain decoding", VERMILION, "dash", hovertemplate="plain decoding: %{y:.1f} tokens/s<extra></extra>"),
        ]

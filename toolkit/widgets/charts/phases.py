"""Where the time of a step goes, against the floor: one target pass over one node."""

from __future__ import annotations

from typing import Any

from toolkit.trace import StepRecord
from toolkit.trace.metrics import PhaseMs
from toolkit.widgets.charts.chart import BLUE, GREEN, GREY, NOTHING, PURPLE, VERMILION, Arrays, Given, axis, entry, line
from toolkit.widgets.charts.series import Series, Sorted, windows

LOOKS = {  # colour and hatch
    "prefill": (GREY, "."),
    "draft": (VERMILION, "/"),
    "target": (BLUE, ""),
    "verify": (GREEN, "\\"),
    "commit": (PURPLE, "x"),
}


class PhaseTimes:
    """Milliseconds by phase, stacked. The time is the whole batch's: its rows share a pass."""

    title = "Milliseconds by phase"

    def __init__(self, row: int = 0, given: Given = NOTHING) -> None:
        self.row, self.given = row, given
        self._series = Series(len(LOOKS))
        self._sorted = {name: Sorted() for name in LOOKS}
        self._whole, self._one = Sorted(), Sorted()

    def push(self, step: StepRecord) -> None:
        if not entry(step, self.row):
            return
        self._series.push(step.step, *(step.ms.get(name, 0.0) for name in LOOKS))
        for name, values in self._sorted.items():
            values.add(step.ms.get(name, 0.0))
        self._whole.add(step.total_ms)
        if step.nodes == 1 and "target" in step.ms:
            self._one.add(step.ms["target"])

    def pop(self, step: StepRecord) -> None:
        if not entry(step, self.row):
            return
        self._series.pop()
        for name, values in self._sorted.items():
            values.remove(step.ms.get(name, 0.0))
        self._whole.remove(step.total_ms)
        if step.nodes == 1 and "target" in step.ms:
            self._one.remove(step.ms["target"])

    @property
    def floor(self) -> PhaseMs | None:
        """The floor, and the number of steps it is the median of, 0 for a given one."""
        if self.given.floor_ms is not None:
            return PhaseMs(self.given.floor_ms, 0)
        return PhaseMs(self._one.median(), len(self._one)) if len(self._one) else None

    @property
    def _timed(self) -> bool:
        return len(self._whole) > 0 and self._whole.values[-1] > 0

    def arrays(self) -> Arrays:
        s = self._series
        if not self._timed:
            return {}
        drawn = windows(len(s))
        x, labels = [s.place(w) for w in drawn], [s.label(w) for w in drawn]
        found: Arrays = {
            name: {"x": x, "y": [round(s.mean(i, w), 3) for w in drawn], "customdata": labels, "visible": True}
            if s.sum(i) > 0
            else {"x": [], "y": [], "visible": False}
            for i, name in enumerate(LOOKS)
        }
        floor = self.floor
        level = round(floor.median, 3) if floor else 0
        found["floor"] = {"x": [s.steps[0], s.steps[-1]], "y": [level, level], "visible": floor is not None}
        return found

    def caption(self) -> str:
        if not self._timed:
            return "No step was timed yet."
        parts = [(name, v.median()) for name, v in self._sorted.items() if v.values[-1] > 0]
        whole = self._whole.median()
        said = f"A step takes {whole:.1f} ms (median): " + ", ".join(f"{name} {ms:.1f}" for name, ms in parts) + ". "
        floor = self.floor
        if floor is None:
            return said + "No floor: this trace has no step of one node, and no floor_ms was given."
        source = f"median target pass of {floor.steps} one-node steps in this trace" if floor.steps else "as given"
        return said + f"Floor {floor.median:.1f} ms ({source}): a step takes {whole / floor.median:.2f} times that."

    def axes(self) -> dict[str, Any]:
        return {"xaxis": axis("step", tickformat="d"), "yaxis": axis("ms")}

    def traces(self) -> list[Any]:
        phases = [
            line(
                name,
                colour,
                line_shape="hvh",
                stackgroup="ms",
                fillpattern={"shape": hatch, "solidity": 0.35, "size": 6},
                hovertemplate=f"%{{customdata}}: {name} %{{y:.2f}} ms<extra></extra>",
            )
            for name, (colour, hatch) in LOOKS.items()
        ]
        return [*phases, line("floor", GREY, "dash", hovertemplate="floor: %{y:.2f} ms<extra></extra>")]

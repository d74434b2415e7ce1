"""Pages of a server, or nodes and cache slots of a plain session."""

from __future__ import annotations

from typing import Any

from toolkit.trace import StepRecord
from toolkit.trace.records import Load
from toolkit.widgets.charts.chart import BLUE, GREEN, GREY, VERMILION, Arrays, axis, entry, line
from toolkit.widgets.charts.series import Series, windows

PAGES = ("held", "cached", "free")
ROW = ("nodes in the pass", "tokens kept", "cache slots of the text")


class PagesAndSlots:
    """A server's pages, stacked; without a server the row's nodes in the pass, how many tokens were kept, and the cache
    slots its text fills, on an axis of their own."""

    title = "Pages and slots"

    def __init__(self, row: int = 0) -> None:
        self.row = row
        self._pages, self._row = Series(3), Series(3)
        self._loads: list[Load] = []

    def push(self, step: StepRecord) -> None:
        if load := step.load:
            self._loads.append(load)
            self._pages.push(step.step, load.held, load.cached, load.pages - load.held - load.cached)
        if r := entry(step, self.row):
            self._row.push(step.step, step.nodes, len(r.emitted), r.position)

    def pop(self, step: StepRecord) -> None:
        if step.load:
            self._pages.pop()
            self._loads.pop()
        if entry(step, self.row):
            self._row.pop()

    def arrays(self) -> Arrays:
        served = len(self._pages) > 0
        s = self._pages if served else self._row
        if not len(s):
            return {}
        drawn = windows(len(s))
        x, labels = [s.place(w) for w in drawn], [s.label(w) for w in drawn]
        shown = PAGES if served else ROW
        return {
            name: {
                "x": x,
                "y": [round(s.mean(shown.index(name), w), 3) for w in drawn],
                "customdata": labels,
                "visible": True,
            }
            if name in shown
            else {"x": [], "y": [], "visible": False}
            for name in (*PAGES, *ROW)
        }

    def caption(self) -> str:
        if self._loads:
            last = self._loads[-1]
            return (
                f"Of {last.pages} pages, {last.held} are held by requests (shared ones once), {last.cached} kept by the "
                f"prefix cache alone and {last.pages - last.held - last.cached} free after the last step."
            )
        s = self._row
        if not len(s):
            return "No step yet: there are no pages and no slots to show."
        return (
            f"A pass reads {s.mean(0):.1f} nodes of this row, padding included, and {s.mean(1):.2f} tokens are kept of it "
            f"(with bonus). Right axis: cache slots that the text filled when a step began."
        )

    def axes(self) -> dict[str, Any]:
        return {
            "xaxis": axis("step", tickformat="d"),
            "yaxis": axis("pages, or nodes"),
            "yaxis2": {
                "overlaying": "y",
                "side": "right",
                "rangemode": "tozero",
                "showgrid": False,
                "automargin": True,
            },
        }

    def traces(self) -> list[Any]:
        looks = {"held": (BLUE, ""), "cached": (GREEN, "/"), "free": (GREY, ".")}
        hover = "%{customdata}: %{y:.4~g} "
        stacked = [
            line(
                name,
                colour,
                line_shape="hvh",
                stackgroup="pages",
                fillpattern={"shape": hatch, "solidity": 0.3, "size": 6},
                hovertemplate=f"{hover}pages {name}<extra></extra>",
            )
            for name, (colour, hatch) in looks.items()
        ]
        dashes = ((BLUE, "solid", "y"), (VERMILION, "dash", "y"), (GREY, "dot", "y2"))
        return [
            *stacked,
            *(
                line(name, colour, dash, line_shape="hvh", yaxis=on, hovertemplate=f"{hover}{name}<extra></extra>")
                for name, (colour, dash, on) in zip(ROW, dashes, strict=True)
            ),
        ]

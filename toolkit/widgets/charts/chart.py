"""What a chart is, and how all of them look."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import plotly.graph_objects as go

from toolkit.trace import RowRecord, StepRecord
from toolkit.trace.measures import Rate

# Told apart by any eye, and with at least 3:1 on a white and on a black page; dashes, marks and hatches say the same.
BLUE, VERMILION, GREEN, PURPLE, GREY = "#0072b2", "#d55e00", "#009e73", "#b8609a", "#80868b"
INK = "#6a7178"  # of text where no style sheet gives the page's own: 4.5:1 on white
GRID = "rgba(128,134,139,0.25)"
WIDTH, HEIGHT = 304, 230  # pixels: a figure that has to ask the page for its room is drawn twice, and at first too wide

Arrays = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Given:
    """What the records do not hold.

    floor_ms  milliseconds of a target pass over one node, measured elsewhere
    baseline  tokens per second of plain decoding, measured elsewhere
    """

    floor_ms: float | None = None
    baseline: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("floor_ms", self.floor_ms), ("baseline", self.baseline)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value}; give a measured number above 0, or None to use the trace's own")


NOTHING = Given()


class Chart(Protocol):
    """One chart of one row. It reads steps one by one and takes them back, newest first."""

    title: str

    def push(self, step: StepRecord) -> None: ...
    def pop(self, step: StepRecord) -> None:
        """Take back the newest step."""
        ...

    def arrays(self) -> Arrays:
        """What is drawn: for each trace, by name, plain lists. Empty where there is nothing to show."""
        ...

    def caption(self) -> str:
        """The same in a sentence or two, with the definitions; says what is missing where there is nothing to show."""
        ...

    def axes(self) -> dict[str, Any]:
        """plotly's xaxis and yaxis."""
        ...

    def traces(self) -> list[Any]:
        """The traces without data, named as in `arrays`."""
        ...


def entry(step: StepRecord, row: int) -> RowRecord | None:
    """What happened to a row; None where it has ended, or a server had fewer rows."""
    return step.rows[row] if row < len(step.rows) else None


C = TypeVar("C", bound=Chart)


def read(chart: C, steps: Iterable[StepRecord]) -> C:
    """The chart, with these steps read."""
    for step in steps:
        chart.push(step)
    return chart


def line(name: str, colour: str, dash: str = "solid", **more: Any) -> Any:
    """A trace of a path: a browser draws one where bars are hundreds of shapes."""
    return go.Scatter(name=name, mode="lines", line={"color": colour, "width": 1.5, "dash": dash}, **more)


def axis(title: str, **more: Any) -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 6, "font": {"size": 11}},
        "gridcolor": GRID,
        "zerolinecolor": GRID,
        "rangemode": "tozero",
        "automargin": True,
        **more,
    }


def layout() -> dict[str, Any]:
    """What all figures share."""
    return {
        "height": HEIGHT,
        "margin": {"l": 8, "r": 8, "t": 26, "b": 8},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 11},
            "traceorder": "normal",
        },
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": INK, "size": 11},
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": GREY, "font": {"color": "#1f2328"}},
        "dragmode": False,
    }


def percent(value: float) -> str:
    return f"{value:.0%}"


def interval(rate: Rate) -> str:
    low, high = rate.interval()
    return f"95% Wilson interval {low:.0%} to {high:.0%}"


def whiskers(rates: list[Rate]) -> dict[str, Any]:
    """plotly's error bars for Wilson's interval."""
    ends = [(r.rate, *r.interval()) for r in rates]
    return {
        "type": "data",
        "symmetric": False,
        "array": [round(high - rate, 4) for rate, _, high in ends],
        "arrayminus": [round(rate - low, 4) for rate, low, _ in ends],
    }

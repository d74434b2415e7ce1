"""Pictures of a head that is being trained: live curves, what a draft vocabulary covers, who sees whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import monotonic
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from toolkit.training.plan import Look, Report, StepReport
from toolkit.widgets.charts.shared import Figure

SHOWN = 400  # points of a curve: longer ones are thinned, for they are sent whole at every update
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#9aa0a6")
TITLES = ("Loss", "Right, by depth", "Acceptance length of held-out texts")
_INK, _GRID = "#80868b", "rgba(128,134,139,0.25)"


class TrainingView:
    """Live curves of a `fit`. `watch` passes its reports on, so that a cell reads

        view = TrainingView()
        display(view.widget)
        for report in view.watch(fit(...)):
            ...

    Several runs may follow each other in one view; `name` tells them apart.
    """

    def __init__(self, every: float = 0.5) -> None:
        """`every`: seconds between two updates of the picture."""
        self.widget = Figure(_empty())
        self.every = every
        self._runs: dict[str, list[Report]] = {}

    def watch(self, reports: Iterable[Report], name: str = "") -> Iterator[Report]:
        """The same reports, drawn as they come; the picture is up to date when they end or are broken off."""
        kept = self._runs[name] = []
        drawn = 0.0
        try:
            for report in reports:
                kept.append(report)
                if isinstance(report, Look) or monotonic() - drawn > self.every:
                    self.draw()
                    drawn = monotonic()
                yield report
        finally:
            self.draw()

    def draw(self) -> None:
        """Bring the picture up to date."""
        with self.widget.batch_update():
            for i, (name, reports) in enumerate(self._runs.items()):
                _fill(self.widget, name, reports, i)

    def static(self) -> Any:
        """A plain figure of the same, for pages without a kernel."""
        made = _empty()
        for i, (name, reports) in enumerate(self._runs.items()):
            _fill(made, name, reports, i)
        return made


def _empty() -> Any:
    base = make_subplots(rows=1, cols=3, subplot_titles=TITLES, horizontal_spacing=0.07)
    base.update_layout(**_look(280))
    base.update_xaxes(gridcolor=_GRID, title={"text": "steps"}, rangemode="tozero")
    base.update_yaxes(gridcolor=_GRID)
    base.update_yaxes(range=[0, 1], tickformat=".0%", row=1, col=2)
    return base


def _fill(figure: Any, name: str, reports: Sequence[Report], run: int) -> None:
    steps = [r for r in reports if isinstance(r, StepReport)]
    looks = [r for r in reports if isinstance(r, Look)]
    thin = steps[:: max(1, len(steps) // SHOWN)]
    colour = COLOURS[run % len(COLOURS)]
    _line(figure, 1, f"{name} loss".strip(), [s.step for s in thin], [s.loss for s in thin], colour, name)
    depths = max((len(s.agreement) for s in thin), default=0)
    for d in range(depths):
        some = [s for s in thin if len(s.agreement) > d]
        shade = COLOURS[(run or d) % len(COLOURS)]
        label = f"{name} depth {d + 1}".strip()
        _line(figure, 2, label, [s.step for s in some], [s.agreement[d] for s in some], shade, None)
    found = [look.simulated.acceptance_length for look in looks]
    _line(figure, 3, f"{name} acceptance".strip(), [look.step for look in looks], found, colour, None)


def _line(figure: Any, col: int, name: str, x: list[int], y: list[float], colour: str, legend: str | None) -> None:
    for trace in figure.data:
        if trace.name == name and trace.meta == col:
            trace.x, trace.y = x, y
            return
    mode = "lines+markers" if col == 3 else "lines"
    hover = f"{name}, step %{{x}}: %{{y:.3f}}<extra></extra>"
    figure.add_trace(
        go.Scatter(
            name=name,
            meta=col,
            x=x,
            y=y,
            mode=mode,
            line={"color": colour, "width": 1.5},
            showlegend=bool(legend),
            hovertemplate=hover,
        ),
        1,
        col,
    )


def coverage_figure(sizes: Sequence[int], shares: Sequence[float], chosen: int | None = None) -> Any:
    """What share of the answers' tokens a draft vocabulary of each size can say: an upper bound of acceptance."""
    made = go.Figure(
        go.Scatter(
            x=list(sizes),
            y=list(shares),
            mode="lines+markers",
            line={"color": COLOURS[0]},
            hovertemplate="%{x} tokens: %{y:.2%}<extra></extra>",
        )
    )
    if chosen is not None:
        made.add_vline(x=chosen, line={"color": COLOURS[5], "dash": "dash"}, annotation_text=f"{chosen} chosen")
    made.update_layout(**_look(300), showlegend=False)
    made.update_xaxes(type="log", gridcolor=_GRID, title={"text": "tokens in the draft vocabulary"})
    made.update_yaxes(gridcolor=_GRID, tickformat=".0%", title={"text": "of the answers' tokens"})
    return made


def mask_figure(seen: Sequence[Sequence[bool]], places: int) -> Any:
    """Which keys each place sees: a row a place, `places` keys a pass of training-time test, passes side by side."""
    passes = len(seen[0]) // places
    keys = [f"pass {1 + k // places}, place {k % places}" for k in range(len(seen[0]))]
    made = go.Figure(
        go.Heatmap(
            z=[[int(cell) for cell in row] for row in seen],
            x=keys,
            y=[f"place {i}" for i in range(len(seen))],
            colorscale=[[0, "rgba(128,134,139,0.12)"], [1, COLOURS[0]]],
            showscale=False,
            xgap=1,
            ygap=1,
            hovertemplate="%{y} %{x}: %{z}<extra></extra>",
        )
    )
    for k in range(1, passes):
        made.add_vline(x=k * places - 0.5, line={"color": COLOURS[5], "width": 2})
    made.update_layout(**_look(60 + 18 * places), showlegend=False)
    made.update_xaxes(showticklabels=False, title={"text": f"keys of {passes} passes"})
    made.update_yaxes(autorange="reversed", showticklabels=False, title={"text": "queries"})
    return made


def _look(height: int) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {"l": 48, "r": 10, "t": 28, "b": 44},
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": _INK, "size": 11},
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": -0.2, "yanchor": "top"},
    }

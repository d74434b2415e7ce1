"""Charts as one SVG that needs no script and no style sheet, for notebooks seen without a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from textwrap import wrap
from typing import Any

from toolkit.widgets.charts.chart import Chart

WIDTH, HEIGHT, GAP = 300, 190, 20  # pixels, of one chart
LEFT, RIGHT, TOP, BOTTOM = 34, 8, 40, 34  # room round the plot
DASHES = {"dash": "6 4", "dot": "2 3"}
INK, QUIET, LINE, PAPER = "#1f2328", "#57606a", "#d0d4d9", "#ffffff"


def svg(charts: Sequence[Chart]) -> str:
    """The charts side by side, each with its title, its range and its sentence as a title to hover on."""
    width = len(charts) * (WIDTH + GAP)
    label = escape(" ".join(f"{c.title}: {c.caption()}" for c in charts))
    drawn = "".join(
        f'<g transform="translate({i * (WIDTH + GAP) + GAP / 2},0)">{"".join(_chart(c))}</g>'
        for i, c in enumerate(charts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" role="img" '
        f'aria-label="{label}" style="max-width:100%;font:11px sans-serif">'
        f'<rect width="{width}" height="{HEIGHT}" fill="{PAPER}"/>{drawn}</svg>'
    )


def _chart(chart: Chart) -> Iterator[str]:
    arrays = chart.arrays()
    yield f"<title>{escape(chart.caption())}</title>"
    yield f'<text x="0" y="14" font-weight="600" fill="{INK}">{escape(chart.title)}</text>'
    if not arrays:
        yield _words(chart.caption())
        return
    traces = [
        (t, arrays[t.name])
        for t in chart.traces()
        if arrays.get(t.name, {}).get("visible", True) and arrays.get(t.name)
    ]
    stacked = _stack(traces)
    top = max([y for _, a, _ in stacked for y in a["y"]] or [1]) or 1
    if (fixed := chart.axes()["yaxis"].get("range")) is not None:
        top = min(1.0, fixed[1])  # a share: what is above leaves room for marks on a live chart
    xs = [x for _, a, _ in stacked for x in a["x"]]
    low, high = min(xs), max(xs)
    if low == high:
        low, high = low - 1, high + 1

    def at(x: float, y: float) -> str:
        return (
            f"{LEFT + (x - low) / (high - low) * (WIDTH - LEFT - RIGHT):.1f},"
            f"{HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM):.1f}"
        )

    percent = chart.axes()["yaxis"].get("tickformat") == ".0%"
    for share in (0, 0.5, 1):
        y = HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
        said = f"{share * top:.0%}" if percent else _number(share * top)
        yield f'<path d="M{LEFT},{y:.1f}H{WIDTH - RIGHT}" stroke="{LINE}"/>'
        yield f'<text x="{LEFT - 4}" y="{y + 4:.1f}" text-anchor="end" fill="{QUIET}">{said}</text>'
    for x, anchor in ((low, "start"), (high, "end")):
        place = at(x, 0).split(",")[0]
        yield f'<text x="{place}" y="{HEIGHT - BOTTOM + 14}" text-anchor="{anchor}" fill="{QUIET}">{_number(x)}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    title = escape(chart.axes()["xaxis"]["title"]["text"])
    yield f'<text x="{middle}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle" fill="{QUIET}">{title}</text>'
    yield from _drawn(stacked, at)
    yield from _legend(stacked)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _stack(traces: Sequence[tuple[Any, dict[str, Any]]]) -> list[tuple[Any, dict[str, Any], list[float] | None]]:
    """Each trace with what it stands on: the sum of those before in its stack, or None."""
    found, below = [], None
    for trace, arrays in traces:
        if not getattr(trace, "stackgroup", None):
            found.append((trace, arrays, None))
            continue
        base = below or [0.0] * len(arrays["y"])
        below = [a + b for a, b in zip(base, arrays["y"], strict=True)]
        found.append((trace, {**arrays, "y": below}, base))
    return found


def _drawn(
    stacked: Sequence[tuple[Any, dict[str, Any], list[float] | None]], at: Callable[[float, float], str]
) -> Iterator[str]:
    # The top of a stack first, so that those below stay visible.
    for trace, arrays, base in reversed(stacked):
        points = list(zip(arrays["x"], arrays["y"], strict=True))
        colour = trace.line.color or trace.marker.color
        if base is not None or trace.fill:
            under = list(zip(arrays["x"], base or [0.0] * len(points), strict=True))
            if trace.fill != "tonexty":
                yield f'<path d="M{"L".join(at(*p) for p in [*points, *reversed(under)])}Z" fill="{colour}" fill-opacity="0.3"/>'
        if trace.line.width == 0:
            continue
        if "lines" in trace.mode:
            path = f'd="M{"L".join(at(*p) for p in points)}" fill="none" stroke="{colour}" stroke-width="1.5"'
            yield f'<path {path} stroke-dasharray="{DASHES.get(trace.line.dash, "none")}"/>'
        if "markers" in trace.mode:
            for p in points:
                x, y = at(*p).split(",")
                yield f'<circle cx="{x}" cy="{y}" r="3" fill="{PAPER if trace.line.dash == "dash" else colour}" stroke="{colour}"/>'
        if "error_y" in arrays:
            for (x, y), up, down in zip(
                points, arrays["error_y"]["array"], arrays["error_y"]["arrayminus"], strict=True
            ):
                yield f'<path d="M{at(x, y - down)}L{at(x, y + up)}" stroke="{colour}"/>'


def _legend(stacked: Sequence[tuple[Any, dict[str, Any], list[float] | None]]) -> Iterator[str]:
    x = 0.0
    for trace, _, _ in stacked:
        if trace.showlegend is False or trace.line.width == 0:
            continue
        colour = trace.line.color or trace.marker.color
        dash = DASHES.get(trace.line.dash, "none")
        yield f'<path d="M{x:.0f},28h16" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
        yield f'<text x="{x + 20:.0f}" y="32" fill="{QUIET}">{escape(trace.name)}</text>'
        x += 32 + 5.6 * len(trace.name)


def _words(sentence: str) -> str:
    lines = "".join(f'<tspan x="0" dy="15">{escape(part)}</tspan>' for part in wrap(sentence, 48))
    return f'<text y="30" fill="{QUIET}">{lines}</text>'

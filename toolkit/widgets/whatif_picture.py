"""The what-if panel's bars, sentences and static page. Every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from toolkit.trace import RowRecord
from toolkit.whatif import Comparison
from toolkit.widgets.charts.shared import Figure

WAS, WOULD = "#9aa0a6", "#0072b2"
_SIDES = (("as it was", WAS), ("what if", WOULD))


def bars() -> Any:
    """The empty figure: shares of seeds as bars, exact probabilities as diamonds."""
    base = go.Figure()
    for name, colour in _SIDES:
        base.add_trace(
            go.Bar(
                name=name,
                marker_color=colour,
                legendgroup=name,
                offsetgroup=name,
                hovertemplate="%{x} guesses kept: %{y:.1%} of the seeds<extra>" + name + "</extra>",
            )
        )
    for i, (name, colour) in enumerate(_SIDES):
        base.add_trace(
            go.Scatter(
                name=f"{name}, exactly",
                mode="markers",
                legendgroup=name,
                marker={"symbol": "diamond", "size": 9, "color": colour, "line": {"color": "#d55e00", "width": 1.5}},
                hovertemplate="exactly %{y:.2%}<extra>" + name + "</extra>",
                meta=0.2 * (2 * i - 1),  # beside each other, on their bars
            )
        )
    base.update_layout(
        height=220,
        margin={"l": 44, "r": 10, "t": 10, "b": 40},
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": "#80868b", "size": 11},
        bargap=0.2,
    )
    base.update_xaxes(title="guesses kept", dtick=1, gridcolor="rgba(128,134,139,0.2)")
    base.update_yaxes(title="share of seeds", tickformat=".0%", rangemode="tozero", gridcolor="rgba(128,134,139,0.25)")
    return Figure(base)


def fill(figure: Any, found: Comparison | None) -> None:
    """Show an answer, or none."""
    for i, side in enumerate((found.before, found.after) if found else (None, None)):
        bar, mark = figure.data[i], figure.data[2 + i]
        bar.x = list(range(len(side.seen.counts))) if side else []
        bar.y = [c / side.seen.seeds for c in side.seen.counts] if side else []
        mark.x = [n + mark.meta for n in range(len(side.law))] if side else []
        mark.y = list(side.law) if side else []


def kept(title: str, record: RowRecord) -> str:
    """A heading with how many guesses were kept."""
    many = len(record.token) - 1
    return f"<b>{escape(title)}</b>: {len(record.path) - 1} of {many} guess{'' if many == 1 else 'es'} kept"


def notes_html(found: Comparison) -> str:
    """The figures in words, and what has to be said of them."""
    said = ["Exact: the parameters keep recorded tokens alone."] if found.exact else []
    lines = [*_figures(found), *said, *found.notes]
    return "<ul style='margin:4px 0;line-height:1.5'>" + "".join(f"<li>{escape(x)}</li>" for x in lines) + "</ul>"


def comparison_html(told: Sequence[tuple[str, str]], found: Comparison | None, notes: str) -> str:
    """Both trees, the shares as a table, and the sentences. `told` and `notes` are HTML already."""
    sides = "".join(f'<div style="flex:1 1 0;overflow:auto"><p>{title}</p>{svg}</div>' for title, svg in told)
    return (
        f'<div style="font-family:sans-serif;font-size:12px"><div style="display:flex;gap:12px">{sides}</div>'
        f"{_table(found) if found else ''}{notes}</div>"
    )


def _figures(found: Comparison) -> list[str]:
    out = []
    for (name, _), side in zip(_SIDES, (found.before, found.after), strict=True):
        if side:
            exactly = f", exactly {sum(n * x for n, x in enumerate(side.law)):.3f}" if side.law else ""
            out.append(
                f"{name[0].upper()}{name[1:]}, over {side.seen.seeds:,} seeds: {side.seen.mean:.2f} guesses kept a step, "
                f"{side.seen.mean_with_bonus:.2f} tokens with the bonus{exactly}."
            )
    return out


def _table(found: Comparison) -> str:
    sides = [(name, s) for (name, _), s in zip(_SIDES, (found.before, found.after), strict=True) if s]
    if not sides:
        return ""
    longest = max(len(s.seen.counts) for _, s in sides)
    head = "".join(f"<th>{n}</th>" for n in range(longest))
    body = ""
    for name, s in sides:
        shares = [f"{c / s.seen.seeds:.1%}" for c in s.seen.counts]
        body += _line(name, shares, longest)
        if s.law:
            body += _line(f"{name}, exactly", [f"{x:.1%}" for x in s.law], longest)
    return f"<table><tr><th>guesses kept</th>{head}</tr>{body}</table>"


def _line(name: str, cells: Sequence[str], longest: int) -> str:
    padded = [*cells, *[""] * (longest - len(cells))]
    return f"<tr><td>{escape(name)}</td>" + "".join(f"<td>{c}</td>" for c in padded) + "</tr>"

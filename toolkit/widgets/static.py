"""The last state as plain HTML and SVG, for notebooks seen without a kernel. Every text is escaped."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from toolkit.widgets.scene import HEIGHT, MARGIN, MARKS, WIDTH, Place, folded, layout

COLOURS = {
    "pending": "#6b7280",
    "kept": "#0072b2",
    "rejected": "#d55e00",
    "unreached": "#9aa0a6",
    "bonus": "#009e73",
    "correction": "#d55e00",
}
RADII = {"rejected": 0, "bonus": 11, "correction": 11}
DASHES = {"rejected": "5 3", "unreached": "2 3"}


def tree_svg(scene: dict[str, Any], below: float = -1.0) -> str:
    """An SVG of a scene that needs no style sheet and no script. below: as `TreeView.collapse_below`."""
    nodes = scene["nodes"]
    hidden = folded(nodes, scene["below"] if below < 0 else below)
    seen = [i for i in range(len(nodes)) if i not in hidden]
    place = {i: n for n, i in enumerate(seen)}
    places = layout([place.get(nodes[i]["parent"], -1) for i in seen])
    width = max(p.x for p in places) + WIDTH / 2 + MARGIN
    height = max(p.y for p in places) + HEIGHT / 2 + MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(scene["summary"])}" style="max-width:100%;font:12px monospace">'
    ]
    out += [_edge(places[place[nodes[i]["parent"]]], at, nodes[i]) for i, at in zip(seen, places, strict=True) if i]
    away = Counter(_first(nodes, i, hidden) for i in hidden)
    for i, at in zip(seen, places, strict=True):
        node, state = nodes[i], nodes[i]["state"]
        card = escape("\n".join(f"{name}: {value}" for name, value in node.get("card", ())))
        more = f" +{away[i]}" if away[i] else ""
        out.append(
            f'<g transform="translate({at.x},{at.y})"><title>{card}</title>'
            f'<rect x="{-WIDTH / 2}" y="{-HEIGHT / 2}" width="{WIDTH}" height="{HEIGHT}" rx="{RADII.get(state, 5)}" '
            f'fill="#ffffff" stroke="{COLOURS[state]}" stroke-width="{1 if state == "unreached" else 2}" '
            f'stroke-dasharray="{DASHES.get(state, "none")}"/>'
            f'<text text-anchor="middle" dy="4" fill="#1f2328">{MARKS[state]} {escape(node["label"])}{more}</text></g>'
        )
    return "".join([*out, "</svg>"])


def _first(nodes: Sequence[dict[str, Any]], i: int, hidden: set[int]) -> int:
    """The nearest node above that is shown."""
    while i in hidden:
        i = nodes[i]["parent"]
    return i


def _edge(a: Place, b: Place, node: dict[str, Any]) -> str:
    x1, x2 = a.x + WIDTH / 2, b.x - WIDTH / 2
    middle = (x1 + x2) / 2
    return (
        f'<path d="M{x1},{a.y}C{middle},{a.y} {middle},{b.y} {x2},{b.y}" fill="none" '
        f'stroke="{COLOURS[node["state"]]}" stroke-width="{1 + 4 * math.sqrt(node["p"]):.2f}" stroke-opacity="0.75" '
        f'stroke-dasharray="{DASHES.get(node["state"], "none")}"/>'
    )


def ribbon_html(pieces: Iterable[tuple[str, str, int]]) -> str:
    """The text with each piece marked by how it came: colour, underline style and a title."""
    lines = {"accepted": "solid", "bonus": "dotted", "correction": "double"}
    colours = {"accepted": COLOURS["kept"], "bonus": COLOURS["bonus"], "correction": COLOURS["correction"]}
    spans = [
        escape(text)
        if origin not in lines
        else f'<span title="{origin}, step {step}" style="text-decoration:underline {lines[origin]} {colours[origin]} 2px;'
        f'text-underline-offset:4px">{escape(text)}</span>'
        for text, origin, step in pieces
    ]
    return f'<div style="white-space:pre-wrap;font-family:monospace;line-height:1.9">{"".join(spans)}</div>'

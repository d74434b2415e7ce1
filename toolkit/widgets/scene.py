"""A step's token tree as plain data to draw: where each node stands, what it is, what its card says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.trace import RowRecord
from toolkit.trace.labels import short, visible
from toolkit.trace.records import ACCEPTED, NOT_TESTED, REJECTED

Decode = Callable[[Sequence[int]], str]
LEVEL, LINE, WIDTH, HEIGHT, MARGIN = 112, 30, 84, 22, 10  # pixels
MARKS = {"pending": "▸", "kept": "✓", "rejected": "✗", "unreached": "·", "bonus": "+", "correction": "↻"}


@dataclass(frozen=True, slots=True)
class Place:
    x: float
    y: float


def layout(parent: Sequence[int]) -> list[Place]:
    """Depth to the right, leaves one line each in index order, a parent half-way between its first and last child."""
    children: list[list[int]] = [[] for _ in parent]
    depth = [0] * len(parent)
    for i, p in enumerate(parent):
        if p >= 0:
            children[p].append(i)
            depth[i] = depth[p] + 1
    y = [0.0] * len(parent)
    lines, stack = 0, [(0, False)]
    while stack:
        node, done = stack.pop()
        if done:
            y[node] = (y[children[node][0]] + y[children[node][-1]]) / 2
        elif children[node]:
            stack.append((node, True))
            stack.extend((c, False) for c in reversed(children[node]))
        else:
            y[node] = lines * LINE
            lines += 1
    half = WIDTH / 2 + MARGIN
    return [Place(half + d * LEVEL, HEIGHT / 2 + MARGIN + at) for d, at in zip(depth, y, strict=True)]


def scene(record: RowRecord, decode: Decode, step: int) -> dict[str, Any]:
    """What the tree view draws: nodes in index order, the token that the target added last."""
    parent = [*record.parent, record.tip]
    token = [*record.token, record.bonus]
    states = [*_states(record), "correction" if record.corrected else "bonus"]
    places = layout(parent)
    nodes = [
        {
            "x": round(at.x, 1),
            "y": round(at.y, 1),
            "parent": parent[i],
            "state": states[i],
            "label": f"{MARKS[states[i]]} {short(decode([token[i]]))}",
            "weight": round(1 + 4 * math.sqrt(_likelihood(record, i)), 2),
            "card": _card(record, i, token[i], states[i], decode),
        }
        for i, at in enumerate(places)
    ]
    accepted = len(record.path) - 1
    return {
        "step": step,
        "nodes": nodes,
        "width": round(max(p.x for p in places) + WIDTH / 2 + MARGIN, 1),
        "height": round(max(p.y for p in places) + HEIGHT / 2 + MARGIN, 1),
        "summary": f"Step {step}: {len(record.token) - 1} guesses, {accepted} accepted, then a {states[-1]} "
        f"{visible(decode([record.bonus]))}",
    }


def _states(record: RowRecord) -> list[str]:
    path = set(record.path)
    names = {NOT_TESTED: "unreached", ACCEPTED: "kept", REJECTED: "rejected"}
    kept = ["kept" if i in path else names[o] for i, o in enumerate(record.outcome)]
    return ["pending", *kept[1:]]


def _likelihood(record: RowRecord, i: int) -> float:
    """What the edge's width shows: the target's probability where recorded, else the drafter's."""
    if i == len(record.token):
        found = [p for t, p in (record.top[record.tip] if record.top else ()) if t == record.bonus]
        return found[0] if found else 0.25
    values = record.prob or record.confidence or record.p
    return min(1.0, max(0.0, values[i])) if i and values else 1.0


def _card(record: RowRecord, i: int, token: int, state: str, decode: Decode) -> list[tuple[str, str]]:
    """Lines of (name, value) about one node."""
    lines = [("token", f"{visible(decode([token]))}  (id {token})"), ("outcome", state)]
    if i == len(record.token):
        return lines
    if i:
        if record.prob:
            lines.append(("target, temperature 1", f"{record.prob[i]:.4f}"))
        if record.confidence:
            lines.append(("drafter's confidence", f"{record.confidence[i]:.4f}"))
        lines.append(("p, after sampling", f"{record.p[i]:.4f}"))
        if record.outcome[i] != NOT_TESTED:
            certain = " (certain)" if record.q[i] == 1 else ""
            lines.append(("q", f"{record.q[i]:.4f}{certain}"))
            lines.append(("accept with", f"{record.accept[i]:.4f}"))
            if not math.isnan(record.u[i]):
                sign = "<" if record.u[i] < record.accept[i] else "≥"
                lines.append(("u", f"{record.u[i]:.4f} {sign} {record.accept[i]:.4f}"))
    if record.top:
        lines.append(("target goes on", " · ".join(f"{short(decode([t]))} {p:.2f}" for t, p in record.top[i])))
    return lines

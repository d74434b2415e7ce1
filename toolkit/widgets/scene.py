"""A step's token tree as plain data to draw: what each node is, how likely, and what its card says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from toolkit.trace import RowRecord
from toolkit.trace.labels import short, visible
from toolkit.trace.records import ACCEPTED, NOT_TESTED, REJECTED
from toolkit.widgets.walk import walk

Decode = Callable[[Sequence[int]], str]
Residual = Callable[[int], Sequence[tuple[int, float]]]
"""Node to the likeliest tokens, with their probabilities, of what was left after its refused children."""
LEVEL, LINE, WIDTH, HEIGHT, MARGIN = 112, 30, 84, 22, 10  # pixels
MARKS = {"pending": "▸", "kept": "✓", "rejected": "✗", "unreached": "·", "bonus": "+", "correction": "↻"}
READABLE = 48  # nodes that are shown at once unless more are asked for


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


def scene(
    record: RowRecord, decode: Decode, step: int, *, told: bool = True, residual: Residual | None = None
) -> dict[str, Any]:
    """What the tree view draws: nodes in index order, the token that the target added last.

    told  with the nodes' cards and the walk through the tests; else `details` gives them when somebody looks. Most of a big
          scene is cards that nobody opens.
    """
    parent = [*record.parent, record.tip]
    token = [*record.token, record.bonus]
    states = [*_states(record), "correction" if record.corrected else "bonus"]
    path = path_probability(record)
    nodes: list[dict[str, Any]] = [
        {
            "parent": parent[i],
            "state": states[i],
            "label": short(decode([token[i]]), 8),
            "p": round(_likelihood(record, i, record.prob or record.p), 4),
            "q": round(_likelihood(record, i, record.confidence or record.q), 4),
            "path": round(path[i], 6),
        }
        for i in range(len(token))
    ]
    accepted = len(record.path) - 1
    made = {
        "step": step,
        "nodes": nodes,
        "below": readable(nodes),
        "summary": f"Step {step}: {len(record.token) - 1} guesses, {accepted} accepted, then a {states[-1]} "
        f"{visible(decode([record.bonus]))}",
    }
    if told:
        more = details(record, decode, residual)
        made["walk"] = more["walk"]
        for node, card in zip(nodes, more["cards"], strict=True):
            node["card"] = card
    return made


def details(record: RowRecord, decode: Decode, residual: Residual | None = None) -> dict[str, Any]:
    """cards: lines of (name, value) of every node. walk: the tests in their order."""
    states = [*_states(record), "correction" if record.corrected else "bonus"]
    token = [*record.token, record.bonus]
    cards = [_card(record, i, token[i], states[i], decode, residual) for i in range(len(token))]
    return {"cards": cards, "walk": [asdict(stop) for stop in walk(record, decode)]}


def folded(nodes: Sequence[dict[str, Any]], below: float) -> set[int]:
    """Nodes to hide: those less likely than `below` along their path, with all that follows them, but never what was tested
    or kept."""
    hidden: set[int] = set()
    for i, node in enumerate(nodes):
        if node["parent"] in hidden or (node["state"] == "unreached" and node["path"] < below):
            hidden.add(i)
    return hidden


def readable(nodes: Sequence[dict[str, Any]], most: int = READABLE) -> float:
    """The lowest path probability for `folded` that leaves about `most` nodes; 0 where nothing has to be hidden."""
    spare = sorted((node["path"] for node in nodes if node["state"] == "unreached"), reverse=True)
    room = max(0, most - (len(nodes) - len(spare)))
    return 0.0 if len(spare) <= room else math.nextafter(spare[room], math.inf)


def path_probability(record: RowRecord) -> list[float]:
    """Of each node, by the drafter's confidence where it has one, else by the target; the added token's last."""
    own = record.confidence or record.prob or record.p
    out: list[float] = []
    for i, parent in enumerate(record.parent):
        out.append(1.0 if parent < 0 else out[parent] * min(1.0, max(0.0, own[i] if own else 1.0)))
    return [*out, 1.0]


def _states(record: RowRecord) -> list[str]:
    path = set(record.path)
    names = {NOT_TESTED: "unreached", ACCEPTED: "kept", REJECTED: "rejected"}
    kept = ["kept" if i in path else names[o] for i, o in enumerate(record.outcome)]
    return ["pending", *kept[1:]]


def _likelihood(record: RowRecord, i: int, values: Sequence[float]) -> float:
    """What an edge's width shows."""
    if i == len(record.token):
        found = [p for t, p in (record.top[record.tip] if record.top else ()) if t == record.bonus]
        return found[0] if found else 0.25
    return min(1.0, max(0.0, values[i])) if i and values else 1.0


def _card(
    record: RowRecord, i: int, token: int, state: str, decode: Decode, residual: Residual | None
) -> list[tuple[str, str]]:
    """Lines of (name, value) about one node."""
    lines = [("token", f"{visible(decode([token]))}  (id {token})"), ("outcome", state)]
    above = record.tip if i == len(record.token) else record.parent[i]
    if above >= 0 and record.top:
        ranks = [t for t, _ in record.top[above]]
        rank = f"{ranks.index(token) + 1}" if token in ranks else f"beyond {len(ranks)}"
        lines.append(("rank for the target", rank))
    if i == len(record.token):
        return lines
    if i:
        siblings = [j for j, p in enumerate(record.parent) if p == above]
        lines.append(("drawn", f"{siblings.index(i) + 1} of {len(siblings)}"))
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
        lines.append(("target goes on", _likely(record.top[i], decode)))
    if residual and (left := residual(i)):
        lines.append(("left for a correction", _likely(left, decode)))
    return lines


def _likely(tokens: Sequence[tuple[int, float]], decode: Decode) -> str:
    return " · ".join(f"{short(decode([t]))} {p:.2f}" for t, p in tokens)

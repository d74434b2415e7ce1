"""The prefix cache of a server's snapshot as a tree of boxes."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

from toolkit.trace import PrefixNode, Snapshot
from toolkit.widgets.scene import HEIGHT, LEVEL, LINE, MARGIN, WIDTH, layout
from toolkit.widgets.serving_labels import Labels, Text, brief, count, named, text_lines

BOXES = 96  # boxes drawn of the prefix cache
RUN = 5  # pages of one unbranched text that are drawn one by one
BOX_WIDTH, BOX_HEIGHT, BOX_LEVEL, BOX_LINE = 130, 36, 152, 44  # pixels
START_WIDTH = 64


def prefix_boxes(snapshot: Snapshot, labels: Labels, text: Text) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The boxes, the first of which is where all texts begin, and the size of the picture."""
    runs, above = _runs(snapshot)
    kept, below = _cut(runs, above, snapshot.prefix)
    place = {knot: i + 1 for i, knot in enumerate(kept)}
    parent = [-1, *(place.get(above[k], 0) for k in kept)]
    # The token tree's layout, in boxes and distances of our own.
    at = [
        (
            round(START_WIDTH - BOX_WIDTH / 2 + MARGIN + (p.x - WIDTH / 2 - MARGIN) / LEVEL * BOX_LEVEL, 1),
            round(BOX_HEIGHT / 2 + MARGIN + (p.y - HEIGHT / 2 - MARGIN) / LINE * BOX_LINE, 1),
        )
        for p in layout(parent)
    ]
    at[0] = (MARGIN + START_WIDTH / 2, at[0][1])
    boxes = [_start(snapshot), *(_box([snapshot.prefix[i] for i in runs[k]], snapshot, labels, text) for k in kept)]
    for box, (x, y), above_it, cut in zip(boxes, at, parent, [0, *(below[k] for k in kept)], strict=True):
        box |= {"x": x, "y": y, "parent": above_it}
        if cut:
            box["small"] = (
                box["small"] + f" +{cut}" if len(box["small"]) < 18 else f"{box['small'].split(' · ')[0]} +{cut}"
            )
            box["card"] = [*box["card"], ("not drawn", f"{count(cut, 'page')} after this one")]
    missing = len(snapshot.prefix) - sum(len(runs[k]) for k in kept)
    tree = {
        "width": max(x for x, _ in at) + BOX_WIDTH / 2 + MARGIN,
        "height": max(y for _, y in at) + BOX_HEIGHT / 2 + MARGIN,
        "summary": f"{count(len(snapshot.prefix), 'page')} of text kept for requests that begin alike",
        "more": f"+{count(missing, 'more page')} not drawn" if missing else "",
    }
    return (boxes if snapshot.prefix else []), tree


def _runs(snapshot: Snapshot) -> tuple[list[list[int]], list[int]]:
    """Groups of nodes that become one box each, and the group before each, -1 for none: single nodes, but the inner pages
    of a long text that nothing branches off from and the same requests hold are one."""
    below: list[list[int]] = [[] for _ in snapshot.prefix]
    begin = []
    for i, node in enumerate(snapshot.prefix):
        (below[node.parent] if node.parent >= 0 else begin).append(i)
    runs: list[list[int]] = []
    above: list[int] = []
    todo = [(i, -1) for i in reversed(begin)]
    while todo:
        i, before = todo.pop()
        run = [i]
        while len(below[run[-1]]) == 1 and _alike(snapshot, run[-1], below[run[-1]][0]):
            run.append(below[run[-1]][0])
        for part in [[run[0]], run[1:-1], [run[-1]]] if len(run) > RUN else [[r] for r in run]:
            runs.append(part)
            above.append(before)
            before = len(runs) - 1
        todo += [(b, before) for b in reversed(below[run[-1]])]
    return runs, above


def _alike(snapshot: Snapshot, a: int, b: int) -> bool:
    one, other = snapshot.prefix[a], snapshot.prefix[b]
    return one.held == other.held and snapshot.pages[one.page] == snapshot.pages[other.page]


def _cut(
    runs: Sequence[Sequence[int]], above: Sequence[int], prefix: Sequence[PrefixNode]
) -> tuple[list[int], Counter[int]]:
    """The groups that are drawn: those nearest to the beginning, held ones first; and the pages left out after each."""
    depth: list[int] = []
    for a in above:
        depth.append(0 if a < 0 else depth[a] + 1)
    order = sorted(range(len(runs)), key=lambda k: (depth[k], not prefix[runs[k][0]].held, k))
    kept = set(order[:BOXES])
    below: Counter[int] = Counter()
    for k in order[BOXES:]:
        before = above[k]
        while before >= 0 and before not in kept:
            before = above[before]
        below[before] += len(runs[k])
    return sorted(kept), below


def _start(snapshot: Snapshot) -> dict[str, Any]:
    card = [("beginning", f"of {count(sum(n.parent < 0 for n in snapshot.prefix), 'text')}")]
    empty = {"small": "", "colours": [], "who": [], "pages": []}
    return {"state": "start", "label": "start", "wide": START_WIDTH, **empty, "card": card}


def _box(nodes: Sequence[PrefixNode], snapshot: Snapshot, labels: Labels, text: Text) -> dict[str, Any]:
    first, last = nodes[0], nodes[-1]
    holders = list(dict.fromkeys(snapshot.pages[first.page]))
    who = [labels[r] for r in holders]
    letters = " ".join(who) if len(who) <= 3 else f"{' '.join(who[:2])} and {len(who) - 2}"
    state = letters or ("held" if first.held else "cached")
    names = ("held by", named([(r, "") for r in holders], labels) or ("a request" if first.held else "nobody"))
    one = len(nodes) == 1
    if one:
        card = [("page", str(first.page)), names, *text_lines(first, text)]
    else:
        said = f"{brief(text(first.tokens), 48)} … {brief(text(last.tokens), 48)}"
        card = [("pages", f"{len(nodes)} of one text"), names, ("prefix cache", said)]
    return {
        "state": "held" if first.held else "cached",
        "label": _fit(text(first.tokens)) if one else f"⋯ {len(nodes)} pages ⋯",
        "small": f"page {first.page} · {state}" if one else state,
        "wide": BOX_WIDTH,
        "colours": [labels.colour(r) for r in holders][:3],
        "who": who,
        "pages": [n.page for n in nodes],
        "card": card,
    }


def _fit(text: str) -> str:
    """`short`, to the width of a box: characters of Chinese or Japanese are twice as wide as Latin ones."""
    wide = any(unicodedata.east_asian_width(c) in "WF" for c in text[:15])
    return brief(text, 8 if wide else 15)

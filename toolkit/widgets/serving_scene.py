"""A server's snapshot as plain data to draw: a cell for every page, a chip for every request, the prefix cache as a tree."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from math import ceil
from typing import Any

from toolkit.trace import Event, PrefixNode, Snapshot
from toolkit.trace.labels import short, visible
from toolkit.widgets.scene import HEIGHT, LEVEL, LINE, MARGIN, WIDTH, layout

Text = Callable[[tuple[int, ...]], str]  # the text of a page's tokens
Card = list[tuple[str, str]]

CELLS = 1024  # more pages than this share cells
CHIPS = 24  # requests drawn in a lane
BOXES = 96  # boxes drawn of the prefix cache
RUN = 5  # pages of one unbranched text that are drawn one by one
NAMED = 6  # requests named in a card
IDS = 16  # token ids in a card
COLOURS = 8  # in the palette
BOX_WIDTH, BOX_HEIGHT, BOX_LEVEL, BOX_LINE = 130, 36, 152, 44  # pixels
START_WIDTH = 64
_short = lru_cache(maxsize=4096)(short)  # the same ids and texts are shown again and again

MARKS = {"added": "+", "admitted": "→", "prefilled": "▤", "preempted": "↺", "finished": "✓", "aborted": "✗"}
LANES = ("waiting", "prefilling", "running")


class Labels:
    """A letter and a colour for every request in sight, the same as long as it is in sight: A to Z in turn, A1 to Z1 where
    these are not enough, and the colour that the fewest have. A letter that falls free is the last to be given again, so
    that it does not jump to another request."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._colour: dict[str, int] = {}
        self._next = 0

    def keep(self, here: Iterable[str], gone: Iterable[str] = ()) -> None:
        """These are in sight now, and no others. The colours of those that are `gone` may be given again."""
        live = set(here := list(here))
        seen = dict.fromkeys([*gone, *here])
        self._number = {r: n for r, n in self._number.items() if r in seen}
        self._colour = {r: self._colour[r] for r in self._number}
        shown = Counter(dict.fromkeys(range(COLOURS), 0))
        shown.update(c for r, c in self._colour.items() if r in live)
        used, ring = set(self._number.values()), 26 * (len(seen) // 26 + 1)
        for request in seen:
            if request not in self._number:
                while self._next % ring in used:
                    self._next += 1
                self._number[request] = self._next % ring
                used.add(self._number[request])
                self._next = (self._next + 1) % ring
                self._colour[request] = min(shown, key=lambda c: (shown[c], c))
                shown[self._colour[request]] += request in live

    def __getitem__(self, request: str) -> str:
        turn, letter = divmod(self._number[request], 26)
        return chr(ord("A") + letter) + (str(turn) if turn else "")

    def colour(self, request: str) -> int:
        """Its place in the palette."""
        return self._colour[request]

    def name(self, request: str) -> str:
        """Letter and id."""
        return f"{self[request]} {_short(request, 24)}"


def requests_of(snapshot: Snapshot) -> Iterable[str]:
    """Everybody a snapshot speaks of."""
    return chain(snapshot.running, snapshot.prefilling, snapshot.waiting, chain.from_iterable(snapshot.pages))


def scene(
    snapshot: Snapshot,
    labels: Labels,
    text: Text,
    log: Sequence[Event] = (),
    preempted: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """What the serving view draws. `labels` knows every request of the snapshot and the log; `preempted` says how often
    each was."""
    nodes, tree = _prefix(snapshot, labels, text)
    cells = _cells(snapshot, labels, text)
    return {
        "head": _head(snapshot, len(cells)),
        "cells": cells,
        "lanes": [_lane(snapshot, lane, labels, preempted or {}) for lane in LANES],
        "log": [_line(event, labels) for event in log],
        "nodes": nodes,
        "tree": tree,
    }


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What makes `new` of `old`: whole parts, or {place: entry} where a list kept its length."""
    out: dict[str, Any] = {}
    for name, part in new.items():
        had = old.get(name)
        if part == had:
            continue
        if isinstance(part, list) and isinstance(had, list) and len(part) == len(had):
            out[name] = {i: b for i, (a, b) in enumerate(zip(had, part, strict=True)) if a != b}
        else:
            out[name] = part
    return out


def count(n: int, noun: str) -> str:
    """`1 page`, `2 pages`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


# ---- pages -----------------------------------------------------------------------------------------------------------


def _head(snapshot: Snapshot, cells: int) -> dict[str, Any]:
    pages = len(snapshot.pages)
    held = sum(map(bool, snapshot.pages))
    cached = len({n.page for n in snapshot.prefix if not snapshot.pages[n.page]})
    each = _each(pages)
    return {
        "step": snapshot.step,
        "pages": pages,
        "held": held,
        "cached": cached,
        "free": pages - held - cached,
        "each": each,
        "size": "large" if cells <= 128 else "medium" if cells <= 384 else "small",
        "summary": f"{held} of {count(pages, 'page')} held, {cached} cached, {pages - held - cached} free",
        "note": count(snapshot.size, "token")
        + " a page"
        + (f"; each cell stands for {each} pages, as full as it is coloured" if each > 1 else ""),
    }


def _each(pages: int) -> int:
    """Pages a cell."""
    return max(1, ceil(pages / CELLS))


def _cells(snapshot: Snapshot, labels: Labels, text: Text) -> list[dict[str, Any]]:
    known = {n.page: n for n in snapshot.prefix}
    each, end = _each(len(snapshot.pages)), len(snapshot.pages)
    return [_cell(range(at, min(at + each, end)), snapshot, known, labels, text) for at in range(0, end, each)]


def _cell(
    pages: range, snapshot: Snapshot, known: Mapping[int, PrefixNode], labels: Labels, text: Text
) -> dict[str, Any]:
    by = Counter(r for p in pages for r in snapshot.pages[p])
    holders = [r for r, _ in by.most_common()]
    held = sum(bool(snapshot.pages[p]) for p in pages)
    cached = sum(p in known and not snapshot.pages[p] for p in pages)
    state = "shared" if len(holders) > 1 else "held" if holders else "cached" if cached else "free"
    cell = {
        "state": state,
        "label": _together([labels[r] for r in holders]),
        "colours": list(dict.fromkeys(labels.colour(r) for r in holders))[:3],
        "who": [labels[r] for r in holders],
        "pages": [pages.start, pages.stop - 1],
        "full": round((held or cached) / len(pages), 2),
        "known": pages.start in known and held == len(pages) == 1,
    }
    if len(pages) > 1:
        owners = f" by {_names([(r, f' ({n})') for r, n in by.most_common()], labels)}" if by else ""
        card = [
            ("pages", f"{pages.start} to {pages.stop - 1}"),
            ("held", f"{held}{owners}"),
            ("cached", str(cached)),
            ("free", str(len(pages) - held - cached)),
        ]
    else:
        card = [("page", str(pages.start)), ("held by", _names([(r, "") for r in holders], labels) or "nobody")]
        card += _words(known.get(pages.start), text)
    return {**cell, "card": card}


def _together(labels: Sequence[str]) -> str:
    """What stands in a cell: its letters where they fit, else how many they are."""
    joined = "".join(labels)
    return joined if len(joined) <= 2 else str(len(labels))


def _names(requests: Sequence[tuple[str, str]], labels: Labels) -> str:
    shown = [labels.name(r) + what for r, what in requests[:NAMED]]
    return ", ".join(shown) + (f", +{len(requests) - NAMED} more" if len(requests) > NAMED else "")


def _words(node: PrefixNode | None, text: Text) -> Card:
    """The lines of a card about a page of the prefix cache."""
    if node is None:
        return []
    return [
        ("prefix cache", _short(text(node.tokens), 120)),
        ("token ids", " ".join(map(str, node.tokens[:IDS])) + (" …" if len(node.tokens) > IDS else "")),
    ]


# ---- requests --------------------------------------------------------------------------------------------------------


def _lane(snapshot: Snapshot, lane: str, labels: Labels, preempted: Mapping[str, int]) -> dict[str, Any]:
    requests: tuple[str, ...] = getattr(snapshot, lane)
    pages = Counter(chain.from_iterable(snapshot.pages))
    chips = []
    for r in requests[:CHIPS]:
        again, settled = preempted.get(r, 0), snapshot.settled.get(r, 0)
        card = [("request", visible(r)), ("state", lane), ("settled", count(settled, "token"))]
        card += [("pages", str(pages[r]))]
        card += [("preempted", "once" if again == 1 else f"{again} times")] if again else []
        chips.append(
            {
                "label": labels[r],
                "colour": labels.colour(r),
                "name": _short(r, 18),
                "settled": settled,
                "again": again,
                "who": [labels[r]],
                "card": card,
            }
        )
    return {"name": lane, "count": len(requests), "chips": chips, "more": len(requests) - len(chips)}


def _line(event: Event, labels: Labels) -> dict[str, Any]:
    tokens = count(event.tokens, "token")
    said = {
        "added": "added",
        "admitted": f"admitted, {tokens} from the cache" if event.tokens else "admitted",
        "prefilled": f"prefilled, {tokens} read",
        "preempted": f"preempted, {tokens} to be read again",
        "finished": f"finished after {tokens}" + (f": {_short(event.detail, 24)}" if event.detail else ""),
        "aborted": f"aborted after {tokens}",
    }
    return {
        "at": f"{event.at:.2f} s",
        "kind": event.kind,
        "mark": MARKS[event.kind],
        "label": labels[event.request],
        "colour": labels.colour(event.request),
        "text": said[event.kind],
    }


# ---- prefix cache ----------------------------------------------------------------------------------------------------


def _prefix(snapshot: Snapshot, labels: Labels, text: Text) -> tuple[list[dict[str, Any]], dict[str, Any]]:
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
    names = ("held by", _names([(r, "") for r in holders], labels) or ("a request" if first.held else "nobody"))
    one = len(nodes) == 1
    if one:
        card = [("page", str(first.page)), names, *_words(first, text)]
    else:
        said = f"{_short(text(first.tokens), 48)} … {_short(text(last.tokens), 48)}"
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
    return _short(text, 8 if wide else 15)

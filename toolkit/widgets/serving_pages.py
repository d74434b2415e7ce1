"""The page map of a server's snapshot: a cell for every page, or for some pages together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from toolkit.trace import PrefixNode, Snapshot
from toolkit.widgets.serving_labels import Labels, Text, count, named, text_lines

CELLS = 1024  # more pages than this share cells


def page_head(snapshot: Snapshot, cells: int) -> dict[str, Any]:
    """What stands above a map of so many cells."""
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


def page_cells(snapshot: Snapshot, labels: Labels, text: Text) -> list[dict[str, Any]]:
    """One entry a cell, in the order of the pages."""
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
        owners = f" by {named([(r, f' ({n})') for r, n in by.most_common()], labels)}" if by else ""
        card = [
            ("pages", f"{pages.start} to {pages.stop - 1}"),
            ("held", f"{held}{owners}"),
            ("cached", str(cached)),
            ("free", str(len(pages) - held - cached)),
        ]
    else:
        card = [("page", str(pages.start)), ("held by", named([(r, "") for r in holders], labels) or "nobody")]
        card += text_lines(known.get(pages.start), text)
    return {**cell, "card": card}


def _together(labels: Sequence[str]) -> str:
    """What stands in a cell: its letters where they fit, else how many they are."""
    joined = "".join(labels)
    return joined if len(joined) <= 2 else str(len(labels))

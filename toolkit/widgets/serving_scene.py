"""A server's snapshot as plain data to draw: a cell for every page, a chip for every request, the prefix cache as a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.trace import Event, Snapshot
from toolkit.widgets.serving_labels import Labels, Text
from toolkit.widgets.serving_lanes import LANES, lane_chips, log_line
from toolkit.widgets.serving_pages import page_cells, page_head
from toolkit.widgets.serving_prefix import prefix_boxes


def scene(
    snapshot: Snapshot,
    labels: Labels,
    text: Text,
    log: Sequence[Event] = (),
    preempted: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """What the serving view draws. `labels` knows every request of the snapshot and the log; `preempted` says how often
    each was."""
    nodes, tree = prefix_boxes(snapshot, labels, text)
    cells = page_cells(snapshot, labels, text)
    return {
        "head": page_head(snapshot, len(cells)),
        "cells": cells,
        "lanes": [lane_chips(snapshot, lane, labels, preempted or {}) for lane in LANES],
        "log": [log_line(event, labels) for event in log],
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

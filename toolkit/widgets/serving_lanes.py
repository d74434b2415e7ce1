"""The requests of a server's snapshot as chips in three lanes, and what happened to them as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any

from toolkit.trace import Event, Snapshot
from toolkit.trace.labels import visible
from toolkit.widgets.serving_labels import Labels, brief, count

CHIPS = 24  # requests drawn in a lane
MARKS = {"added": "+", "admitted": "→", "prefilled": "▤", "preempted": "↺", "finished": "✓", "aborted": "✗"}
LANES = ("waiting", "prefilling", "running")


def lane_chips(snapshot: Snapshot, lane: str, labels: Labels, preempted: Mapping[str, int]) -> dict[str, Any]:
    """One of `LANES` with its requests."""
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
                "name": brief(r, 18),
                "settled": settled,
                "again": again,
                "who": [labels[r]],
                "card": card,
            }
        )
    return {"name": lane, "count": len(requests), "chips": chips, "more": len(requests) - len(chips)}


def log_line(event: Event, labels: Labels) -> dict[str, Any]:
    """An event in words."""
    tokens = count(event.tokens, "token")
    said = {
        "added": "added",
        "admitted": f"admitted, {tokens} from the cache" if event.tokens else "admitted",
        "prefilled": f"prefilled, {tokens} read",
        "preempted": f"preempted, {tokens} to be read again",
        "finished": f"finished after {tokens}" + (f": {brief(event.detail, 24)}" if event.detail else ""),
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

"""Does everything add up, and how do things stand: two looks at a scheduler between steps."""

from __future__ import annotations

from toolkit.cache import Store
from toolkit.engine.entry import Entry
from toolkit.engine.leaves import leaves
from toolkit.engine.policy import urgency
from toolkit.engine.scheduler import Scheduler
from toolkit.protocols import Drafter
from toolkit.trace import PrefixNode, Snapshot


def snapshot(s: Scheduler) -> Snapshot:
    """Pages, queues and prefix cache."""
    names = {t.entry: t.name for t in s.live}
    tree = s.accounts.pages.prefixes
    nodes = list(tree.nodes())
    place = {id(node): i for i, node in enumerate(nodes)}
    return Snapshot(
        len(s.trace.steps),
        s.paging.size,
        tuple(tuple(names[w] for w in who if isinstance(w, Entry)) for who in s.accounts.holders()),
        tuple(
            PrefixNode(n.pages[0] - 1, place.get(id(n.above), -1), n.tokens, not s.accounts.pages.idle(n))
            for n in nodes
        ),
        tuple(t.name for t in sorted(s.waiting, key=urgency)),
        tuple(t.name for t in s.prefilling),
        tuple(t.name for t in s.running),
        {t.name: s.accounts.settled(t.entry) for t in (*s.prefilling, *s.running)},
    )


def check(s: Scheduler) -> None:
    """Raise RuntimeError unless every page is free or held as often as there are holders, whoever is running has all but the
    pending token settled, nobody else holds anything, and no drafter keeps anything for a request that has ended."""
    s.accounts.check()
    live = {t.entry for t in s.live}
    for ticket in s.live:
        e = ticket.entry
        if e.length != len(e.prompt) + e.judge.count or (e.judge.reason and not ticket.cancelled):
            raise RuntimeError(f"{ticket!r} has {e.length} committed tokens, or should have ended")
    if len(live) != len(s.live) or len(s.running) + len(s.prefilling) > s.rows:
        raise RuntimeError("a request is in two places, or the batch has too many rows")
    store = s.accounts.store
    if not {*store.seats, *store.parked} <= {t.entry for t in (*s.prefilling, *s.running)}:
        raise RuntimeError("the target's cache holds something for a request that is not admitted")
    for ticket in s.running:
        if s.accounts.settled(ticket.entry) < ticket.entry.length - 1:
            raise RuntimeError(f"{ticket!r} runs, and the cache lacks some of its tokens")
    for drafter in (*(d for d, _ in s.users.values()), *leaves([s.engine.drafter])):
        for kept in _stores(drafter):
            if not {*kept.seats, *kept.parked} <= live:
                raise RuntimeError(f"{type(drafter).__name__} holds something for a request that has ended")


def _stores(drafter: Drafter) -> list[Store]:
    """The caches that a drafter keeps."""
    kept = (getattr(drafter, "cache", None), getattr(getattr(drafter, "kept", None), "store", None))
    return [store for store in kept if isinstance(store, Store)]

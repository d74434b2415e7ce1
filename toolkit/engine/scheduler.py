"""Who is in the batch, and who must wait: admission, prompts in pieces, page pressure, preemption, ends.

It decides and moves; a server stands around it, takes requests in and keeps the record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from toolkit.cache import Accounts, NoPages, Store
from toolkit.engine.engine import Engine
from toolkit.engine.entry import Entry
from toolkit.engine.groups import grouped
from toolkit.engine.leaves import leaves, taps_of
from toolkit.engine.policy import Policy, urgency
from toolkit.engine.session import Session
from toolkit.engine.ticket import Ticket
from toolkit.protocols import LM, Drafter, Paging, Tap
from toolkit.trace import StepRecord, Trace
from toolkit.trace.records import EventKind


@dataclass(slots=True)
class Scheduler:
    """The queues of a server, and its two sessions over one cache: prompts being read, and requests that run.

    Every request is in one list, or has ended. Only admitted ones hold pages. `note(kind, ticket, tokens, detail)` is told
    what becomes of each.
    """

    engine: Engine
    paging: Paging
    rows: int
    chunk: int
    policy: Policy
    trace: Trace
    note: Callable[[EventKind, Ticket, int, str], None]
    waiting: list[Ticket] = field(default_factory=list)
    prefilling: list[Ticket] = field(default_factory=list)
    running: list[Ticket] = field(default_factory=list)
    users: dict[int, tuple[Drafter, set[Entry]]] = field(
        default_factory=dict
    )  # by drafter: it may keep something for them
    accounts: Accounts = field(init=False)
    reading: Session = field(init=False)
    going: Session = field(init=False)

    def __post_init__(self) -> None:
        self.open(self.engine.target, ())

    @property
    def live(self) -> list[Ticket]:
        """All that have not ended."""
        return [*self.waiting, *self.prefilling, *self.running]

    def open(self, target: LM, taps: tuple[Tap, ...]) -> None:
        """Begin with empty caches."""
        cache = target.open(0, self.paging.size * (self.paging.count or 1), self.paging)
        if not isinstance(cache, Store):
            raise TypeError(
                f"a server needs a target whose caches are stores of pages; {type(target).__name__} opens others"
            )
        self.accounts = Accounts.of(cache)
        own = replace(self.paging, count=None)
        self.reading, self.going = (
            Session(target, cache, [], self.trace, taps, own, self.chunk, named=True) for _ in range(2)
        )
        self.going.origin = self.reading.origin

    def leave(self, ticket: Ticket) -> None:
        """Out of all lists and caches."""
        e = ticket.entry
        for queue in (self.waiting, self.prefilling, self.running):
            if ticket in queue:
                queue.remove(ticket)
        for session in (self.reading, self.going):
            if e in session.entries:
                session.seat([x for x in session.entries if x is not e])
        e.feature, e.recalled = None, False
        self.accounts.store.release(e)
        for key, (drafter, users) in list(self.users.items()):
            if e in users:
                users.remove(e)
                if release := getattr(drafter, "release", None):
                    release(e)
                if not users:
                    del self.users[key]

    def wanted_taps(self, tickets: Sequence[Ticket]) -> tuple[Tap, ...]:
        """The features that the drafters of these requests want. Raises ValueError where two want different ones."""
        return taps_of(leaves([*(t.entry.drafter or self.engine.drafter for t in tickets), self.engine.drafter]))

    def follow(self) -> None:
        """Another target, or drafters that want other features: all must be read again."""
        target, drafters = self.engine.target, [t.entry.drafter or self.engine.drafter for t in self.live]
        self.engine.check_drafters(leaves({id(d): d for d in drafters}.values()))
        taps = self.wanted_taps(self.live)
        if target is self.going.lm and (not taps or taps == self.going.taps):
            return
        for ticket in (*self.prefilling, *self.running):
            self.preempt(ticket)
        self.open(target, taps)

    def preempt(self, ticket: Ticket) -> None:
        """Its pages go, its text stays, and it waits before younger ones."""
        settled = self.accounts.settled(ticket.entry)
        self.leave(ticket)
        ticket.state, ticket.twin = "waiting", None
        ticket.preemptions += 1
        self.waiting.append(ticket)
        self.note("preempted", ticket, settled, "")

    def _fits(self, ticket: Ticket) -> bool:
        """Is there room for all it has to have read, with a page left for each of the others."""
        e = ticket.entry
        twin = ticket.twin  # its beginning is worth waiting for, if it is on its way
        if twin and (twin.state == "prefilling" or (twin.state == "waiting" and urgency(twin) < urgency(ticket))):
            return False
        pages, idle = self.accounts.found(e.text[: e.length - 1])
        need = -(-e.length // self.paging.size) - pages + idle
        promised = sum(
            self.accounts.needed(t.entry, t.entry.length - self.accounts.settled(t.entry)) for t in self.prefilling
        )
        return self.accounts.has(need + promised + len(self.running))

    def admit(self) -> None:
        """Whoever the policy names, while there are rows and pages."""
        while self.waiting and len(self.prefilling) + len(self.running) < self.rows:
            ticket = self.policy.next(sorted(self.waiting, key=lambda t: t.order), self._fits)
            if ticket is None:
                if self.prefilling or self.running:
                    return
                raise RuntimeError(f"{self.policy!r} admits nobody though nothing is running: {self.waiting!r} wait")
            self.waiting.remove(ticket)
            ticket.state = "prefilling"
            self.prefilling.append(ticket)
            if ticket.twin and ticket.twin.state == "running":
                self._begin_like(ticket, ticket.twin)
            self.reading.seat([t.entry for t in self.prefilling])
            self.accounts.store.agree(self.reading.context())
            self.note("admitted", ticket, self.accounts.settled(ticket.entry), "")

    def _begin_like(self, ticket: Ticket, twin: Ticket) -> None:
        """Share the pages and features of a running request with the same beginning."""
        self.accounts.fork(twin.entry, ticket.entry)
        ticket.entry.recalled = True
        if self.going.feature is not None and twin.entry in self.going.entries:
            known = self.going.feature[self.going.entries.index(twin.entry)]
            ticket.entry.feature = known[: ticket.entry.length - 1].clone()
        elif twin.entry.feature is not None:
            ticket.entry.feature = twin.entry.feature[: ticket.entry.length - 1].clone()

    def prefill(self) -> tuple[int, int]:
        """Read as much of the prompts as the policy allows; returns tokens read, and those that were read before."""
        left, read, again = self.policy.prefill(len(self.prefilling), len(self.running)), 0, 0
        left = left if self.running else max(1, left)
        while self.prefilling:
            self._promote()
            if not self.prefilling or left < 1:
                break
            n = self._pass(max(1, min(self.chunk, left // len(self.prefilling))))
            if n is None:
                continue
            self.reading.seat([t.entry for t in self.prefilling])
            self.reading.chunk = n
            before = {t: self.accounts.settled(t.entry) for t in self.prefilling}
            self.reading.prefill(passes=1)
            for t, begin in before.items():
                end = self.accounts.settled(t.entry)
                read += end - begin
                again += max(0, min(end, t.most_read) - begin)
                t.most_read = max(t.most_read, end)
            left -= n * len(self.prefilling)
        return read, again

    def _pass(self, most: int) -> int | None:
        """Tokens to read of every prompt in one pass; None where somebody had to give way first."""
        lacks = [self._lacks(t) for t in self.prefilling]
        for n in (min(most, max(lacks)), min(most, min(lacks))):  # a pass takes room for as many slots in every row
            if not self._short([(t, n) for t in self.prefilling]):
                return n
        if self._give_way():
            return None
        raise RuntimeError(f"{self.prefilling[0]!r} is alone and has no room for one token")

    def _lacks(self, ticket: Ticket) -> int:
        return ticket.entry.length - 1 - self.accounts.settled(ticket.entry)

    def _promote(self) -> None:
        """Whoever has been read runs."""
        ready = [t for t in self.prefilling if self._lacks(t) <= 0]
        if not ready:
            return
        if self.reading.entries == [t.entry for t in self.prefilling]:
            self.reading.prefill(passes=0)  # fetches the features of what was found
        for t in ready:
            self.prefilling.remove(t)
            t.state = "running"
            self.note("prefilled", t, t.entry.length - 1 - self.accounts.store.found.get(t.entry, 0), "")
        self.reading.seat([t.entry for t in self.prefilling])
        self.running += ready

    def _short(self, wanted: Sequence[tuple[Ticket, int]]) -> bool:
        """Are there too few pages for so many nodes of each request."""
        return not self.accounts.has(sum(self.accounts.needed(t.entry, nodes) for t, nodes in wanted))

    def _give_way(self) -> bool:
        """Preempt somebody; False when only one is left, who has the whole pool."""
        admitted = [*self.prefilling, *self.running]
        if len(admitted) < 2:
            return False
        self.preempt(self.policy.victim(admitted))
        return True

    def decode(self) -> StepRecord | None:
        """One target pass for all that run; None when nobody does. What goes wrong with some requests alone ends these."""
        while self.running:
            try:
                return self._decode()
            except Exception as error:
                if not self._left_out(error):
                    raise
        return None

    def _left_out(self, error: Exception) -> bool:
        """End the requests that an error is about; False when it is about nobody in particular."""
        failed = [t for t in self.running if t.entry in self.going.asked]
        for t in failed:
            self.leave(t)
            t.state, t.error = "aborted", error
            self.note("aborted", t, t.entry.judge.count, "failed")
            print(f"request {t.name} failed and is left out: {error!r}", file=sys.stderr)
        return bool(failed)

    def _decode(self) -> StepRecord | None:
        while self.running:
            entries = [t.entry for t in self.running]
            if self.going.entries != entries:
                self.going.seat(entries)
            for group in grouped(entries, self.engine.drafter, self.engine.rule):
                for leaf in leaves([group.drafter]):
                    self.users.setdefault(id(leaf), (leaf, set()))[1].update(entries[b] for b in group.rows)
            if self.accounts.store.seats != tuple(entries):  # prompts were read in between
                self.going.behind = True
            try:
                draft = self.engine.draft(self.going)
            except NoPages:  # of a drafter that writes into the target's cache
                if self._give_way():
                    continue
                draft = self.engine.draft(self.going, plain=True)
            fitting = self._fitting(draft.tree.size)
            if not fitting:
                if self._give_way():
                    continue
                raise RuntimeError(f"{self.running[0]!r} is alone and has no room for one token")
            if fitting < draft.tree.size:
                draft = draft.cut(fitting)
            record = self.engine.verify(self.going, draft)
            for t in self.running:
                t.most_read = max(t.most_read, self.accounts.settled(t.entry))
            return record
        return None

    def _fitting(self, most: int) -> int:
        """Nodes of each running request's tree that there are pages for: guesses are given up before a request is."""
        nodes = most
        while nodes and self._short([(t, nodes) for t in self.running]):
            nodes -= 1
        return nodes

    def retire(self) -> None:
        """Let go of whoever has ended."""
        for ticket in [t for t in self.running if t.entry.judge.reason]:
            self.leave(ticket)
            ticket.state = "finished"
            self.note("finished", ticket, ticket.entry.judge.count, ticket.entry.judge.reason or "")

"""A batch's life: requests arrive, wait, are read, run, give way, come back and end. The steps are the engine's own."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch

from toolkit.cache import Accounts, NoPages, Store
from toolkit.engine.engine import Engine
from toolkit.engine.entry import Entry
from toolkit.engine.leaves import leaves, taps_of
from toolkit.engine.policy import InTurn, Policy, urgency
from toolkit.engine.session import Session
from toolkit.engine.ticket import Ticket
from toolkit.protocols import LM, Drafter, Paging, Rule, Tap
from toolkit.sampling import Sampling, Stopping
from toolkit.trace import Event, Load, PrefixNode, Snapshot, StepRecord, Trace
from toolkit.trace.records import EventKind


class Server:
    """Continuous batching over pages of key-value cache.

    engine  target, and what requests use that bring no drafter, rule, sampling or stopping of their own
    pages   of the target's cache; `page` tokens each
    rows    requests in a batch at most
    chunk   tokens of a prompt read in one pass at most
    share   keep full pages for requests that begin alike
    policy  who comes next, who must go, and how much of a step belongs to prompts

    A step admits while pages allow, reads some of the prompts, lets all running requests draft, and verifies them in one
    pass. When pages run out, prefixes that nobody uses go first, the least recently used first; then guesses; then the
    policy's victim: its pages are freed, its text stays, and it is read again later. What can never fit is refused by `add`; so whoever is
    admitted will finish, whatever the others do. No decision changes a token: at temperature 0, and with the coupled rule at
    any, every request's output is what it would be alone (in float32 and float64).

    `add`, `abort` and reading are safe from any thread. Raises ValueError for numbers below one.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        pages: int = 512,
        page: int = 16,
        rows: int = 16,
        chunk: int = 256,
        share: bool = True,
        policy: Policy | None = None,
    ) -> None:
        for name, value in (("pages", pages), ("page", page), ("rows", rows), ("chunk", chunk)):
            if value < 1:
                raise ValueError(f"a server needs {name} of at least 1; got {value}")
        self.engine, self.rows, self.chunk = engine, rows, chunk
        self.policy: Policy = policy or InTurn()
        self.paging = Paging(page, pages, share)
        self.trace = Trace(about={"engine": repr(engine), "server": f"{pages} pages of {page}, {rows} rows"})
        self.began = perf_counter()
        self.waiting: list[Ticket] = []
        self.prefilling: list[Ticket] = []
        self.running: list[Ticket] = []
        self._inbox: deque[Ticket] = deque()
        self._events: deque[Event] = deque()
        self._names: set[str] = set()
        self._count = itertools.count()
        self._used: dict[int, Drafter] = {}  # every drafter that may keep something for a request
        self._lock = threading.RLock()
        self._open(engine.target, ())

    # ---- requests ------------------------------------------------------------------------------------------------

    def add(
        self,
        prompt: Sequence[int],
        *,
        sampling: Sampling | None = None,
        stopping: Stopping | None = None,
        drafter: Drafter | None = None,
        rule: Rule | None = None,
        priority: int = 0,
        name: str | None = None,
        twin: Ticket | None = None,
    ) -> Ticket:
        """A new request. Raises ValueError, with nothing added, for what `Engine.start` refuses, for a name in use, and for a
        request that could need more pages than there are, or whose drafter wants other features than others'. `twin` is a request with the same beginning, whose pages it shares
        from the start if it is still running then."""
        engine = self.engine
        sampling, stopping = sampling or engine.sampling, stopping or engine.stopping
        engine.check(prompt, sampling, stopping)
        parts = leaves([drafter or engine.drafter])
        engine.check_drafters(parts)
        entry = engine.entry(prompt, sampling, stopping)
        entry.drafter, entry.rule = drafter, rule
        most = len(prompt) + entry.judge.room - 1  # the last token is never read
        size, count = self.paging.size, self.paging.count or 0
        if -(-most // size) > count:
            room = count * size + 1 - len(prompt)
            fewer = f"lower max_new_tokens to {room}" if room > 0 else f"shorten the prompt to {count * size}"
            raise ValueError(
                f"the request may come to {most} tokens in the cache, and {count} pages hold {count * size}: {fewer}, or give the "
                f"server more pages"
            )
        order = next(self._count)
        ticket = Ticket(name or f"r{order}", entry, order, priority, twin)
        self._wanted_taps([*self._live(), ticket])
        if ticket.name in self._names:
            raise ValueError(f"there is a request named {ticket.name!r} already: choose another name")
        self._names.add(ticket.name)
        self._inbox.append(ticket)
        self._note("added", ticket)
        self._sweep_if_idle()
        return ticket

    def add_samples(self, prompt: Sequence[int], n: int, **options: Any) -> list[Ticket]:
        """`n` samples of one prompt, which share its pages; the i-th is drawn as `sampling.sample(i)`. `options` as in `add`,
        a name being the first one's."""
        if n < 1:
            raise ValueError(f"n is the number of samples of each prompt, at least 1; got {n}")
        sampling = options.pop("sampling", None) or self.engine.sampling
        name = options.pop("name", None)
        first = self.add(prompt, sampling=sampling, name=name, **options)
        others = [
            self.add(prompt, sampling=sampling.sample(i), name=f"{first.name}.{i}", twin=first, **options)
            for i in range(1, n)
        ]
        return [first, *others]

    def fork(self, ticket: Ticket, *, sampling: Sampling | None = None, name: str | None = None) -> Ticket:
        """A new request that goes on from where `ticket` is now, sharing its pages. What `ticket` has written is its prompt."""
        e = ticket.entry
        text = e.text[: e.length].tolist()
        left = max(1, e.judge.stopping.max_new_tokens - e.judge.count)
        return self.add(
            text,
            sampling=sampling or e.sampling,
            stopping=replace(e.judge.stopping, max_new_tokens=left),
            drafter=e.drafter,
            rule=e.rule,
            priority=ticket.priority,
            name=name,
            twin=ticket,
        )

    def abort(self, ticket: Ticket) -> None:
        """End a request; at once, or after the step that is being made. Its pages are free then. Nothing happens to one that
        has ended."""
        ticket.cancelled = True
        self._sweep_if_idle()

    def preempt(self, ticket: Ticket) -> None:
        """Take the pages of an admitted request away; it waits, and goes on later as if nothing had been. Nothing happens to
        any other."""
        with self._lock:
            if ticket in (*self.prefilling, *self.running):
                self._preempt(ticket)

    def rewind(self, ticket: Ticket, tokens: int = 1) -> int:
        """Take back the last new tokens of a request that has not ended; returns how many."""
        with self._lock:
            if ticket.done:
                raise ValueError(f"{ticket.name} has {ticket.state}: only a request that goes on can be rewound")
            tokens = max(0, min(tokens, ticket.entry.judge.count))
            ticket.entry.undo(tokens)
            for session in (self._reading, self._going):
                if ticket.entry in session.entries:
                    session.seat(session.entries)
            return tokens

    def reset(self) -> None:
        """Abort everything and forget all that is cached."""
        with self._lock:
            for ticket in [*self._inbox, *self._live()]:
                ticket.cancelled = True
            self._sweep()
            self._open(self.engine.target, ())

    # ---- steps ---------------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Is there nothing left to do."""
        return not (self._inbox or self.waiting or self.prefilling or self.running)

    def step(self) -> StepRecord:
        """Admit, read some of the prompts, and one target pass for all running requests."""
        with self._lock, torch.inference_mode():
            began = perf_counter()
            self._sweep()
            self._follow()
            self._admit()
            prefilled, reread = self._prefill()
            prefill_ms = 1e3 * (perf_counter() - began)
            record = self._decode()
            if record is None:
                record = StepRecord(0, (), "", "", 0)
            record = replace(record, ids=tuple(t.name for t in self.running), ms={"prefill": prefill_ms, **record.ms})
            self._finish()
            record = self._told(record, began, prefilled, reread)
            self._sweep()
        self.trace.append(record)
        return record

    def run(self) -> Iterator[StepRecord]:
        """Step until nothing is left to do. Leave the loop to pause, call again to go on."""
        while not self.done:
            yield self.step()
        self.trace.notify(force=True)

    def finish(self) -> None:
        """Step until nothing is left to do."""
        for _ in self.run():
            pass

    # ---- looking -------------------------------------------------------------------------------------------------

    @property
    def cache(self) -> Store:
        """The target's."""
        return self.accounts.store

    def snapshot(self) -> Snapshot:
        """Pages, queues and prefix cache as they are between two steps."""
        with self._lock:
            names = {t.entry: t.name for t in self._live()}
            nodes = list(self.accounts.pages.prefixes.nodes())
            place = {id(node): i for i, node in enumerate(nodes)}
            return Snapshot(
                len(self.trace.steps),
                self.paging.size,
                tuple(tuple(names[w] for w in who if isinstance(w, Entry)) for who in self.accounts.holders()),
                tuple(
                    PrefixNode(n.pages[0] - 1, place.get(id(n.above), -1), n.tokens, not self.accounts.pages.idle(n))
                    for n in nodes
                ),
                tuple(t.name for t in sorted(self.waiting, key=urgency)),
                tuple(t.name for t in self.prefilling),
                tuple(t.name for t in self.running),
                {t.name: self.accounts.settled(t.entry) for t in (*self.prefilling, *self.running)},
            )

    def check(self) -> None:
        """Raise RuntimeError unless everything adds up: every page is free or held as often as there are holders, here and in
        the drafters' caches; whoever is running has all but the pending token settled; nobody else holds anything."""
        with self._lock:
            self.accounts.check()
            live = [t.entry for t in self._live()]
            for ticket in self._live():
                e = ticket.entry
                if e.length != len(e.prompt) + e.judge.count or (e.judge.reason and not ticket.cancelled):
                    raise RuntimeError(f"{ticket!r} has {e.length} committed tokens, or should have ended")
            if len(set(map(id, live))) != len(live) or len(self.running) + len(self.prefilling) > self.rows:
                raise RuntimeError("a request is in two places, or the batch has too many rows")
            held = {*self.cache.seats, *self.cache.parked}
            admitted = {t.entry for t in (*self.prefilling, *self.running)}
            if not held <= admitted:
                raise RuntimeError("the target's cache holds something for a request that is not admitted")
            for ticket in self.running:
                if self.accounts.settled(ticket.entry) < ticket.entry.length - 1:
                    raise RuntimeError(f"{ticket!r} runs, and the cache lacks some of its tokens")
            for drafter in self._used.values():
                for store in _stores(drafter):
                    if not {*store.seats, *store.parked} <= set(live):
                        raise RuntimeError(f"{type(drafter).__name__} holds something for a request that has ended")

    # ---- within --------------------------------------------------------------------------------------------------

    def _open(self, target: LM, taps: tuple[Tap, ...]) -> None:
        """Begin with empty caches."""
        cache = target.open(0, self.paging.size * (self.paging.count or 1), self.paging)
        if not isinstance(cache, Store):
            raise TypeError(
                f"a server needs a target whose caches are stores of pages; {type(target).__name__} opens others"
            )
        self.accounts = Accounts.of(cache)
        own = replace(self.paging, count=None)
        self._reading, self._going = (
            Session(target, cache, [], self.trace, taps, own, self.chunk, named=True) for _ in range(2)
        )
        self._going.origin = self._reading.origin

    def _live(self) -> list[Ticket]:
        return [*self.waiting, *self.prefilling, *self.running]

    def _note(self, kind: EventKind, ticket: Ticket, tokens: int = 0, detail: str = "") -> None:
        self._events.append(Event(kind, ticket.name, perf_counter() - self.began, tokens, detail))

    def _sweep_if_idle(self) -> None:
        """Take in and let go at once, unless a step is being made: it does so itself at its end."""
        if self._lock.acquire(blocking=False):
            try:
                self._sweep()
                if self.done and self._events:  # no step will come to tell of them
                    self.trace.append(self._told(StepRecord(0, (), "", "", 0), perf_counter(), 0, 0))
            finally:
                self._lock.release()

    def _sweep(self) -> None:
        while self._inbox:
            self.waiting.append(self._inbox.popleft())
        for ticket in self._live():
            if ticket.cancelled:
                self._leave(ticket)
                ticket.state = "aborted"
                self._note("aborted", ticket, ticket.entry.judge.count)

    def _leave(self, ticket: Ticket) -> None:
        """Out of all lists and caches."""
        e = ticket.entry
        for queue in (self.waiting, self.prefilling, self.running):
            if ticket in queue:
                queue.remove(ticket)
        for session in (self._reading, self._going):
            if e in session.entries:
                session.seat([x for x in session.entries if x is not e])
        e.feature, e.recalled = None, False
        self.cache.release(e)
        for drafter in self._used.values():
            if release := getattr(drafter, "release", None):
                release(e)

    def _wanted_taps(self, tickets: Sequence[Ticket]) -> tuple[Tap, ...]:
        """The features that the drafters of these requests want. Raises ValueError where two want different ones."""
        return taps_of(leaves([*(t.entry.drafter or self.engine.drafter for t in tickets), self.engine.drafter]))

    def _follow(self) -> None:
        """Another target, or drafters that want other features: all must be read again."""
        target, drafters = self.engine.target, [t.entry.drafter or self.engine.drafter for t in self._live()]
        parts = leaves(drafters)
        self.engine.check_drafters(parts)
        self._used |= {id(d): d for d in parts}
        taps = self._wanted_taps(self._live())
        if target is self._going.lm and (not taps or taps == self._going.taps):
            return
        for ticket in (*self.prefilling, *self.running):
            self._preempt(ticket)
        self._open(target, taps)

    def _preempt(self, ticket: Ticket) -> None:
        settled = self.accounts.settled(ticket.entry)
        self._leave(ticket)
        ticket.state, ticket.twin = "waiting", None
        ticket.preemptions += 1
        self.waiting.append(ticket)
        self._note("preempted", ticket, settled)

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
        return need <= self.accounts.spare - promised - len(self.running)

    def _admit(self) -> None:
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
            self._reading.seat([t.entry for t in self.prefilling])
            self.cache.agree(self._reading.context())
            self._note("admitted", ticket, self.accounts.settled(ticket.entry))

    def _begin_like(self, ticket: Ticket, twin: Ticket) -> None:
        """Share the pages and features of a running request with the same beginning."""
        self.accounts.fork(twin.entry, ticket.entry)
        ticket.entry.recalled = True
        if self._going.feature is not None and twin.entry in self._going.entries:
            known = self._going.feature[self._going.entries.index(twin.entry)]
            ticket.entry.feature = known[: ticket.entry.length - 1].clone()
        elif twin.entry.feature is not None:
            ticket.entry.feature = twin.entry.feature[: ticket.entry.length - 1].clone()

    def _prefill(self) -> tuple[int, int]:
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
            self._reading.seat([t.entry for t in self.prefilling])
            self._reading.chunk = n
            before = {t: self.accounts.settled(t.entry) for t in self.prefilling}
            self._reading.prefill(passes=1)
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
        if self._reading.entries == [t.entry for t in self.prefilling]:
            self._reading.prefill(passes=0)  # fetches the features of what was found
        for t in ready:
            self.prefilling.remove(t)
            t.state = "running"
            self._note("prefilled", t, t.entry.length - 1 - self.cache.found.get(t.entry, 0))
        self._reading.seat([t.entry for t in self.prefilling])
        self.running += ready

    def _short(self, wanted: Sequence[tuple[Ticket, int]]) -> bool:
        """Are there too few pages for so many nodes of each request."""
        return sum(self.accounts.needed(t.entry, nodes) for t, nodes in wanted) > self.accounts.spare

    def _give_way(self) -> bool:
        """Preempt somebody; False when only one is left, who has the whole pool."""
        admitted = [*self.prefilling, *self.running]
        if len(admitted) < 2:
            return False
        self._preempt(self.policy.victim(admitted))
        return True

    def _decode(self) -> StepRecord | None:
        while self.running:
            entries = [t.entry for t in self.running]
            if self._going.entries != entries:
                self._going.seat(entries)
            if self.cache.seats != tuple(entries):  # prompts were read in between
                self._going.behind = True
            try:
                draft = self.engine.draft(self._going)
            except NoPages:  # of a drafter that writes into the target's cache
                if self._give_way():
                    continue
                draft = self.engine.draft(self._going, plain=True)
            fitting = self._fitting(draft.tree.size)
            if not fitting:
                if self._give_way():
                    continue
                raise RuntimeError(f"{self.running[0]!r} is alone and has no room for one token")
            if fitting < draft.tree.size:
                draft = draft.cut(fitting)
            record = self.engine.verify(self._going, draft)
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

    def _finish(self) -> None:
        for ticket in [t for t in self.running if t.entry.judge.reason]:
            self._leave(ticket)
            ticket.state = "finished"
            self._note("finished", ticket, ticket.entry.judge.count, ticket.entry.judge.reason or "")

    def _told(self, record: StepRecord, began: float, prefilled: int, reread: int) -> StepRecord:
        """The record with its place in the trace, the load and what has happened since the last one."""
        events = tuple(self._events.popleft() for _ in range(len(self._events)))  # others may note more meanwhile
        a = self.accounts
        load = Load(
            len(self.waiting) + len(self._inbox),
            len(self.prefilling),
            len(self.running),
            self.rows,
            a.total,
            a.held,
            a.cached,
            prefilled,
            reread,
        )
        return replace(record, step=len(self.trace.steps), at=began - self.began, load=load, events=events)


def _stores(drafter: Drafter) -> list[Store]:
    """The caches that a drafter keeps."""
    kept = (getattr(drafter, "cache", None), getattr(getattr(drafter, "kept", None), "store", None))
    return [store for store in kept if isinstance(store, Store)]

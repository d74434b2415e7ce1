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

from toolkit.cache import Accounts, Store
from toolkit.engine import audit, refuse
from toolkit.engine.engine import Engine
from toolkit.engine.leaves import leaves
from toolkit.engine.policy import InTurn, Policy
from toolkit.engine.scheduler import Scheduler
from toolkit.engine.ticket import Ticket
from toolkit.protocols import Drafter, Paging, Rule
from toolkit.sampling import Sampling, Stopping
from toolkit.trace import Event, Load, Snapshot, StepRecord, Trace
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
    policy's victim: its pages are freed, its text stays, and it is read again later. What can never fit is refused by `add`;
    so whoever is admitted will finish, whatever the others do. No decision changes a token: at temperature 0, and with the
    coupled rule at any, every request's output is what it would be alone (in float32 and float64).
    What goes wrong with one request (an error of a drafter or rule of its own, of its text, logits that are no numbers) ends
    that request, whose `error` tells of it, and no other; what all share raises out of `step`, and the server stays usable.

    Every step and request is on record in `trace`, some kilobytes a request; `trace.rewind(0)` between two steps forgets
    them, so that a server can go on for ever.

    `add`, `abort` and reading are safe from any thread. Raises ValueError for numbers below one, and for pages that this
    machine has no memory for.
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
        refuse.kind(engine, Engine, "the engine of a server")
        pages, page, rows, chunk = (
            refuse.whole(value, f"{name} of a server")
            for name, value in (("pages", pages), ("page", page), ("rows", rows), ("chunk", chunk))
        )
        if policy is not None:
            for method in ("next", "victim", "prefill"):
                refuse.answers(policy, method, "the policy")
        self.engine, self.paging = engine, Paging(page, pages, share)
        self.trace = Trace(about={"engine": repr(engine), "server": f"{pages} pages of {page}, {rows} rows"})
        self.began = perf_counter()
        self._inbox: deque[Ticket] = deque()
        self._events: deque[Event] = deque()
        self._names: dict[str, int] = {}  # of all requests ever, and their order
        self._home = object()
        self._count = itertools.count()
        self._lock = threading.RLock()
        self.scheduler = Scheduler(engine, self.paging, rows, chunk, policy or InTurn(), self.trace, self._note)

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
        request that could need more pages than there are, or whose drafter wants other features than others'. `twin` is a
        request with the same beginning, whose pages it shares from the start if it is still running then."""
        engine = self.engine
        sampling, stopping = sampling or engine.sampling, stopping or engine.stopping
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ValueError(f"priority must be a whole number, higher ones being admitted first; got {priority!r}")
        if name is not None:
            refuse.kind(name, str, "the name of a request")
        if twin is not None:
            self._own(twin)
        engine.check(prompt, sampling, stopping)
        if rule is not None:
            refuse.answers(rule, "__call__", "the rule")
        engine.check_drafters(leaves([drafter or engine.drafter]))
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
        free = (f"r{i}" for i in itertools.count(order) if f"r{i}" not in self._names)
        ticket = Ticket(name or next(free), entry, order, priority, twin, self._home)
        self.scheduler.wanted_taps([*self.scheduler.live, ticket])
        if self._names.setdefault(ticket.name, order) != order:  # at once, for others may add now
            raise ValueError(f"there is a request named {ticket.name!r} already: choose another name")
        self._inbox.append(ticket)
        self._note("added", ticket)
        self._sweep_if_idle()
        return ticket

    def add_samples(self, prompt: Sequence[int], n: int, **options: Any) -> list[Ticket]:
        """`n` samples of one prompt, which share its pages; the i-th is drawn as `sampling.sample(i)`. `options` as in `add`,
        a name being the first one's."""
        n = refuse.whole(n, "n, the number of samples of a prompt,")
        sampling = options.pop("sampling", None) or self.engine.sampling
        name = options.pop("name", None)
        if taken := [x for i in range(1, n) if (x := f"{name}.{i}") in self._names]:
            raise ValueError(f"there is a request named {taken[0]!r} already: choose another name for the first sample")
        first = self.add(prompt, sampling=sampling, name=name, **options)
        others = [
            self.add(prompt, sampling=sampling.sample(i), name=f"{first.name}.{i}", twin=first, **options)
            for i in range(1, n)
        ]
        return [first, *others]

    def fork(self, ticket: Ticket, *, sampling: Sampling | None = None, name: str | None = None) -> Ticket:
        """A new request that goes on from where `ticket` is now, sharing its pages. What `ticket` has written is its prompt."""
        self._own(ticket)
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
        self._own(ticket)
        ticket.cancelled = True
        self._sweep_if_idle()

    def preempt(self, ticket: Ticket) -> None:
        """Take the pages of an admitted request away; it waits, and goes on later as if nothing had been. Nothing happens to
        any other."""
        self._own(ticket)
        with self._lock:
            if ticket in (*self.prefilling, *self.running):
                self.scheduler.preempt(ticket)

    def rewind(self, ticket: Ticket, tokens: int = 1) -> int:
        """Take back the last new tokens of a request that has not ended, as many as there are at most; returns how many.
        Raises ValueError for one that has ended, and for a number below zero."""
        self._own(ticket)
        tokens = refuse.whole(tokens, "tokens to rewind", 0)
        with self._lock:
            if ticket.done:
                raise ValueError(f"{ticket.name} has {ticket.state}: only a request that goes on can be rewound")
            tokens = min(tokens, ticket.entry.judge.count)
            ticket.entry.undo(tokens)
            for session in (self.scheduler.reading, self.scheduler.going):
                session.behind = True
            return tokens

    def reset(self) -> None:
        """Abort everything and forget all that is cached."""
        with self._lock:
            for ticket in [*self._inbox, *self.scheduler.live]:
                ticket.cancelled = True
            self._sweep()
            self.scheduler.open(self.engine.target, ())

    # ---- steps ---------------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Is there nothing left to do."""
        return not (self._inbox or self.waiting or self.prefilling or self.running)

    def step(self) -> StepRecord:
        """Admit, read some of the prompts, and one target pass for all running requests."""
        with self._lock, torch.inference_mode():
            began, s = perf_counter(), self.scheduler
            self._sweep()
            s.follow()
            s.admit()
            prefilled, reread = s.prefill()
            prefill_ms = 1e3 * (perf_counter() - began)
            record = s.decode() or StepRecord(0, (), "", "", 0)
            record = replace(record, ids=tuple(t.name for t in self.running), ms={"prefill": prefill_ms, **record.ms})
            s.retire()
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
    def accounts(self) -> Accounts:
        """Of the target's cache: pages held, cached and spare."""
        return self.scheduler.accounts

    @property
    def cache(self) -> Store:
        """The target's."""
        return self.accounts.store

    @property
    def waiting(self) -> list[Ticket]:
        return self.scheduler.waiting

    @property
    def prefilling(self) -> list[Ticket]:
        return self.scheduler.prefilling

    @property
    def running(self) -> list[Ticket]:
        return self.scheduler.running

    @property
    def policy(self) -> Policy:
        """Assign another between any two steps."""
        return self.scheduler.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self.scheduler.policy = policy

    def snapshot(self) -> Snapshot:
        """Pages, queues and prefix cache as they are between two steps. Safe from any thread."""
        with self._lock:
            return audit.snapshot(self.scheduler)

    def check(self) -> None:
        """Raise RuntimeError unless every page is free or held as often as there are holders, and every request is where it
        should be. Cheap enough to be left on in tests."""
        with self._lock:
            audit.check(self.scheduler)

    # ---- within --------------------------------------------------------------------------------------------------

    def _own(self, ticket: Ticket) -> None:
        """Raise ValueError for what is no request of this server."""
        refuse.kind(ticket, Ticket, "a request")
        if ticket.home is not self._home:
            raise ValueError(f"{ticket!r} is a request of another server: give it to the one that it was added to")

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
        for ticket in self.scheduler.live:
            if ticket.cancelled:
                self.scheduler.leave(ticket)
                ticket.state = "aborted"
                self._note("aborted", ticket, ticket.entry.judge.count)

    def _told(self, record: StepRecord, began: float, prefilled: int, reread: int) -> StepRecord:
        """The record with its place in the trace, the load and what has happened since the last one."""
        events = tuple(self._events.popleft() for _ in range(len(self._events)))  # others may note more meanwhile
        a = self.accounts
        load = Load(
            len(self.waiting) + len(self._inbox),
            len(self.prefilling),
            len(self.running),
            self.scheduler.rows,
            a.total,
            a.held,
            a.cached,
            prefilled,
            reread,
        )
        return replace(record, step=len(self.trace.steps), at=began - self.began, load=load, events=events)

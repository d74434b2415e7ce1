"""Metrics of served traces: counted by hand on a small one, and identities on random ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import isnan, nan
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.trace import Event, Load, RowRecord, StepRecord, metrics
from toolkit.trace.metrics import DepthAcceptance, PhaseMs, Tokens
from toolkit.trace.requests import percentiles, requests, totals


def row(parent, tip, outcome, emitted, position=0, ended=None) -> RowRecord:
    n = len(parent)
    one = (1.0,) * n
    tree = (tuple(range(n)), tuple(parent), tip, 9, tuple(emitted), tuple(outcome))
    return RowRecord(position, *tree, one, one, one, (0.5,) * n, ended=ended)


def guesses(rng: Random, position: int, room: int) -> RowRecord:
    """A row step of any shape, cut to `room` tokens."""
    n = rng.randrange(1, 7)
    parent = [-1, *(rng.randrange(i) for i in range(1, n))]
    tip = rng.randrange(n)
    path = row(parent, tip, [0] * n, []).path
    outcome = [0, *(1 if i in path else rng.choice((0, 2)) if parent[i] in path else 0 for i in range(1, n))]
    emitted = [*path[1:], 9][:room]
    return row(parent, tip, outcome, emitted, position, "length" if len(emitted) == room else None)


def serve(rng: Random, count: int, seats: int, ticks: int) -> list[StepRecord]:
    """The records of a server: arrivals, prefix hits, preemptions, aborts, drafts of every shape, empty batches."""
    coming = {f"r{i}": rng.randrange(1, 30) for i in range(count)}
    length, room, seen = dict(coming), {name: rng.randrange(1, 12) for name in coming}, dict.fromkeys(coming, 0)
    waiting: list[str] = []
    running: list[str] = []
    steps: list[StepRecord] = []
    late: list[Event] = []
    now = 0.0
    for tick in range(ticks):
        events, late = late, []
        while coming and rng.random() < 0.6:
            name, _ = coming.popitem()
            waiting.append(name)
            events.append(Event("added", name, now := now + rng.random()))
        began = now = now + rng.random()
        if waiting + running and rng.random() < 0.05:
            name = rng.choice(waiting + running)
            (waiting if name in waiting else running).remove(name)
            events.append(Event("aborted", name, now))
        if running and rng.random() < 0.2:
            name = running.pop()
            waiting.insert(0, name)
            seen[name] = length[name] - 1
            events.append(Event("preempted", name, now, length[name] - 1))
        prefilled = reread = 0
        while waiting and len(running) < seats and rng.random() < 0.8:
            running.append(name := waiting.pop(0))
            found = rng.randrange(length[name])
            events.append(Event("admitted", name, now, found))
            events.append(Event("prefilled", name, now := now + 0.25, length[name] - 1 - found))
            prefilled += length[name] - 1 - found
            reread += max(0, seen[name] - found)
        ms = {"prefill": 1e3 * (now - began)} if prefilled else {}
        ids, rows = tuple(running), []
        if running:
            ms |= {name: 1e3 * rng.random() for name in ("draft", "target", "verify", "commit")}
        now = began + sum(ms.values()) / 1e3
        for name in ids:
            rows.append(r := guesses(rng, length[name] - 1, room[name]))
            length[name] += len(r.emitted)
            room[name] -= len(r.emitted)
            if r.ended:
                running.remove(name)
                soon = tick + 1 == ticks or rng.random() < 0.8
                (events if soon else late).append(Event("finished", name, now, detail=r.ended))
        load = Load(len(waiting), 0, len(running), seats, 50, 3 * len(running), tick % 5, prefilled, reread)
        steps.append(StepRecord(tick, tuple(rows), "D", "R", 6, ms, began, ids, load, tuple(events)))
    return steps


def alone(rng: Random, count: int, ticks: int) -> list[StepRecord]:
    """The records of a plain session, whose rows are None once they have ended."""
    length, room = [rng.randrange(1, 30) for _ in range(count)], [rng.randrange(1, 12) for _ in range(count)]
    steps: list[StepRecord] = []
    now = 0.0
    for tick in range(ticks):
        rows: list[RowRecord | None] = []
        for b in range(count):
            rows.append(r := guesses(rng, length[b] - 1, room[b]) if room[b] else None)
            if r:
                length[b] += len(r.emitted)
                room[b] -= len(r.emitted)
        ms = {name: 1e3 * rng.random() for name in ("draft", "target", "verify", "commit")}
        steps.append(StepRecord(tick, tuple(rows), "D", "R", 6, ms, now))
        now += sum(ms.values()) / 1e3 + rng.random()
    return steps


seeds = st.integers(0, 2**32 - 1).map(Random)
served = st.builds(serve, seeds, st.integers(1, 6), st.integers(1, 3), st.integers(1, 30))
plain = st.builds(alone, seeds, st.integers(1, 3), st.integers(1, 10))

CHAIN = row([-1, 0, 1, 2], 2, [0, 1, 1, 2], [1, 2, 9], position=7)  # two of three accepted, then a correction
WHOLE = row([-1, 0], 1, [0, 1], [1, 9], position=3)  # all accepted, then a bonus
CUT = row([-1, 0, 1, 1], 3, [0, 1, 2, 1], [1], position=10, ended="length")  # two accepted, and one was still wanted
PLAIN = row([-1], 0, [0], [9], position=5, ended="stop token")
STEPS = [
    StepRecord(
        0,
        (CHAIN,),
        "D",
        "R",
        4,
        {"prefill": 500.0, "draft": 250.0, "target": 250.0},
        at=1.0,
        ids=("a",),
        events=(
            Event("added", "a", 0.0),
            Event("added", "b", 0.25),
            Event("admitted", "a", 0.75, tokens=2),
            Event("prefilled", "a", 1.5, tokens=5),
        ),
    ),
    StepRecord(
        1,
        (WHOLE,),
        "D",
        "R",
        2,
        {"prefill": 250.0, "draft": 125.0, "target": 125.0},
        at=2.0,
        ids=("b",),
        events=(
            Event("preempted", "a", 2.0, tokens=10),
            Event("admitted", "b", 2.0, tokens=0),
            Event("prefilled", "b", 2.25, tokens=3),
        ),
    ),
    StepRecord(
        2,
        (PLAIN, CUT),
        "D",
        "R",
        4,
        {"prefill": 500.0, "draft": 375.0, "target": 125.0},
        at=3.0,
        ids=("b", "a"),
        events=(
            Event("admitted", "a", 3.0, tokens=4),
            Event("prefilled", "a", 3.5, tokens=6),
            Event("finished", "b", 4.0, tokens=3, detail="stop token"),
            Event("finished", "a", 4.0, tokens=4, detail="length"),
        ),
    ),
]


def test_tokens_by_hand():
    assert metrics.tokens(STEPS) == Tokens(
        drafted=3 + 1 + 0 + 3, verified=4 + 2 + 1 + 4, accepted=4, bonus=2, correction=1
    )
    assert metrics.tokens(STEPS, "a") == Tokens(drafted=6, verified=8, accepted=3, bonus=0, correction=1)
    assert metrics.tokens(STEPS, 1) == Tokens(drafted=3, verified=4, accepted=1, bonus=0, correction=0)  # a place
    assert metrics.tokens(STEPS).discarded == 3 and metrics.tokens(STEPS).row_steps == 4
    assert metrics.acceptance_length(STEPS, "a") == 4 / 2 == metrics.tokens(STEPS, "a").acceptance_length
    assert metrics.accepted_per_step(STEPS, "b") == 1 / 2 == metrics.tokens(STEPS, "b").accepted_per_step
    assert isnan(metrics.acceptance_length(STEPS, "nobody")) and isnan(metrics.tokens([]).acceptance_length)


def test_a_string_is_a_rows_number_where_steps_name_no_requests():
    bare = [StepRecord(0, (CHAIN, WHOLE), "D", "R", 4), StepRecord(1, (None, PLAIN), "D", "R", 1)]
    assert metrics.tokens(bare, "1") == metrics.tokens(bare, 1) == Tokens(1, 3, 1, 2, 0)


def test_prefix_acceptance_has_one_denominator_and_acceptance_by_depth_its_own():
    # Depth 1 was drafted by CHAIN, WHOLE and CUT, depth 2 by CHAIN and CUT, depth 3 by CHAIN alone.
    assert metrics.prefix_acceptance(STEPS) == [
        DepthAcceptance(1, 4, 3),
        DepthAcceptance(2, 4, 2),
        DepthAcceptance(3, 4, 0),
    ]
    assert metrics.acceptance_by_depth(STEPS) == [
        DepthAcceptance(1, 3, 3),
        DepthAcceptance(2, 2, 2),
        DepthAcceptance(3, 1, 0),
    ]
    assert metrics.prefix_acceptance(STEPS, "b") == [DepthAcceptance(1, 2, 1)]
    assert metrics.prefix_acceptance([]) == []


def test_phases_by_rows_are_medians_over_the_steps_that_had_them():
    more = [*STEPS, replace(STEPS[0], ms={"draft": 50.0}), StepRecord(4, (None,), "D", "R", 1, {"prefill": 7.0})]
    assert metrics.phase_ms_by_rows(more) == {
        0: {"prefill": PhaseMs(7.0, 1)},
        1: {"prefill": PhaseMs(375.0, 2), "draft": PhaseMs(125.0, 3), "target": PhaseMs(187.5, 2)},
        2: {"prefill": PhaseMs(500.0, 1), "draft": PhaseMs(375.0, 1), "target": PhaseMs(125.0, 1)},
    }


def test_requests_by_hand():
    a, b = requests(STEPS)
    assert (a.id, a.prompt, a.prefilled, a.found, a.preemptions, a.reason) == ("a", 8, 11, 6, 1, "length")
    assert a.reread == 6  # ten were read before, four of them found
    assert (a.added, a.admitted, a.first, a.last) == (0.0, 0.75, 2.0, 4.0)
    assert (a.queue, a.ttft, a.itl, a.throughput) == (0.75, 2.0, (4.0 - 2.0) / 3, 1.0)
    assert (b.id, b.prompt, b.prefilled, b.found, b.reread, b.preemptions) == ("b", 4, 3, 0, 0, 0)
    assert (b.queue, b.ttft, b.itl, b.throughput) == (1.75, 2.25, 1.5 / 2, 3 / 3.75)
    assert (b.reason, b.tokens) == ("stop token", metrics.tokens(STEPS, "b"))
    assert b.acceptance == (DepthAcceptance(1, 1, 1),)


def test_totals_by_hand():
    all_ = totals(requests(STEPS))
    assert (all_.requests, all_.reasons, all_.prompt) == (2, {"length": 1, "stop token": 1}, 12)
    assert (all_.prefilled, all_.found, all_.reread, all_.preemptions) == (14, 6, 6, 1)
    assert all_.span == 4.0 and all_.throughput == 7 / 4
    assert all_.ttft.p50 == (2.0 + 2.25) / 2 and all_.ttft.count == 2 and all_.queue.p50 == 1.25


def test_what_has_not_happened_is_not_a_number():
    queued = [replace(STEPS[0], rows=(), ids=(), events=(Event("added", "z", 0.5),))]
    (z,) = requests(queued)
    assert z.prompt is None and z.reason is None and z.added == 0.5 and z.tokens == Tokens(0, 0, 0, 0, 0)
    assert all(isnan(x) for x in (z.queue, z.ttft, z.itl, z.throughput))
    nothing = totals([z])
    assert nothing.ttft.count == 0 and isnan(nothing.ttft.p99) and isnan(nothing.throughput)


def test_between_the_tokens_of_one_step_no_time_passes_and_one_token_has_none_between():
    late = [replace(s, events=()) for s in STEPS]  # the server's events are lost
    two, one = requests(late[1:2])[0], requests([replace(late[2], rows=(PLAIN,), ids=("b",))])[0]
    assert (two.tokens.committed, two.itl) == (2, 0.0)
    assert one.tokens.committed == 1 and isnan(one.itl) and isnan(one.ttft) and one.last == 4.0


def test_an_aborted_request_says_so_and_its_unfinished_prefill_is_not_counted():
    events = (Event("added", "z", 0.0), Event("admitted", "z", 1.0, 4), Event("aborted", "z", 2.0))
    (z,) = requests([StepRecord(0, (), "D", "R", 1, {"prefill": 9.0}, events=events)])
    assert (z.reason, z.prefilled, z.found, z.queue) == ("aborted", 0, 4, 1.0)


def test_what_is_read_again_after_two_preemptions():
    def life(*events: tuple[str, int]) -> int:
        told = tuple(Event(kind, "z", float(i), n) for i, (kind, n) in enumerate(events))  # pyrefly: ignore
        return requests([StepRecord(0, (), "D", "R", 1, events=told)])[0].reread

    start = (("admitted", 0), ("prefilled", 10), ("preempted", 14))
    assert life(*start, ("admitted", 0), ("prefilled", 14)) == 14
    assert life(*start, ("admitted", 8), ("prefilled", 6)) == 6
    assert life(*start, ("admitted", 14), ("prefilled", 0)) == 0
    assert life(*start, ("admitted", 8), ("prefilled", 6), ("preempted", 20), ("admitted", 16), ("prefilled", 4)) == 10
    assert life(*start, ("admitted", 0), ("preempted", 5), ("admitted", 0), ("prefilled", 14)) == 14  # half way back
    assert life(*start, ("admitted", 4), ("prefilled", 6), ("prefilled", 8)) == 10  # in two chunks
    assert life(("preempted", 3), ("admitted", 0), ("prefilled", 10)) == 3  # its first prefill was broken off


def test_a_plain_session_is_one_request_a_row():
    bare = [
        replace(s, ids=(), events=(), rows=rows) for s, rows in zip(STEPS, ((CHAIN, WHOLE), (CUT, PLAIN)), strict=False)
    ]
    first, second = requests(bare)
    assert (first.id, first.prompt, first.added, first.queue, first.ttft) == ("0", 8, 0.0, 0.0, 2.0)
    assert (second.id, second.prompt, second.reason, second.tokens.committed) == ("1", 4, "stop token", 3)
    assert second.itl == (2.5 - 2.0) / 2 and totals([first, second]).span == 2.5


@settings(max_examples=200, deadline=None)
@given(st.one_of(served, plain))
def test_the_sums_over_requests_are_the_totals(steps):
    each = requests(steps)
    all_ = totals(each)
    assert all_.tokens == metrics.tokens(steps)
    assert list(all_.acceptance) == metrics.acceptance_by_depth(steps)
    assert len({r.id for r in each}) == len(each) == all_.requests
    for r in each:
        assert r.tokens == metrics.tokens(steps, r.id)
        assert list(r.acceptance) == metrics.acceptance_by_depth(steps, r.id)
        moments = [r.added, r.admitted, r.first, r.last]
        assert moments == sorted(moments) or isnan(sum(moments))
    assert sum(s.load.prefilled for s in steps if s.load) == all_.prefilled
    assert sum(s.load.reread for s in steps if s.load) == all_.reread
    assert all_.preemptions == sum(e.kind == "preempted" for s in steps for e in s.events)
    if all_.tokens.committed:
        assert all_.throughput * all_.span == pytest.approx(all_.tokens.committed)


@settings(max_examples=200, deadline=None)
@given(st.one_of(served, plain))
def test_every_token_is_told_once(steps):
    t = metrics.tokens(steps)
    rows = [r for s in steps for r in s.rows if r]
    assert t.committed == sum(len(r.emitted) for r in rows) and t.row_steps == len(rows)
    assert t.discarded >= 0 and t.accepted <= sum(len(r.path) - 1 for r in rows)
    assert Counter(accepted=t.accepted, bonus=t.bonus, correction=t.correction) == metrics.origins(steps)
    if rows:
        assert metrics.acceptance_length(steps) == t.acceptance_length == t.committed / t.row_steps
        assert metrics.accepted_per_step(steps) == t.accepted_per_step
    seats = max((len(s.rows) for s in steps), default=0)
    by_seat = [metrics.tokens(steps, b) for b in range(seats)]
    assert sum(x.committed for x in by_seat) == t.committed and sum(x.drafted for x in by_seat) == t.drafted


@settings(max_examples=200, deadline=None)
@given(served)
def test_denominators_match_where_drafts_differ_in_length(steps):
    """Counted anew, one row step and depth at a time: a row step that drafted nothing at a depth has no say there."""
    rows = [r for s in steps for r in s.rows if r]
    deepest = max((max(r.depth) for r in rows), default=0)
    reached, accepted = Counter[int](), Counter[int]()
    for r in rows:
        for d in range(1, deepest + 1):
            kept = [n for n in range(len(r.parent)) if n in r.path and r.depth[n] == d]
            tried = [n for n in range(len(r.parent)) if r.depth[n] == d and r.parent[n] in r.path]
            reached[d] += bool(tried)
            accepted[d] += bool(kept)
    found = {d.depth: (d.reached, d.accepted) for d in metrics.acceptance_by_depth(steps)}
    assert found == {d: (reached[d], accepted[d]) for d in reached if reached[d]}
    prefix = metrics.prefix_acceptance(steps)
    assert [(d.depth, d.reached, d.accepted) for d in prefix] == [
        (d, len(rows), accepted[d]) for d in range(1, deepest + 1)
    ]
    assert sum(d.accepted for d in prefix) == sum(len(r.path) - 1 for r in rows)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_percentiles_are_numpys(values):
    found = percentiles([*values, nan])
    assert [found.p50, found.p90, found.p99] == pytest.approx(np.percentile(values, [50, 90, 99]).tolist())
    assert found.count == len(values)

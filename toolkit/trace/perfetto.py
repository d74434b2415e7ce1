"""A trace as Chrome's JSON of events, to be opened in ui.perfetto.dev or chrome://tracing.

    Path("run.json").write_text(perfetto.text(trace))

- engine    a slice a step, in it one a phase, laid end to end in the order they are made: what a phase did later in the step
            (drafters that learn from a verdict) is told with its first part
- requests  a track each: waiting, prefill and running, and in the last a slice for each draft and each verification the
            request took part in, with an arrow between the two where guesses were sent; marks where it was preempted,
            finished or aborted
- counters  queue (requests waiting, prefilling, running), pages (held, cached, free), acceptance (tokens a row step)

All times come from the session's one monotonic clock. A step that seems to begin before the last one has ended (a GPU tells
durations, the host beginnings) begins where that ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from toolkit.trace.metrics import counted, who
from toolkit.trace.records import Event, RowRecord, StepRecord
from toolkit.trace.trace import Trace

ENGINE, REQUESTS = 1, 2  # Chrome's processes
ORDER = ("prefill", "draft", "target", "verify", "commit")
STATES = {"added": "waiting", "admitted": "prefill", "prefilled": "running", "preempted": "waiting"}
ENDS = ("preempted", "finished", "aborted")  # of a run


def text(trace: Trace) -> str:
    """The JSON document."""
    steps = list(trace.steps)  # a session may still append
    told = {"traceEvents": events(steps), "displayTimeUnit": "ms", "otherData": trace.about}
    return json.dumps(told, separators=(",", ":"), allow_nan=False)


def events(steps: Sequence[StepRecord]) -> list[dict[str, Any]]:
    """Chrome's events: names of tracks, then all others in the order of time. Times are microseconds, in whole
    nanoseconds."""
    lives: dict[str, _Life] = {}
    timed: list[dict[str, Any]] = []
    end = 0
    for step in steps:
        whole, phases = _spans(step, end)
        end = whole.end
        timed += _engine(step, whole, phases)
        _live(lives, step, whole, phases)
    arrows = count(1)
    for track, life in enumerate(lives.values(), start=1):
        timed += life.events(track, end, arrows)
    # A slice comes before those in it, and before the marks and arrows that stand on it.
    timed.sort(key=lambda e: (e["ts"], e["ph"] != "X", -e.get("dur", 0)))
    return [*_names(lives), *timed]


@dataclass(slots=True)
class _Span:
    name: str
    start: int  # nanoseconds
    end: int
    args: dict[str, Any] = field(default_factory=dict)

    def event(self, process: int, track: int) -> dict[str, Any]:
        at = {"ts": self.start / 1e3, "dur": (self.end - self.start) / 1e3}
        return {"name": self.name, "ph": "X", "pid": process, "tid": track} | at | {"args": self.args}


@dataclass(slots=True)
class _Life:
    """One request's track. Its spans follow each other without a gap while it is on the server, and none cuts through a
    draft or a verification: events tell when the host knew, phases when the work was done, and the two differ a little."""

    spans: list[_Span] = field(default_factory=list)
    state: _Span | None = None  # the last of them, while it is open
    floor: int = 0  # nanoseconds; what comes next begins no earlier
    parts: list[dict[str, _Span]] = field(default_factory=list)  # draft and verify of each step
    marks: list[Event] = field(default_factory=list)

    def turn(self, events: Iterable[Event], latest: int | None = None) -> None:
        """Change state at each event, or at `latest`, in nanoseconds, where the event is told too late."""
        for event in events:
            at = round(event.at * 1e9)
            self.enter(STATES.get(event.kind), at if latest is None else min(at, latest))
            if event.kind in ENDS:
                self.marks.append(event)

    def enter(self, name: str | None, at: int) -> None:
        if self.state and self.state.name == name:
            return
        self.floor = max(self.floor, at)
        if self.state:
            self.state.end = self.floor
        self.state = _Span(name, self.floor, self.floor) if name else None
        if self.state:
            self.spans.append(self.state)

    def run(self, row: RowRecord, phases: dict[str, _Span]) -> None:
        """Take part in a step."""
        told = counted([row])
        args = {"position": row.position, "drafted": told.drafted}
        part = {}
        for name in [n for n in ("draft", "verify") if n in phases]:
            start = max(self.floor, phases[name].start)
            part[name] = _Span(name, start, max(start, phases[name].end), args)
            self.floor = part[name].end
            args = args | {"accepted": told.accepted, "emitted": told.committed}
        self.parts.append(part)

    def events(self, track: int, end: int, arrows: Iterator[int]) -> Iterator[dict[str, Any]]:
        if self.state:
            self.state.end = max(self.floor, end)
        here = {"pid": REQUESTS, "tid": track}
        for span in self.spans:
            yield span.event(REQUESTS, track)
        for mark in self.marks:
            args = {"tokens": mark.tokens} | ({"why": mark.detail} if mark.detail else {})
            yield {"name": mark.kind, "ph": "i", "s": "t", "ts": round(mark.at * 1e9) / 1e3, "args": args} | here
        for part in self.parts:
            yield from (span.event(REQUESTS, track) for span in part.values())
            if len(part) == 2 and part["draft"].args["drafted"]:
                arrow = {"name": "guesses", "cat": "guesses", "id": next(arrows)} | here
                yield arrow | {"ph": "s", "ts": part["draft"].start / 1e3}
                yield arrow | {"ph": "f", "bp": "e", "ts": part["verify"].start / 1e3}


def _live(lives: dict[str, _Life], step: StepRecord, whole: _Span, phases: dict[str, _Span]) -> None:
    """What a step and the events before it meant for each request."""
    rows = {name: row for name, row in zip(who(step), step.rows, strict=True) if row}
    happened: dict[str, list[Event]] = {}
    for event in step.events:
        happened.setdefault(event.request, []).append(event)
    if not step.ids:  # without a server nobody tells of ends
        for name, row in rows.items():
            if row.ended:
                happened[name] = [Event("finished", name, whole.end / 1e9, len(row.emitted), row.ended)]
    start = next((phases[n].start for n in ("draft", "verify") if n in phases), whole.start)
    for name in happened | rows:
        life, some = lives.setdefault(name, _Life()), happened.get(name, [])
        if row := rows.get(name):
            before, after = _around(some)
            life.turn(before, latest=start)
            life.enter("running", start)
            life.run(row, phases)
            life.turn(after)
        else:
            life.turn(some)


def _around(events: list[Event]) -> tuple[list[Event], list[Event]]:
    """Those before a step of a request's run and those after it, which end the run."""
    ready = max((i for i, e in enumerate(events, start=1) if e.kind == "prefilled"), default=0)
    cut = next((i for i, e in enumerate(events) if i >= ready and e.kind in ENDS), len(events))
    return events[:cut], events[cut:]


def _spans(step: StepRecord, floor: int) -> tuple[_Span, dict[str, _Span]]:
    """The step and its phases, none beginning before `floor` nanoseconds."""
    at = start = max(floor, round(step.at * 1e9))
    phases = {}
    for name in sorted(step.ms, key=lambda n: ORDER.index(n) if n in ORDER else len(ORDER)):
        phases[name] = _Span(name, at, at + round(step.ms[name] * 1e6))
        at = phases[name].end
    return _Span("step", start, at), phases


def _engine(step: StepRecord, whole: _Span, phases: dict[str, _Span]) -> Iterator[dict[str, Any]]:
    rows = [r for r in step.rows if r]
    told = counted(rows)
    counts = {"drafted": told.drafted, "accepted": told.accepted, "emitted": told.committed}
    args = {"step": step.step, "rows": len(rows), "nodes": step.nodes} | counts  # nodes a row, padding included
    whole.args = args | {"drafter": step.drafter, "rule": step.rule}
    yield whole.event(ENGINE, 1)
    for span in phases.values():
        span.args = args
        yield span.event(ENGINE, 1)
    if rows:
        yield _counter("acceptance", whole.end, {"tokens a row step": told.acceptance_length})
    if load := step.load:
        queue = {"waiting": load.waiting, "prefilling": load.prefilling, "running": load.running}
        yield _counter("queue", whole.end, queue)
        free = load.pages - load.held - load.cached
        yield _counter("pages", whole.end, {"held": load.held, "cached": load.cached, "free": free})


def _counter(name: str, at: int, values: Mapping[str, float]) -> dict[str, Any]:
    return {"name": name, "ph": "C", "pid": ENGINE, "ts": at / 1e3, "args": values}


def _names(requests: Iterable[str]) -> Iterator[dict[str, Any]]:
    for process, name in (ENGINE, "engine"), (REQUESTS, "requests"):
        yield {"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}
    for process, track, name in (ENGINE, 1, "steps"), *((REQUESTS, i, n) for i, n in enumerate(requests, start=1)):
        here = {"pid": process, "tid": track}
        yield {"name": "thread_name", "ph": "M", "args": {"name": name}} | here
        yield {"name": "thread_sort_index", "ph": "M", "args": {"sort_index": track}} | here

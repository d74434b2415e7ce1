"""What each request went through, and what all of them did together.

- queue               seconds from `added` to the first `admitted`.
- time to first token seconds from `added` to the end of the step that committed the first token. A step ends when its
                      phases have passed: `at` + `total_ms` / 1000.
- inter-token latency (last emission - first emission) / (new tokens - 1), in seconds: what a reader waits for a token once
                      the first is there. Tokens of one step come together, so it is a mean, and 0 for a single step.
- throughput          new tokens a second, from `added` to the last emission; of all requests, from the first `added` to the
                      last emission of any.
- read again          tokens of a prefill that had been read before a preemption took their pages.

Sessions without a server name no requests: there the row's number is the id, and everything is added and admitted at 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, isnan, nan

from toolkit.trace.metrics import DepthAcceptance, Tokens, by_depth, counted, who
from toolkit.trace.records import Event, RowRecord, StepRecord


@dataclass(frozen=True, slots=True)
class Request:
    """The life of a request. Moments are seconds since the session began, NaN where there was none or no record of it."""

    id: str
    prompt: int | None  # tokens of its prompt; None before its first step
    tokens: Tokens
    acceptance: tuple[DepthAcceptance, ...]  # by depth
    prefilled: int  # tokens read in prefills that came to their end, those read again included
    found: int  # tokens found in the prefix cache instead, at every admission
    reread: int  # of the prefilled
    preemptions: int
    added: float
    admitted: float  # for the first time
    first: float  # emission
    last: float  # emission
    reason: str | None  # why it ended; None while it goes on

    @property
    def queue(self) -> float:
        return self.admitted - self.added

    @property
    def ttft(self) -> float:
        return self.first - self.added

    @property
    def itl(self) -> float:
        """NaN with fewer than two tokens."""
        return _ratio(self.last - self.first, self.tokens.committed - 1)

    @property
    def throughput(self) -> float:
        return _ratio(self.tokens.committed, self.last - self.added)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of the values that are there, between two of them on a straight line; NaN without any."""

    p50: float
    p90: float
    p99: float
    count: int


@dataclass(frozen=True, slots=True)
class Totals:
    """All requests together: sums, and percentiles of the requests' times in seconds."""

    requests: int
    reasons: dict[str, int]  # how many ended, by why
    prompt: int  # tokens, where known
    tokens: Tokens
    acceptance: tuple[DepthAcceptance, ...]
    prefilled: int
    found: int
    reread: int
    preemptions: int
    span: float  # from the first `added` to the last emission
    queue: Percentiles
    ttft: Percentiles
    itl: Percentiles  # of the requests' means

    @property
    def throughput(self) -> float:
        return _ratio(self.tokens.committed, self.span)


def requests(steps: Sequence[StepRecord]) -> list[Request]:
    """One entry a request, in the order they came; `steps` from the session's first on."""
    seen: dict[str, _Seen] = {}
    for step in steps:
        for event in step.events:
            seen.setdefault(event.request, _Seen()).events.append(event)
        for name, row in zip(who(step), step.rows, strict=True):
            if row is not None:
                known = seen.setdefault(name, _Seen(served=bool(step.ids)))
                known.rows.append(row)
                known.emissions.append(step.at + step.total_ms / 1000)  # every row step commits a token at least
    return [_request(name, known) for name, known in seen.items()]


def totals(requests: Sequence[Request]) -> Totals:
    """Sums and percentiles over these requests."""
    reached, accepted = Counter[int](), Counter[int]()
    for d in (d for r in requests for d in r.acceptance):
        reached[d.depth] += d.reached
        accepted[d.depth] += d.accepted
    began = min((r.added for r in requests if not isnan(r.added)), default=nan)
    ended = max((r.last for r in requests if not isnan(r.last)), default=nan)
    return Totals(
        requests=len(requests),
        reasons=dict(Counter(r.reason for r in requests if r.reason is not None)),
        prompt=sum(r.prompt or 0 for r in requests),
        tokens=Tokens(
            drafted=sum(r.tokens.drafted for r in requests),
            verified=sum(r.tokens.verified for r in requests),
            accepted=sum(r.tokens.accepted for r in requests),
            bonus=sum(r.tokens.bonus for r in requests),
            correction=sum(r.tokens.correction for r in requests),
        ),
        acceptance=tuple(DepthAcceptance(d, reached[d], accepted[d]) for d in sorted(reached)),
        prefilled=sum(r.prefilled for r in requests),
        found=sum(r.found for r in requests),
        reread=sum(r.reread for r in requests),
        preemptions=sum(r.preemptions for r in requests),
        span=ended - began,
        queue=percentiles(r.queue for r in requests),
        ttft=percentiles(r.ttft for r in requests),
        itl=percentiles(r.itl for r in requests),
    )


def percentiles(values: Iterable[float]) -> Percentiles:
    """Of these values, NaN left out."""
    known = sorted(v for v in values if not isnan(v))

    def at(share: float) -> float:
        if not known:
            return nan
        place = share * (len(known) - 1)
        low, high = known[floor(place)], known[ceil(place)]
        return low + (high - low) * (place - floor(place))

    return Percentiles(at(0.5), at(0.9), at(0.99), len(known))


@dataclass(slots=True)
class _Seen:
    served: bool = True
    events: list[Event] = field(default_factory=list)
    rows: list[RowRecord] = field(default_factory=list)
    emissions: list[float] = field(default_factory=list)  # ends of steps


def _request(name: str, seen: _Seen) -> Request:
    unknown = nan if seen.served else 0.0
    at: dict[str, float] = {}
    for event in seen.events:
        at.setdefault(event.kind, event.at)
    return Request(
        id=name,
        prompt=seen.rows[0].position + 1 if seen.rows else None,  # the first pending token is the prompt's last
        tokens=counted(seen.rows),
        acceptance=tuple(by_depth(seen.rows)),
        prefilled=sum(e.tokens for e in seen.events if e.kind == "prefilled"),
        found=sum(e.tokens for e in seen.events if e.kind == "admitted"),
        reread=_reread(seen.events),
        preemptions=sum(e.kind == "preempted" for e in seen.events),
        added=at.get("added", unknown),
        admitted=at.get("admitted", unknown),
        first=seen.emissions[0] if seen.emissions else nan,
        last=seen.emissions[-1] if seen.emissions else nan,
        reason=_reason(seen),
    )


def _reread(events: Sequence[Event]) -> int:
    """What is found, read and lost always begins at the text's beginning, so lengths tell what overlaps."""
    again = known = place = 0
    for event in events:
        if event.kind == "preempted":
            known = max(known, event.tokens)
        elif event.kind == "admitted":
            place = event.tokens
        elif event.kind == "prefilled":
            again += max(0, min(known, place + event.tokens) - place)
            place += event.tokens
    return again


def _reason(seen: _Seen) -> str | None:
    for event in reversed(seen.events):
        if event.kind in ("finished", "aborted"):
            return event.detail or event.kind
    return seen.rows[-1].ended if seen.rows else None


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else nan

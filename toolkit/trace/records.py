"""One record a step, one entry a row: plain Python, no tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from toolkit.trace.evidence import Evidence

Origin = Literal["accepted", "bonus", "correction"]
NOT_TESTED, ACCEPTED, REJECTED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class RowRecord:
    """What happened to one request in one step. Lists over nodes have one entry a real node, the root first.

    p          target probability of the node's token given its path, after the sampling parameters (0 or 1 at
               temperature 0); the root's has no meaning
    q          probability the token was drawn with; 1 when the drafter was certain
    accept, u  the test: accepted when u < accept. Both are meaningless where outcome is NOT_TESTED; u is NaN where
               nothing was left to chance
    confidence the drafter's own probability of a node given its path, where it knows one
    prob, top  the target's own probability of each node, and its `k` likeliest next tokens after each node, at
               temperature 1 and before any sampling parameter; empty unless the engine records them
    evidence   what the verdict was made from, to judge the step again; None unless the engine records it
    """

    position: int  # of the pending token in the row's text, counted from 0
    token: tuple[int, ...]
    parent: tuple[int, ...]
    tip: int
    bonus: int
    emitted: tuple[int, ...]  # tokens committed in this step; shorter than the verdict where the request ended
    outcome: tuple[int, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    accept: tuple[float, ...]
    u: tuple[float, ...]
    confidence: tuple[float, ...] = ()
    prob: tuple[float, ...] = ()
    top: tuple[tuple[tuple[int, float], ...], ...] = ()
    ended: str | None = None  # why the request ended in this step
    evidence: Evidence | None = None

    @property
    def path(self) -> tuple[int, ...]:
        """The kept nodes from the root to the tip."""
        nodes, at = [], self.tip
        while at >= 0:
            nodes.append(at)
            at = self.parent[at]
        return tuple(reversed(nodes))

    @property
    def corrected(self) -> bool:
        """Was a child of the tip tested and rejected, so that the last token is a correction and no bonus."""
        return any(p == self.tip and o == REJECTED for p, o in zip(self.parent, self.outcome, strict=True))

    @property
    def origins(self) -> tuple[Origin, ...]:
        """How each emitted token came."""
        last: Origin = "correction" if self.corrected else "bonus"
        whole: list[Origin] = ["accepted"] * (len(self.path) - 1)
        return tuple([*whole, last][: len(self.emitted)])

    @property
    def depth(self) -> tuple[int, ...]:
        """Edges between each node and the root."""
        out: list[int] = []
        for parent in self.parent:
            out.append(0 if parent < 0 else out[parent] + 1)
        return tuple(out)


EventKind = Literal["added", "admitted", "prefilled", "preempted", "finished", "aborted"]


@dataclass(frozen=True, slots=True)
class Event:
    """A turn in the life of a request.

    tokens  admitted: tokens found in the prefix cache; prefilled: tokens that were read, those found left out; preempted:
            tokens to be read again, unless they are found; finished and aborted: new tokens
    detail  finished: why
    """

    kind: EventKind
    request: str
    at: float  # seconds since the session began
    tokens: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """How full the server was when a step ended."""

    waiting: int  # requests
    prefilling: int
    running: int
    rows: int  # rows a batch may have
    pages: int  # of the target's pool
    held: int  # pages that requests hold, shared ones once
    cached: int  # pages that only the prefix cache keeps
    prefilled: int = 0  # tokens read in this step's prefill, those read again included
    reread: int = 0  # of these, tokens that had been read before a preemption


@dataclass(frozen=True, slots=True)
class PrefixNode:
    """A full page in the prefix cache."""

    page: int
    parent: int  # index of the node before it, -1 at the beginning of a text
    tokens: tuple[int, ...]
    held: bool  # by a request


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Pages, queues and prefix cache of a server between two steps."""

    step: int
    size: int  # tokens a page
    pages: tuple[tuple[str, ...], ...]  # by page: the requests that hold it
    prefix: tuple[PrefixNode, ...]  # parents first
    waiting: tuple[str, ...]  # in the order they will be admitted
    prefilling: tuple[str, ...]
    running: tuple[str, ...]
    settled: dict[str, int]  # tokens of a request that are in the cache


@dataclass(frozen=True, slots=True)
class StepRecord:
    step: int
    rows: tuple[RowRecord | None, ...]  # None where a request had ended before
    drafter: str  # the parts that ran: their repr, shortened
    rule: str
    nodes: int  # nodes in the target's pass, a row, padding included
    ms: dict[str, float] = field(default_factory=dict)  # draft, target, verify, commit; prefill
    at: float = 0.0  # seconds since the session began, at the step's beginning
    ids: tuple[str, ...] = ()  # the requests of the rows; none where rows never change
    load: Load | None = None
    events: tuple[Event, ...] = ()  # since the step before

    @property
    def total_ms(self) -> float:
        return sum(self.ms.values())

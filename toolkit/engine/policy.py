"""Who comes next, who must go, and how much of a step belongs to prompts: decisions that change no token of any request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from toolkit.engine import refuse
from toolkit.engine.ticket import Ticket


class Policy(Protocol):
    """Asked by a server in every step. A class of your own with these methods will do."""

    def next(self, waiting: Sequence[Ticket], fits: Callable[[Ticket], bool]) -> Ticket | None:
        """The request to admit, of `waiting` in order of arrival; one that does not fit must not be named. None for nobody."""
        ...

    def victim(self, admitted: Sequence[Ticket]) -> Ticket:
        """The request that gives up its pages, of at least two."""
        ...

    def prefill(self, prefilling: int, running: int) -> int:
        """Prompt tokens to read in this step before the running requests get theirs."""
        ...


def urgency(ticket: Ticket) -> tuple[int, int]:
    """Smaller is sooner: by priority, then by arrival, so a preempted request comes before younger ones."""
    return -ticket.priority, ticket.order


@dataclass(frozen=True, slots=True)
class InTurn:
    """First come, first served, within a priority. While requests are running, prompts get `tokens` tokens a step, so neither
    waits for the other; `tokens=None` lets prompts go first altogether. Nobody overtakes a request that does not fit yet.
    Raises ValueError for a number below one."""

    tokens: int | None = 256

    def __post_init__(self) -> None:
        if self.tokens is not None:
            refuse.whole(self.tokens, "tokens of prompts a step")

    def next(self, waiting: Sequence[Ticket], fits: Callable[[Ticket], bool]) -> Ticket | None:
        first = min(waiting, key=urgency, default=None)
        return first if first and fits(first) else None

    def victim(self, admitted: Sequence[Ticket]) -> Ticket:
        return max(admitted, key=urgency)

    def prefill(self, prefilling: int, running: int) -> int:
        return 2**31 if self.tokens is None or not running else self.tokens


@dataclass(frozen=True, slots=True)
class Overtaking(InTurn):
    """The same, but whoever fits may overtake whoever does not. A large request can wait long."""

    def next(self, waiting: Sequence[Ticket], fits: Callable[[Ticket], bool]) -> Ticket | None:
        return next((t for t in sorted(waiting, key=urgency) if fits(t)), None)

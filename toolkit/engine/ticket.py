"""A request in a server, from its arrival to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toolkit.engine.entry import Entry

State = Literal["waiting", "prefilling", "running", "finished", "aborted"]


@dataclass(slots=True, eq=False)
class Ticket:
    """What `Server.add` gives. Reading it is always safe, from any thread."""

    name: str
    entry: Entry
    order: int  # of arrival
    priority: int = 0  # higher ones are admitted first and preempted last
    twin: Ticket | None = None  # the request whose pages it begins with
    home: object = None  # the server that it was added to
    state: State = "waiting"
    cancelled: bool = False
    error: Exception | None = None  # what went wrong with this request alone, which ended it
    preemptions: int = 0
    most_read: int = 0  # tokens of it that the target has read at some time

    @property
    def output(self) -> list[int]:
        """The new tokens so far."""
        return self.entry.output

    @property
    def text(self) -> str:
        """The new text so far, never ending in half a character; '' without a decoder."""
        return self.entry.judge.text

    @property
    def reason(self) -> str | None:
        """Why it ended: one of `Stopping`'s reasons, "aborted", or "failed" (see `error`); None while it goes on."""
        return "failed" if self.error else "aborted" if self.state == "aborted" else self.entry.judge.reason

    @property
    def done(self) -> bool:
        return self.state in ("finished", "aborted")

    def __repr__(self) -> str:
        return f"Ticket({self.name}, {self.state}, {len(self.entry.prompt)} + {self.entry.judge.count} tokens)"

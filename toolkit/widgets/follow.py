"""What is new in a list of steps that grows, and what was taken back: a reader's work is that of the news alone."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.trace import StepRecord


class Follower:
    """Remembers the records it has had. Steps that were replaced, as after a rewind, are other records: two lists that
    have parted never meet again, so the place where they part is found by halving."""

    def __init__(self) -> None:
        self.had: list[StepRecord] = []

    def news(self, steps: Sequence[StepRecord]) -> tuple[list[StepRecord], Sequence[StepRecord]]:
        """The records that are gone, newest first, and then those that are new."""
        common = min(len(self.had), len(steps))
        if common and self.had[common - 1] is not steps[common - 1]:
            low, common = 0, common - 1
            while low < common:
                middle = (low + common) // 2
                if self.had[middle] is steps[middle]:
                    low = middle + 1
                else:
                    common = middle
        gone = self.had[common:][::-1]
        fresh = steps[common:]
        del self.had[common:]
        self.had.extend(fresh)
        return gone, fresh

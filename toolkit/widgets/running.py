"""A lab's live run, as its screen draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.engine import takes_every_core
from toolkit.trace import StepRecord
from toolkit.widgets.page import error_line, status_line

if TYPE_CHECKING:
    from toolkit.widgets.lab import Lab


class Running:
    """The screen's source."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def steps(self) -> list[StepRecord]:
        return list(self.lab.trace.steps)

    def status(self, steps: Sequence[StepRecord]) -> str:
        if error := self.lab.live.error or self.lab.refused:
            return error_line(error)
        return status_line(self.lab.live.state, steps, self.lab.session.reasons)

    def resting(self) -> bool:
        return self.lab.live.state != "running"

    def crowded(self) -> bool:
        return takes_every_core(self.lab.session.token.device)

    def sync(self) -> None:
        self.lab.desk.sync()
        self.lab.studies.follow()

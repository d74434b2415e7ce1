"""The steps of a run as a strip of bars; who drags along it moves through time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from toolkit.trace import StepRecord
from toolkit.widgets.follow import Follower

HERE = Path(__file__).parent


class Timeline(anywidget.AnyWidget):
    """A slider over steps. `update` brings it up to date.

    steps   how many there are
    shown   the step looked at; -1 follows the newest. A step beyond the last becomes -1: it was rewound
    tokens  what each step emitted, 0 where the row had ended. Grows in place, which announces nothing: only what is new
            travels, as a message; a page that opens late reads all with the widget's state
    """

    _esm = HERE / "timeline.js"
    _css = HERE / "timeline.css"
    steps = traitlets.Int(0).tag(sync=True)
    shown = traitlets.Int(-1).tag(sync=True)
    tokens = traitlets.List().tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        self._row = 0
        self._follower = Follower()
        self.on_msg(self._on_message)

    def update(self, steps: Sequence[StepRecord], row: int = 0) -> None:
        """Show these steps of a row; the work is that of the new ones alone."""
        if row != self._row:
            self._row, self._follower, self.tokens = row, Follower(), []
        gone, fresh = self._follower.news(steps)
        if gone:
            del self.tokens[len(self.tokens) - len(gone) :]
        if gone or fresh:
            added = [self._count(step) for step in fresh]
            begin = len(self.tokens)  # written before it is sent: a page that opens in between has it, or gets it
            self.tokens.extend(added)
            self.send({"kind": "add", "from": begin, "tokens": added})
        with self.hold_sync():
            self.steps = len(steps)
            if self.shown >= self.steps:
                self.shown = -1

    def _count(self, step: StepRecord) -> int:
        entry = step.rows[self._row] if self._row < len(step.rows) else None
        return len(entry.emitted) if entry else 0

    @traitlets.validate("shown")
    def _existing(self, proposal: dict[str, Any]) -> int:
        # A page may ask for a step that was rewound while it asked.
        step = proposal["value"]
        if step < -1:
            raise ValueError(f"there is no step {step}: shown is a step from 0 on, or -1 for the newest")
        return step if step < self.steps else -1

    def _on_message(self, _: object, content: dict[str, Any], __: list[bytes]) -> None:
        if content.get("kind") == "gap":  # a page lost a message between reading the state and listening
            self.send_state("tokens")

"""A saved run, to be looked at as it was: no model, no tokenizer, nothing to change."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from html import escape
from pathlib import Path

import ipywidgets as w

from toolkit.trace import StepRecord, Trace, decoder, load, seated
from toolkit.widgets.controls import WRAP, Controls
from toolkit.widgets.onscreen import OnScreen
from toolkit.widgets.page import status_line
from toolkit.widgets.screen import Screen
from toolkit.widgets.stage import Stage


class Replay(OnScreen):
    """The Lab's views of a trace, or of a file that `Lab.save` or `toolkit.trace.save` wrote.

        Replay("run.jsonl.gz")

    In plain Python and in a terminal, `print(replay)` shows text, tree and figures up to `step_shown`.
    A server's run has a row for each request. Token ids stand for the text where the trace holds no words.

    Raises ValueError for a file that holds no trace, and for a trace without steps.
    """

    def __init__(self, trace: Trace | str | Path) -> None:
        self.trace = seated(trace if isinstance(trace, Trace) else load(trace))
        if not self.trace.steps:
            raise ValueError("this trace has no step to show: save one after a run")
        decode = decoder(self.trace.words)
        self.stage, self.controls = Stage(decode), Controls()
        self._prompts = [decode(p) for p in self.trace.prompts]
        self._playing: threading.Event | None = None
        c = self.controls
        c.delay.value = 0.3
        c.offer_rows(self._prompts, self.trace.steps[0].ids)
        self.screen = Screen(self.stage, c, _Past(self))
        c.run.on_click(lambda _: self.play())
        c.pause.on_click(lambda _: self.pause())
        c.step.on_click(lambda _: self._by(1))
        c.rewind.on_click(lambda _: self._by(-1))
        c.row.observe(self._other_row, "value")
        hands = w.HBox([c.run, c.pause, c.rewind, c.step, c.delay, c.row], layout=WRAP)
        about = w.HTML(_about(self.trace))
        self.widget = w.VBox(
            [about, hands, c.status, self.stage.tree, c.timeline, self.stage.ribbon, self.stage.charts.widget]
        )
        self._other_row(None)

    def play(self) -> None:
        """Show one step after another, as fast as the delay says; from the beginning if the last is on the screen."""
        self.pause()
        self._playing = stop = threading.Event()
        if self.step_shown == len(self.trace.steps) - 1:
            self.step_shown = 0

        def go() -> None:
            while not stop.wait(max(0.05, self.controls.delay.value)):
                if self.step_shown == len(self.trace.steps) - 1:
                    return
                self.step_shown += 1

        threading.Thread(target=go, name="specdec-replay", daemon=True).start()

    def pause(self) -> None:
        if self._playing:
            self._playing.set()
            self._playing = None

    def close(self) -> None:
        """End what plays, the drawing thread and the widgets."""
        self.pause()
        self.screen.close()
        self.widget.close()

    def _by(self, steps: int) -> None:
        self.pause()
        self.screen.look(self.step_shown + steps)

    def _other_row(self, _: object) -> None:
        row = int(self.controls.row.value or 0)
        self.screen.start(self._prompts[row] if self._prompts else "", row)

    def __repr__(self) -> str:
        return f"Replay({len(self.trace.steps)} steps, {len(self.trace.prompts)} prompts)"


class _Past:
    """A trace that grows no more, as the screen draws it."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay

    def steps(self) -> list[StepRecord]:
        return self.replay.trace.steps

    def status(self, steps: Sequence[StepRecord]) -> str:
        return status_line("replay", steps, [r.ended for s in steps for r in s.rows if r])

    def resting(self) -> bool:
        return True

    def crowded(self) -> bool:
        return False

    def sync(self) -> None:
        pass


def _about(trace: Trace) -> str:

    return "<br>".join(f"<b>{escape(name)}</b> {escape(value)}" for name, value in trace.about.items())

"""Draws a run on the stage, with its scrubber and its line of status: the newest step, or the one that somebody looks at."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

import ipywidgets as w
from IPython.display import HTML, display
from rich.console import Console, RenderableType
from rich.text import Text

from toolkit.terminal.view import page
from toolkit.trace import StepRecord
from toolkit.trace.labels import short
from toolkit.widgets.controls import Controls
from toolkit.widgets.elsewhere import has_page, put
from toolkit.widgets.painter import Painter
from toolkit.widgets.stage import Stage

CHARTS_EVERY = 1.0  # seconds; a plotly figure is far dearer to draw than a tree
CHARTS_SELDOM = 10.0  # where the page is drawn on the model's own cores
CONTROLS_EVERY = 0.4  # and a slider and a line of text, in a notebook page, cost more than a token


class Source(Protocol):
    """What is drawn."""

    def steps(self) -> list[StepRecord]: ...

    def status(self, steps: Sequence[StepRecord]) -> str:
        """A line of HTML."""
        ...

    def resting(self) -> bool:
        """No step is being made: there is time to draw everything."""
        ...

    def crowded(self) -> bool:
        """The model computes on every core of the machine that the page may be drawn on."""
        ...

    def sync(self) -> None:
        """Called before every picture, in the drawing thread."""
        ...


class Screen:
    """`draw` is cheap and may be called after every step, `hurry` when somebody waits for the picture."""

    def __init__(self, stage: Stage, controls: Controls, source: Source) -> None:
        self.stage, self.controls, self.source = stage, controls, source
        self._painter = Painter(self._paint, elsewhere=self._page_seconds)
        self.draw, self.hurry, self.settle = self._painter.poke, self._painter.hurry, self._painter.settle
        self._drawn: dict[float, float] = {}  # when the parts that are drawn seldom were drawn last
        self._wanted: int | None = None  # the step asked for, None to follow the newest
        self._moving = False  # the scrubber is being moved by us
        self._static = f"specdec-{uuid.uuid4().hex[:8]}"
        self._handle: Any = None
        controls.scrubber.observe(self._scrubbed, "value")
        controls.follow.observe(self._followed, "value")
        stage.ribbon.observe(lambda change: self.look(change["new"]), "clicked")

    @property
    def shown(self) -> int:
        """The step on the screen, -1 before the first."""
        newest = len(self.source.steps()) - 1
        return newest if self._wanted is None else min(self._wanted, newest)

    def show(self, step: int | None) -> None:
        """Look at a step; None follows the newest. Raises ValueError for one that is not there."""
        count = len(self.source.steps())
        if step is not None and not 0 <= step < max(1, count):
            raise ValueError(f"there is no step {step}: the run has steps 0 to {count - 1}")
        self._wanted = step
        self.controls.follow.value = step is None
        self.hurry()

    def look(self, step: int) -> None:
        """Look at a step if it is there."""
        if 0 <= step < len(self.source.steps()):
            self.show(step)

    def close(self) -> None:
        """End the drawing thread."""
        self._painter.close()

    def html(self) -> str:
        """What is on the screen as plain HTML."""
        return self.stage.html(self.source.status(self.source.steps()))

    def page(self) -> RenderableType:
        """The row's text, tree and figures up to the step on the screen, for a terminal."""
        steps = self.source.steps()[: self.shown + 1]
        prompt = Text(short(self.stage.ribbon.prompt.strip(), 60))
        return page(steps, self.stage.tree.decode, prompt, self.stage.row) if steps else Text("no step yet")

    def display(self, widget: w.Widget) -> None:
        """Put it into a cell's output, with a picture that a live page hides. A saved notebook keeps the picture, and a
        terminal gets the text and the tree of the newest step as it can show them."""
        if not has_page():
            Console().print(self.page())
            return
        put(widget)
        self._handle = display(HTML(self._fallback()), display_id=self._static)

    def _scrubbed(self, change: dict[str, Any]) -> None:
        if not self._moving:
            self.look(change["new"])

    def _followed(self, change: dict[str, Any]) -> None:
        if change["new"] != (self._wanted is None):
            self.show(None if change["new"] else max(self.shown, 0))

    def _paint(self) -> None:
        steps, c = self.source.steps(), self.controls
        shown = min(self.shown, len(steps) - 1)  # the run may have gone on in between
        self.stage.show(steps, shown, marked=self._wanted is not None)
        self.source.sync()
        resting = self.source.resting()
        if self._due(CONTROLS_EVERY, resting):
            self._moving = True
            try:
                # Not in one message: the page's slider would answer a new range with its old value, as if moved by hand.
                c.scrubber.max = max(0, len(steps) - 1)
                c.scrubber.value = max(0, shown)
            finally:
                self._moving = False
            c.status.value = self.source.status(steps)
        if self._due(CHARTS_SELDOM if self._page_seconds() else CHARTS_EVERY, resting):
            self.stage.chart(steps)
        if self._handle and resting:
            self._handle.update(HTML(self._fallback()))

    def _due(self, every: float, always: bool) -> bool:
        """Is the part that is drawn once in `every` seconds to be drawn now."""
        now = time.monotonic()
        due = always or now - self._drawn.get(every, 0.0) >= every
        if due:
            self._drawn[every] = now
        return due

    def _page_seconds(self) -> float:
        """What a picture takes from the model where both are computed on the same cores."""
        return self.stage.tree.cost / 1e3 if self.source.crowded() else 0.0

    def _fallback(self) -> str:
        """The picture for saved notebooks, hidden wherever our widgets are alive."""
        return f'<div class="specdec-static" id="{self._static}">{self.html()}</div>'

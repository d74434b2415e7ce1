"""Draws a run on the stage, with its timeline and its line of status: the newest step, or the one that somebody looks at."""

from __future__ import annotations

import threading
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
CHARTS_SELDOM, CHARTS_WATCHED = 60.0, 3.0  # where the page is drawn on the model's own cores, without and with a delay
BESIDES = 2.0  # Jupyter's server and the browser's other processes take as long again as the page tells
RUNNING, WATCHING = 0.02, 0.25  # of the run's time at most for drawing, without and with a delay between steps
CONTROLS_EVERY = 0.4  # and every message to a notebook page costs more than a token


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
        self._drawn: dict[str, float] = {}  # when the parts that are drawn seldom were drawn last
        self._lock = threading.RLock()  # around lists that grow in more than one thread, and the steps that they follow
        self._static = f"specdec-{uuid.uuid4().hex[:8]}"
        self._handle: Any = None
        controls.timeline.observe(self.hurry, "shown")
        controls.delay.observe(lambda _: self._pace(), "value")
        self._pace()
        stage.ribbon.observe(lambda change: self.look(change["new"]), "clicked")

    def start(self, prompt: str, row: int = 0) -> None:
        """Begin anew with a row and its prompt's text. Steps of what was shown before are not drawn after it."""
        with self._lock:
            self.stage.start(prompt, row)
        self.hurry()

    @property
    def shown(self) -> int:
        """The step on the screen, -1 before the first."""
        newest = len(self.source.steps()) - 1
        wanted = self.controls.timeline.shown
        return newest if wanted < 0 else min(wanted, newest)

    def show(self, step: int | None) -> None:
        """Look at a step; None follows the newest. Raises ValueError for one that is not there."""
        count = len(self.source.steps())
        if step is not None and not 0 <= step < max(1, count):
            raise ValueError(f"there is no step {step}: the run has steps 0 to {count - 1}")
        self._time()  # it takes no step that it does not know of
        self.controls.timeline.shown = -1 if step is None else step
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

    def _time(self) -> None:
        """Bring the timeline up to the newest step."""
        with self._lock:
            self.controls.timeline.update(self.source.steps(), self.stage.row)

    def _paint(self) -> None:
        resting = self.source.resting()
        controls = self._due("controls", CONTROLS_EVERY, resting)
        if controls:
            self._time()  # first: where steps were taken back, what is looked at may be one of them
        with self._lock:
            steps = self.source.steps()
            shown = min(self.shown, len(steps) - 1)  # the run may have gone on in between
            self.stage.show(steps, shown, marked=self.controls.timeline.shown >= 0)
        self.source.sync()
        if controls:
            self.controls.status.value = self.source.status(steps)
        if self._due("charts", self._charts_every(), resting):
            self.stage.chart(steps)
        if self._handle and resting:
            self._handle.update(HTML(self._fallback()))

    def _due(self, part: str, every: float, always: bool) -> bool:
        """Is the part that is drawn once in `every` seconds to be drawn now."""
        now = time.monotonic()
        due = always or now - self._drawn.get(part, 0.0) >= every
        if due:
            self._drawn[part] = now
        return due

    def _charts_every(self) -> float:
        if not self._page_seconds():
            return CHARTS_EVERY
        return CHARTS_WATCHED if self.controls.delay.value > 0 else CHARTS_SELDOM

    def _pace(self) -> None:
        """Who lets the run wait between steps wants to see them."""
        self._painter.share = WATCHING if self.controls.delay.value > 0 else RUNNING

    def _page_seconds(self) -> float:
        """What a picture takes from the model where both are computed on the same cores."""
        return BESIDES * self.stage.tree.cost / 1e3 if self.source.crowded() else 0.0

    def _fallback(self) -> str:
        """The picture for saved notebooks, hidden wherever our widgets are alive."""
        return f'<div class="specdec-static" id="{self._static}">{self.html()}</div>'

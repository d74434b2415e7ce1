"""The laboratory in a cell: a prompt, a live run, its token tree, its text and its charts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from IPython import get_ipython
from IPython.display import HTML, display

from toolkit.engine import Engine, Live, Session, give_back_cores, takes_every_core
from toolkit.engine.parts import menu
from toolkit.models import zoo
from toolkit.models.hf import HFModel
from toolkit.protocols import Drafter
from toolkit.sampling import Sampling, Stopping
from toolkit.terminal.progress import download_bar
from toolkit.trace import StepRecord, Trace
from toolkit.widgets.charts import Charts
from toolkit.widgets.controls import Controls
from toolkit.widgets.page import error_line, static_page, status_line
from toolkit.widgets.painter import Painter
from toolkit.widgets.ribbon import Ribbon
from toolkit.widgets.tree import TreeView

CHARTS_EVERY = 1.0  # seconds; a plotly figure is far dearer to draw than a tree
CHARTS_SELDOM = 10.0  # where the page is drawn on the model's own cores
CONTROLS_EVERY = 0.4  # and a slider and a line of text, in a notebook page, cost more than a token


class Lab:
    """One object in a notebook cell to watch speculative decoding, stop it and change its parts.

        lab = Lab("smollm2", drafter="ngram", prompt="Why is the sky blue?")
        lab

    target    "smollm2", a Hugging Face id, a folder, or what `zoo.load` gave
    drafter   a name of `drafters`, or a drafter of your own
    drafters  the menu, name to drafter; by default those of `engine.parts.menu`
    prompts   several prompts at once, one row each, instead of `prompt`

    `engine`, `live`, `session` and `trace` are the real things: whatever is assigned to `lab.engine` is used from the next
    step on and shown. Nothing is generated before `run()`, `step()` or their buttons. Widgets only look: a run gives the
    same tokens with or without them.
    """

    def __init__(
        self,
        target: str | Path | zoo.Loaded = "smollm2",
        *,
        drafter: str | Drafter = "ngram",
        prompt: str = "Why is the sky blue?",
        prompts: Sequence[str] = (),
        chat: bool = True,
        sampling: Sampling | None = None,
        max_new_tokens: int = 128,
        drafters: Mapping[str, Drafter] | None = None,
        dtype: str = "bfloat16",
        delay: float = 0.0,
    ) -> None:
        stopping = Stopping(max_new_tokens)  # refused before a model is loaded, if it is wrong
        with download_bar(str(target)) as progress:
            loaded = target if isinstance(target, zoo.Loaded) else zoo.load(target, dtype=dtype, progress=progress)
        self.loaded = loaded
        lm = HFModel(loaded.model)
        self.drafters = dict(drafters) if drafters is not None else menu(lm)
        first = drafter if not isinstance(drafter, str) else self._named(drafter)
        self.engine = Engine(
            lm,
            first,
            sampling=sampling or Sampling(),
            stopping=replace(stopping, tokens=loaded.stop_tokens),
            decode=loaded.decode,
            top=5,
        )
        self.prompts = tuple(prompts) or (prompt,)
        self.tree, self.ribbon, self.charts = TreeView(loaded.decode), Ribbon(loaded.decode), Charts()
        self.controls = Controls()
        self.controls.prompt.value = self.prompts[0]
        self.controls.chat.value = chat and loaded.tokenizer.chat_template is not None
        self.controls.delay.value = delay
        self._painter = Painter(self._paint, elsewhere=self._page_seconds)
        self._drawn: dict[float, float] = {}  # when the parts that are drawn seldom were drawn last
        self._wanted: int | None = None  # the step asked for, None to follow the newest
        self._moving = False  # the scrubber is being moved by us
        self._static = f"specdec-{uuid.uuid4().hex[:8]}"
        self._handle: Any = None
        self.widget = self.controls.box(self.tree, self.ribbon, self.charts.widget)
        self._wire()
        self._fresh()
        if shell := get_ipython():  # what a cell has computed must not slow the run that a button starts
            shell.events.register("post_run_cell", self._after_cell)

    # ---- running -------------------------------------------------------------------------------------------------

    def run(self) -> Live:
        """Go on, or start anew when the run has ended or the prompt has changed. Returns at once: `wait()` waits."""
        self._ready()
        return self.live.run()

    def step(self, steps: int = 1) -> Live:
        """Make that many steps."""
        self._ready()
        return self.live.step(steps)

    def pause(self) -> Live:
        return self.live.pause()

    def rewind(self, steps: int = 1) -> Live:
        """Undo the last steps."""
        return self.live.rewind(steps)

    def stop(self) -> None:
        """End this run. What it wrote stays on the screen until the next one starts."""
        self.live.stop()
        self._painter.hurry()

    def wait(self, timeout: float | None = None) -> Session:
        """Block until the run pauses or ends and everything is drawn; raise what went wrong in it."""
        self.live.wait(timeout)
        self._painter.settle()
        return self.session

    def close(self) -> None:
        """End the run, the drawing thread and the widgets."""
        self.live.stop()
        self._painter.close()
        self.widget.close()
        if (shell := get_ipython()) and self._after_cell in shell.events.callbacks["post_run_cell"]:
            shell.events.unregister("post_run_cell", self._after_cell)

    @property
    def trace(self) -> Trace:
        return self.session.trace

    @property
    def text(self) -> str:
        """The new text of the shown row."""
        return self.session.texts[self.row]

    # ---- looking -------------------------------------------------------------------------------------------------

    @property
    def step_shown(self) -> int:
        """The step on the screen, -1 before the first. Assign to look at another; None follows the newest."""
        newest = len(self.trace.steps) - 1
        return newest if self._wanted is None else min(self._wanted, newest)

    @step_shown.setter
    def step_shown(self, step: int | None) -> None:
        if step is not None and not 0 <= step < max(1, len(self.trace.steps)):
            raise ValueError(f"there is no step {step}: the run has steps 0 to {len(self.trace.steps) - 1}")
        self._wanted = step
        self._painter.hurry()

    @property
    def row(self) -> int:
        """The row on the screen."""
        return int(self.controls.row.value or 0)

    @row.setter
    def row(self, row: int) -> None:
        self.controls.row.value = row

    def snapshot(self) -> HTML:
        """What is on the screen as plain HTML, for pages without a kernel."""
        self._painter.settle()
        return HTML(self._html())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/html": self._html(), "text/plain": repr(self)}

    def _ipython_display_(self) -> None:
        # Two outputs: the widget, and a picture that a live page hides. A saved notebook keeps the picture.
        display(self.widget)
        self._handle = display(HTML(self._fallback()), display_id=self._static)

    def __repr__(self) -> str:
        return f"Lab({self.loaded.name}, {self.engine.drafter!r}, {len(self.trace.steps)} steps, {self.live.state})"

    # ---- wiring --------------------------------------------------------------------------------------------------

    def _named(self, name: str) -> Drafter:
        if name not in self.drafters:
            raise ValueError(
                f"unknown drafter {name!r}: use one of {', '.join(self.drafters)}, or a drafter of your own"
            )
        return self.drafters[name]

    def _ready(self) -> None:
        c = self.controls
        asked = (c.prompt.value, *self.prompts[1:])
        if asked != self._asked[0] or c.chat.value != self._asked[1] or self.live.state in ("done", "stopped"):
            self._fresh()

    def _fresh(self) -> None:
        """A new session for the prompts on the screen."""
        c = self.controls
        self.prompts = (c.prompt.value, *self.prompts[1:])
        if not all(p.strip() for p in self.prompts):
            raise ValueError("the prompt is empty: write something into the prompt box")
        encode = zoo.chat if c.chat.value else zoo.plain
        session = self.engine.start([encode(self.loaded.tokenizer, p) for p in self.prompts])
        if hasattr(self, "live"):
            self.live.stop()
        self._asked = (self.prompts, c.chat.value)
        self.session = session
        self.live = Live(self.engine, session, delay=c.delay.value)
        self.live.listen(self._painter.hurry)
        session.trace.watch(self._see, every=0)
        self._wanted = None
        if len(c.row.options) != len(self.prompts):
            c.row.options = [(f"{b}: {p[:18]}", b) for b, p in enumerate(self.prompts)]
            c.row.value = 0
        c.row.layout.display = "none" if len(self.prompts) == 1 else ""
        self.ribbon.start(self.prompts[self.row] + "\n\n", self.row)
        self._painter.hurry()

    def _see(self, records: Sequence[StepRecord]) -> None:
        self._painter.poke()

    def _wire(self) -> None:
        c = self.controls
        for button, act in (
            (c.run, self.run),
            (c.step, self.step),
            (c.pause, self.pause),
            (c.rewind, self.rewind),
            (c.stop, self.stop),
        ):
            button.on_click(lambda _, act=act: self._guard(act))
        c.drafter.options = list(self.drafters)
        c.drafter.observe(self._choose, "value")
        c.delay.observe(lambda change: setattr(self.live, "delay", change["new"]), "value")
        c.scrubber.observe(self._scrub, "value")
        c.follow.observe(
            lambda change: setattr(self, "step_shown", None if change["new"] else max(self.step_shown, 0)), "value"
        )
        c.row.observe(self._other_row, "value")
        self.ribbon.observe(lambda change: self._guard(lambda: self._look(change["new"])), "clicked")

    def _after_cell(self, *_: Any) -> None:
        give_back_cores()

    def _guard(self, act: Any) -> None:
        """A callback's error belongs on the screen, not into a log nobody reads."""
        try:
            act()
        except Exception as error:
            self.controls.status.value = error_line(error)

    def _choose(self, change: dict[str, Any]) -> None:
        if change["new"] in self.drafters:
            self.engine.drafter = self.drafters[change["new"]]

    def _scrub(self, change: dict[str, Any]) -> None:
        if not self._moving:
            self._look(change["new"])

    def _look(self, step: int) -> None:
        if 0 <= step < len(self.trace.steps):
            self.controls.follow.value = False
            self.step_shown = step

    def _other_row(self, _: object) -> None:
        self.ribbon.start(self.prompts[self.row] + "\n\n", self.row)
        self._painter.hurry()

    # ---- drawing, in the painter's thread ------------------------------------------------------------------------

    def _page_seconds(self) -> float:
        """What a picture takes from the model where both are computed on the same cores."""
        return self.tree.cost / 1e3 if takes_every_core(self.session.token.device) else 0.0

    def _paint(self) -> None:
        steps, c = list(self.trace.steps), self.controls
        shown = min(self.step_shown, len(steps) - 1)  # the run may have gone on in between
        record = steps[shown].rows[self.row] if steps else None
        self.tree.show(record, shown)
        self.ribbon.update(steps)
        self.ribbon.shown = -1 if self._wanted is None else shown
        self._sync_menu()
        resting = self.live.state != "running"
        if self._due(CONTROLS_EVERY, resting):
            self._moving = True
            try:
                # Not in one message: the page's slider would answer a new range with its old value, as if moved by hand.
                c.scrubber.max = max(0, len(steps) - 1)
                c.scrubber.value = max(0, shown)
            finally:
                self._moving = False
            c.status.value = self._status(steps)
        if self._due(CHARTS_SELDOM if self._page_seconds() else CHARTS_EVERY, resting):
            self.charts.update(steps, self.row)
        if self._handle and resting:
            self._handle.update(HTML(self._fallback()))

    def _due(self, every: float, always: bool) -> bool:
        """Is the part that is drawn once in `every` seconds to be drawn now."""
        now = time.monotonic()
        due = always or now - self._drawn.get(every, 0.0) >= every
        if due:
            self._drawn[every] = now
        return due

    def _sync_menu(self) -> None:
        """Show a drafter that was assigned from code."""
        now = self.engine.drafter
        name = next((n for n, d in self.drafters.items() if d is now), None)
        if name is None:
            name = type(now).__name__
            while name in self.drafters:
                name += "'"
            self.drafters[name] = now
            self.controls.drafter.options = list(self.drafters)
        if self.controls.drafter.value != name:
            self.controls.drafter.value = name

    def _status(self, steps: Sequence[StepRecord]) -> str:
        if self.live.error:
            return error_line(self.live.error)
        return status_line(self.live.state, steps, self.session.reasons)

    def _html(self) -> str:
        summary = self.tree.scene.get("summary", "no step yet")
        pieces = [(self.ribbon.prompt, "prompt", -1), *self.ribbon.pieces]
        return static_page(self._status(list(self.trace.steps)), summary, self.tree.svg, pieces)

    def _fallback(self) -> str:
        """The picture for saved notebooks, hidden wherever our widgets are alive."""
        return f'<div class="specdec-static" id="{self._static}">{self._html()}</div>'

"""The laboratory in a cell: a prompt, a live run, its token tree, its text and its charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from toolkit.engine import Engine, Live, Session, give_back_cores
from toolkit.engine.parts import menu
from toolkit.models import zoo
from toolkit.models.hf import HFModel
from toolkit.protocols import Drafter, Rule
from toolkit.sampling import Sampling, Stopping
from toolkit.trace import Trace
from toolkit.widgets.cells import AfterCells
from toolkit.widgets.charts import Charts
from toolkit.widgets.compare import CompareView
from toolkit.widgets.controls import Controls
from toolkit.widgets.desk import Desk, named
from toolkit.widgets.onscreen import OnScreen
from toolkit.widgets.page import error_line
from toolkit.widgets.ribbon import Ribbon
from toolkit.widgets.running import Running
from toolkit.widgets.screen import Screen
from toolkit.widgets.stage import Stage
from toolkit.widgets.studies import Studies
from toolkit.widgets.targets import Target, TargetMenu, load
from toolkit.widgets.tree import TreeView
from toolkit.widgets.whatif import WhatIf


class Lab(OnScreen):
    """One object in a notebook cell to watch speculative decoding, stop it and change its parts.

        lab = Lab("smollm2", drafter="ngram", prompt="Why is the sky blue?")
        lab

    target    "smollm2", a Hugging Face id, a folder, or what `zoo.load` gave
    targets   more of them, for the menu
    drafter   a name of `drafters`, or a drafter of your own
    drafters  the menu, name to drafter; by default those of `engine.parts.menu`
    rule      by default exact rejection sampling
    prompts   several prompts at once, one row each, instead of `prompt`
    evidence  likeliest tokens to record a node, so that `what_if` can judge a step again: 64 do for most, 0 costs nothing;
              a menu changes it from the next step on

    `engine`, `live`, `session` and `trace` are the real things: a drafter or rule assigned to `lab.engine` is used from the next
    step on and shown, sampling and stopping from the next run on. Nothing is generated before `run()`, `step()` or their
    buttons. Widgets only look: a run gives the same tokens with or without them.

    In plain Python and in a terminal there is no page, and the same methods drive it:

        lab.run()
        lab.wait()
        print(lab)  # text, tree and figures up to `step_shown`; `repr(lab)` is one line
    """

    def __init__(
        self,
        target: Target = "smollm2",
        *,
        drafter: str | Drafter = "ngram",
        rule: Rule | None = None,
        prompt: str = "Why is the sky blue?",
        prompts: Sequence[str] = (),
        chat: bool = True,
        sampling: Sampling | None = None,
        max_new_tokens: int = 128,
        drafters: Mapping[str, Drafter] | None = None,
        targets: Sequence[Target] = (),
        dtype: str = "fastest",
        delay: float = 0.0,
        evidence: int = 0,
    ) -> None:
        stopping = Stopping(max_new_tokens)  # refused before a model is loaded, if it is wrong
        self._dtype = dtype
        self.loaded = loaded = load(target, dtype)
        lm = HFModel(loaded.model)
        known = dict(drafters) if drafters is not None else menu(lm)
        self.engine = Engine(
            lm,
            named(drafter, known),
            sampling=sampling or Sampling(),
            stopping=replace(stopping, tokens=loaded.stop_tokens),
            decode=loaded.decode,
            top=5,
            evidence=evidence,
        )
        if rule is not None:
            self.engine.rule = rule
        self._texts = list(prompts) or [prompt]  # of the prompts, as they stand in the box
        self.refused: Exception | None = None  # what was refused last, until something is done
        self.stage = Stage(loaded.decode)
        self.desk = Desk(self.engine, known, self.say)
        self.controls.chat.value = chat and loaded.tokenizer.chat_template is not None
        self.controls.delay.value = delay
        self.screen = Screen(self.stage, self.controls, Running(self))
        self.studies = Studies(self)
        looks = {**self.stage.looks, "studies": self.studies.widget}
        self.widget = self.controls.box(self.desk.parts, looks)
        self._targets = TargetMenu(self.controls.target, (target, *targets), self._other_target, self.say)
        self._fresh()
        self._wire()
        # What a cell has computed must not slow the run that a button starts.
        self._cells = AfterCells(give_back_cores)

    # ---- running -------------------------------------------------------------------------------------------------

    def run(self) -> Live:
        """Go on, or start anew when the run has ended or what is asked for has changed. Returns at once: `wait()` waits."""
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
        self.screen.hurry()

    def wait(self, timeout: float | None = None) -> Session:
        """Block until the run pauses or ends and everything is drawn; raise what went wrong in it."""
        self.live.wait(timeout)
        self.screen.settle()
        return self.session

    def close(self) -> None:
        """End the run, the drawing thread and the widgets."""
        self.live.stop()
        self.screen.close()
        self.studies.close()
        self.widget.close()
        self._cells.close()

    @property
    def trace(self) -> Trace:
        return self.session.trace

    @property
    def text(self) -> str:
        """The new text of the shown row."""
        return self.session.texts[self.row]

    # ---- parts ---------------------------------------------------------------------------------------------------

    @property
    def target(self) -> str:
        """The target's name. Assign another's name, or what `zoo.load` gave: it is loaded, the run ends, and the drafters are
        those of the new one's menu, as the old one's cannot guess for it."""
        return self.loaded.name

    @target.setter
    def target(self, target: Target) -> None:
        loaded = load(target, self._dtype)
        lm = HFModel(loaded.model)
        known = menu(lm)
        self.live.stop()
        self.loaded = loaded
        self.engine.target, self.engine.decode = lm, loaded.decode
        self.engine.drafter = known.get(str(self.desk.drafter.menu.value), known["ngram"])
        self.engine.stopping = replace(self.engine.stopping, tokens=loaded.stop_tokens)
        self.desk.offer(known)
        self.tree.decode = self.ribbon.decode = loaded.decode
        self.studies.restart()
        self._fresh()
        self._targets.show(target)

    @property
    def drafters(self) -> dict[str, Drafter]:
        """The menu."""
        return self.desk.drafter.options

    @property
    def controls(self) -> Controls:
        return self.desk.controls

    @property
    def tree(self) -> TreeView:
        return self.stage.tree

    @property
    def ribbon(self) -> Ribbon:
        return self.stage.ribbon

    @property
    def charts(self) -> Charts:
        return self.stage.charts

    # ---- looking -------------------------------------------------------------------------------------------------

    @property
    def row(self) -> int:
        """The row on the screen."""
        return int(self.controls.row.value or 0)

    @row.setter
    def row(self, row: int) -> None:
        self.controls.row.value = row

    def what_if(self) -> WhatIf:
        """A panel in which the shown step is judged again by other rules, numbers and seeds, without the model; close it when done.

        Raises ValueError before the first step, and for a run that recorded no evidence.
        """
        return self.studies.what_if()

    def compare(
        self,
        prompts: Sequence[str] = (),
        drafters: Mapping[str, Drafter] | Sequence[str] = (),
        *,
        max_new_tokens: int = 64,
    ) -> CompareView:
        """Pause, and run drafters next to plain decoding in the background, with this lab's target and sampling. Returns at once.

        prompts   texts; by default those in the box
        drafters  names of the menu, or name to drafter; by default the one in use

        Raises ValueError for a name that the menu has not, and while another comparison runs.
        """
        chosen = drafters or [str(self.desk.drafter.menu.value)]
        return self.studies.compare(prompts or self._texts, chosen, max_new_tokens)

    def say(self, error: Exception) -> None:
        """Show what was refused, in red."""
        self.refused = error
        self.controls.status.value = error_line(error)

    def save(self, path: str | Path) -> None:
        """Write the trace, with the words of its tokens: `Replay(path)` shows it again without any model. The ending says
        how: .jsonl, .jsonl.gz or .parquet."""
        self.studies.save(path)

    def export(self, path: str | Path) -> int:
        """Write one HTML file in which the run can be looked at in any browser, offline; returns its size in bytes."""
        return self.studies.export(path)

    def __repr__(self) -> str:
        return f"Lab({self.loaded.name}, {self.engine.drafter!r}, {len(self.trace.steps)} steps, {self.live.state})"

    # ---- wiring --------------------------------------------------------------------------------------------------

    def _ready(self) -> None:
        """All that is asked for by now is in the session, or a new session is made."""
        if self.studies.comparing:
            raise ValueError("a comparison is running: wait until it has ended, or stop it")
        self.refused = None
        if self._wishes() != self._asked or self.live.state in ("done", "stopped"):
            self._fresh()

    def _wishes(self) -> tuple[object, ...]:
        return (tuple(self._texts), self.controls.chat.value, self.engine.sampling, self.engine.stopping)

    def _fresh(self) -> None:
        """A new session for the prompts as they stand."""
        c, wishes, prompts = self.controls, self._wishes(), tuple(self._texts)
        if not all(p.strip() for p in prompts):
            raise ValueError("the prompt is empty: write something into the prompt box")
        encode = zoo.chat if c.chat.value else zoo.plain
        session = self.engine.start([encode(self.loaded.tokenizer, p) for p in prompts])
        if hasattr(self, "live"):
            self.live.stop()
        self._asked, self.prompts, self.session = wishes, prompts, session
        self.live = Live(self.engine, session, delay=c.delay.value)
        self.live.listen(self.screen.hurry)
        session.trace.watch(lambda records: self.screen.draw(), every=0)
        c.offer_rows(prompts)
        c.prompt.value = prompts[self.row]
        self.screen.start(prompts[self.row], self.row)
        self.screen.show(None)

    def _wire(self) -> None:
        c = self.controls
        acts = {"run": self.run, "step": self.step, "pause": self.pause, "rewind": self.rewind, "stop": self.stop}
        c.press(acts, self.say)
        c.delay.observe(lambda change: setattr(self.live, "delay", change["new"]), "value")
        c.prompt.observe(lambda change: self._texts.__setitem__(self.row, change["new"]), "value")
        c.row.observe(self._other_row, "value")

    def _other_target(self, target: Target) -> None:
        self.controls.status.value = "loading the target …"
        self.target = target

    def _other_row(self, _: object) -> None:
        self.controls.prompt.value = self._texts[self.row]
        self.screen.start(self.prompts[self.row], self.row)

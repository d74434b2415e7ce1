"""What if: a step beside itself, judged by another rule, seed or temperature, or with a smaller tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as w
from rich.columns import Columns

from toolkit.terminal.view import plain, step_tree
from toolkit.trace import RowRecord
from toolkit.whatif import RULES, Comparison, Question, compare, labels
from toolkit.widgets.page import error_line
from toolkit.widgets.painter import Painter
from toolkit.widgets.scene import Decode
from toolkit.widgets.tree import TreeView
from toolkit.widgets.whatif_picture import bars, comparison_html, fill, kept, notes_html

_HALF = {"flex": "1 1 0", "min_width": "0", "overflow": "auto"}


class WhatIf(w.VBox):
    """Left the step as it was, right as it would have been; below, how many guesses are kept over 1,000 seeds.

        panel = WhatIf(model.decode)
        panel.show(session.trace.steps[3].rows[0], 3)
        panel

    The engine must record evidence: `Engine(..., evidence=64)`. `rules` is the menu, by default the package's own. Answers
    are worked out in a thread of the panel; `settle()` waits for the last one, `close()` ends the thread.
    """

    def __init__(self, decode: Decode, rules: Mapping[str, Any] = RULES) -> None:
        self.rules = dict(rules)
        self.found: Comparison | None = None
        self.decode = decode
        self._record: RowRecord | None = None
        self._step = 0
        self._was: Question | None = None  # what the controls say when nothing is asked
        self._moving = False  # the controls are being moved by us
        self.before, self.after = TreeView(self._say), TreeView(self._say)
        self.rule = w.Dropdown(description="rule", options=labels(self.rules), layout=w.Layout(width="320px"))
        self.temperature = w.BoundedFloatText(description="temperature", min=0, max=100, step=0.1)
        self.top_k = w.BoundedIntText(description="top-k (0 all)", min=0, max=10**6)
        self.top_p = w.BoundedFloatText(description="top-p", min=0.01, max=1, step=0.05)
        self.seed = w.Text(description="seed", continuous_update=False)  # as text, for a page rounds large numbers
        self.levels = _count("levels")
        self.siblings = _count("siblings")
        self.budget = _count("guesses")
        self.reset = w.Button(description="As recorded", tooltip="ask for what was the case")
        self.told = [w.HTML(), w.HTML()]
        self.figure = bars()
        self.notes = w.HTML()
        for control in (self.temperature, self.top_k, self.top_p, self.seed):
            control.layout.width = "190px"
            control.style.description_width = "90px"
        self._painter = Painter(self._paint)
        for control in self._controls:
            control.observe(self._asked, "value")
        self.reset.on_click(lambda _: self._restore())
        wrap = w.Layout(flex_flow="row wrap")
        sides = [
            w.VBox([told, tree], layout=w.Layout(**_HALF))
            for told, tree in zip(self.told, (self.before, self.after), strict=True)
        ]
        super().__init__(
            [
                w.HBox([self.rule, self.temperature, self.top_k, self.top_p, self.seed], layout=wrap),
                w.HBox([self.levels, self.siblings, self.budget, self.reset], layout=wrap),
                w.HBox(sides, layout=w.Layout(grid_gap="16px")),
                self.figure,
                self.notes,
            ]
        )

    def show(self, record: RowRecord | None, step: int) -> None:
        """Ask about one row's entry of a step, or about nothing. Controls that nobody has moved follow the record."""
        untouched = self._was is None or self._read() == self._was
        self._record, self._step = record, step
        if record and record.evidence:
            asked = self._was
            self._was = Question.of(record, self.rules)
            if untouched or asked is None:
                self._restore()
            self._moving = True
            try:
                depth, parents = record.depth, record.parent[1:]
                self.levels.max = max(depth)
                self.siblings.max = max(map(parents.count, parents), default=0)
                self.budget.max = len(parents)
            finally:
                self._moving = False
        self._painter.hurry()

    def see(self, record: RowRecord | None, step: int) -> None:
        """`show`, where that is another than is shown."""
        if record is not self._record or step != self._step:
            self.show(record, step)

    def settle(self, timeout: float = 10.0) -> bool:
        """Wait until the last answer is on the screen."""
        return self._painter.settle(timeout)

    def close(self) -> None:
        """End the thread and the widgets."""
        self._painter.close()
        super().close()

    @property
    def html(self) -> str:
        """What is on the screen, for pages without a kernel."""
        self.settle()
        told = [(t.value, tree.svg) for t, tree in zip(self.told, (self.before, self.after), strict=True)]
        return comparison_html(told, self.found, self.notes.value)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        return {**(super()._repr_mimebundle_(**kwargs) or {}), "text/html": self.html}

    def __str__(self) -> str:
        self.settle()
        trees = [step_tree(side, self._say) for side in (self._record, self.found and self.found.record) if side]
        return f"{self!r}\n{plain(Columns(trees, padding=(0, 4)))}" if trees else repr(self)

    def __repr__(self) -> str:
        if self._record is None:
            return "WhatIf(no step)"
        sides = [self._record, *([self.found.record] if self.found else [])]
        kept = " instead of ".join(str(len(side.path) - 1) for side in reversed(sides))
        rule = f", {self.found.rule}" if self.found else ""
        return f"WhatIf(step {self._step}{rule}: {kept} of {len(self._record.token) - 1} guesses kept)"

    @property
    def _controls(self) -> tuple[Any, ...]:
        return (
            *(self.rule, self.temperature, self.top_k, self.top_p, self.seed),
            *(self.levels, self.siblings, self.budget),
        )

    def _say(self, ids: Sequence[int]) -> str:
        return self.decode(ids) if min(ids) >= 0 else "(not recorded)"

    def _read(self) -> Question | None:
        """What the controls ask; None while the seed is no number."""
        try:
            seed = int(self.seed.value)
        except ValueError:
            return None
        c = self._controls
        return Question(c[0].value, c[1].value, c[2].value, c[3].value, seed, *(s.value for s in c[5:]))

    def _restore(self) -> None:
        """Move the controls to what was the case."""
        if self._was is None:
            return
        was = self._was
        self._moving = True
        try:
            values = (was.rule, was.temperature, was.top_k, was.top_p, str(was.seed), 0, 0, 0)
            for control, value in zip(self._controls, values, strict=True):
                control.value = value
        finally:
            self._moving = False
        self._painter.hurry()

    def _asked(self, _: object) -> None:
        if not self._moving:
            self._painter.hurry()

    # ---- in the painter's thread ---------------------------------------------------------------------------------

    def _paint(self) -> None:
        record, step = self._record, self._step
        self.before.show(record, step)
        self.told[0].value = kept("As it was", record) if record else ""
        self.found, error = None, ""
        if record:
            try:
                Question.of(record, self.rules)  # a record without evidence is refused before what the controls say
                question = self._read()
                if question is None:
                    raise ValueError(f"the seed must be a whole number; got {self.seed.value!r}")
                self.found = compare(record, question, self.rules)
            except Exception as caught:  # also what a rule in the making raises: it belongs on the screen
                error = error_line(caught)
        found = self.found
        self.after.show(found.record if found else None, step)
        self.after.layout.display = "" if found else "none"  # an empty tree asks for a run
        self.told[1].value = kept(f"What if: {found.rule}", found.record) if found else ""
        self.notes.value = error or (notes_html(found) if found else "")
        with self.figure.batch_update():
            fill(self.figure, found)


def _count(name: str) -> w.BoundedIntText:  # ipywidgets' sliders have no name that a screen reader could tell
    layout = w.Layout(width="180px")
    return w.BoundedIntText(
        description=name, tooltip=f"{name} of the tree to keep; 0 keeps all", min=0, max=0, layout=layout
    )

"""What a person can change about a run, in step with its engine both ways: an edit goes into the engine's field, and what code
assigned there is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolkit.engine import Engine
from toolkit.engine.parts import shapes
from toolkit.protocols import Drafter
from toolkit.whatif import RULES, labels
from toolkit.widgets.controls import WRAP, Controls
from toolkit.widgets.forms import Form, PartMenu

SOME = 64  # likeliest tokens that do for most questions


class Desk:
    """Menus and forms of the drafter, its shape, the rule, sampling and stopping, beside the controls of a run.

    refused  is told what a constructor said about a value that it does not take
    """

    def __init__(self, engine: Engine, drafters: Mapping[str, Drafter], refused: Callable[[Exception], None]) -> None:
        self.engine = engine
        self.controls = Controls()
        self.drafter = PartMenu("drafter", drafters, self._put("drafter"), refused, within=("shape", shapes()))
        self.rule = PartMenu("rule", {label: RULES[name] for label, name in labels()}, self._put("rule"), refused)
        self.forms = {name: Form(self._put(name), refused) for name in ("sampling", "stopping")}
        for form in self.forms.values():
            form.box.layout = WRAP
        self._moving = False  # the menu is being moved by us
        self.controls.evidence.observe(lambda change: self._evidence(change["new"]), "value")
        self.sync()

    def sync(self) -> None:
        """Show the parts that the engine has now."""
        self.drafter.show(self.engine.drafter)
        self.rule.show(self.engine.rule)
        self._show_evidence()
        for name, form in self.forms.items():
            if form.part is not (now := getattr(self.engine, name)):
                form.show(now)

    @property
    def parts(self) -> dict[str, Any]:
        """The widgets, as `Controls.box` wants them."""
        forms = {f"{name} of the next run".capitalize(): form.box for name, form in self.forms.items()}
        return {"drafter": self.drafter.box, "rule": self.rule.box, **forms}

    def offer(self, drafters: Mapping[str, Drafter]) -> None:
        """Other drafters in the menu, for another target; the engine has one of them already."""
        self.drafter.offer(drafters)
        self.sync()

    def _show_evidence(self) -> None:
        menu, k, whole = self.controls.evidence, self.engine.evidence, self.engine.target.vocab
        options = {k: f"{k} likeliest", SOME: f"{SOME} likeliest", whole: "all", 0: "off"}
        shown = tuple((options[n], n) for n in sorted(options))
        if (menu.options, menu.value) != (shown, k):
            self._moving = True
            try:
                menu.options = shown
                menu.value = k
            finally:
                self._moving = False

    def _evidence(self, k: int) -> None:
        if not self._moving:
            self.engine.evidence = k

    def _put(self, name: str) -> Callable[[Any], None]:
        return lambda part: setattr(self.engine, name, part)


def named(drafter: str | Drafter, drafters: Mapping[str, Drafter]) -> Drafter:
    """The drafter of that name, or the one that was given. Raises ValueError for an unknown name."""
    if not isinstance(drafter, str):
        return drafter
    if drafter not in drafters:
        raise ValueError(f"unknown drafter {drafter!r}: use one of {', '.join(drafters)}, or a drafter of your own")
    return drafters[drafter]

"""What a Lab and a Replay have in common: a screen whose step is chosen, in a cell's output."""

from __future__ import annotations

from typing import Any

import ipywidgets as w
from IPython.display import HTML

from toolkit.terminal.view import plain
from toolkit.widgets.screen import Screen


class OnScreen:
    """Something with a `screen` and a `widget` that shows itself in a cell."""

    screen: Screen
    widget: w.Widget

    @property
    def step_shown(self) -> int:
        """The step on the screen, -1 before the first. Assign to look at another; None follows the newest."""
        return self.screen.shown

    @step_shown.setter
    def step_shown(self, step: int | None) -> None:
        self.screen.show(step)

    def snapshot(self) -> HTML:
        """What is on the screen as plain HTML, for pages without a kernel."""
        self.screen.settle()
        return HTML(self.screen.html())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/html": self.screen.html(), "text/plain": repr(self)}

    def _ipython_display_(self) -> None:
        self.screen.display(self.widget)

    def __str__(self) -> str:
        return f"{self!r}\n{plain(self.screen.page())}"

"""What to compare: drafters to tick, prompts to write, and below them the comparison while it grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import ipywidgets as w

from toolkit.widgets.compare import CompareView
from toolkit.widgets.controls import WRAP
from toolkit.widgets.page import error_line

Start = Callable[[Sequence[str], Sequence[str], int], CompareView]
"""Prompts, names of drafters and new tokens a prompt to a comparison under way. May refuse with a ValueError."""


class Contest:
    """`begin` starts a comparison; `view` is the last one, None before."""

    def __init__(self, names: Iterable[str], chosen: str, prompts: Sequence[str], tokens: int, begin: Start) -> None:
        self._begin = begin
        self.view: CompareView | None = None
        self.boxes: dict[str, w.Checkbox] = {}
        self._ticks = w.Box(layout=WRAP)
        self.offer(names)
        if chosen in self.boxes:
            self.boxes[chosen].value = True
        self.prompts = w.Textarea(
            "\n".join(" ".join(p.split()) for p in prompts),
            placeholder="one prompt a line",
            layout=w.Layout(width="auto", height="84px"),
        )
        self.tokens = w.BoundedIntText(
            tokens, min=1, max=100_000, description="new tokens", layout=w.Layout(width="180px")
        )
        self.button = w.Button(
            description="Compare",
            icon="flag-checkered",
            tooltip="pauses the run; stop it below",
            layout={"width": "110px"},
        )
        self.said = w.HTML()
        self._place = w.VBox()
        self.button.on_click(lambda _: self._pressed())
        label = w.HTML(
            "Drafters to compare with plain decoding, and prompts, one a line; each goes through the chat template."
        )
        line = w.HBox([self.tokens, self.button, self.said], layout=WRAP)
        self.widget = w.VBox([label, self._ticks, self.prompts, line, self._place])

    def offer(self, names: Iterable[str]) -> None:
        """The drafters to choose from; "none" is plain decoding, which is always there."""
        names = [name for name in names if name != "none"]
        if names == list(self.boxes):
            return
        before = self.boxes
        self.boxes = {
            n: before.get(n) or w.Checkbox(description=n, indent=False, layout={"width": "200px"}) for n in names
        }
        self._ticks.children = tuple(self.boxes.values())
        for name in before.keys() - self.boxes.keys():
            before[name].close()

    def show(self, view: CompareView) -> None:
        """Put a comparison in place of the last one."""
        before, self.view = self.view, view
        self._place.children = (view.widget,)
        if before:
            before.close()

    def _pressed(self) -> None:
        prompts = [line.strip() for line in self.prompts.value.splitlines() if line.strip()]
        try:
            self.show(self._begin(prompts, [n for n, box in self.boxes.items() if box.value], self.tokens.value))
            self.said.value = ""
        except Exception as error:
            self.said.value = error_line(error)

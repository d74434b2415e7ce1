"""The hands: buttons, boxes and sliders of a live run. They hold no logic, only widgets and their arrangement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import ipywidgets as w

from toolkit.widgets.pace import Pace
from toolkit.widgets.timeline import Timeline

WRAP = w.Layout(flex_flow="row wrap")


def _button(text: str, icon: str, tip: str) -> w.Button:
    return w.Button(description=text, icon=icon, tooltip=tip, layout=w.Layout(width="96px"))


@dataclass(slots=True)
class Controls:
    """prompt: of the shown row. timeline: the step that is looked at."""

    prompt: w.Textarea = field(
        default_factory=lambda: w.Textarea(
            placeholder="Prompt", layout=w.Layout(width="auto", height="64px"), continuous_update=False
        )
    )
    chat: w.Checkbox = field(
        default_factory=lambda: w.Checkbox(description="chat template", indent=False, layout=w.Layout(width="130px"))
    )
    run: w.Button = field(default_factory=lambda: _button("Run", "play", "generate until the end, or until Pause"))
    pause: w.Button = field(default_factory=lambda: _button("Pause", "pause", "stop before the next step"))
    step: w.Button = field(default_factory=lambda: _button("Step", "step-forward", "make one step"))
    rewind: w.Button = field(default_factory=lambda: _button("Rewind", "step-backward", "undo the last step"))
    stop: w.Button = field(default_factory=lambda: _button("Stop", "stop", "end this run; Run then starts anew"))
    target: w.Dropdown = field(
        default_factory=lambda: w.Dropdown(
            description="target", layout=w.Layout(width="270px"), style={"description_width": "60px"}
        )
    )
    evidence: w.Dropdown = field(
        default_factory=lambda: w.Dropdown(
            description="evidence",
            tooltip="what each step records, so that What if can judge it again",
            layout=w.Layout(width="200px"),
            style={"description_width": "60px"},
        )
    )
    row: w.Dropdown = field(default_factory=lambda: w.Dropdown(description="row", layout=w.Layout(width="170px")))
    delay: Pace = field(default_factory=Pace)
    timeline: Timeline = field(default_factory=Timeline)
    status: w.HTML = field(default_factory=w.HTML)

    def press(self, acts: Mapping[str, Callable[[], object]], refused: Callable[[Exception], None]) -> None:
        """What the buttons do, by their names. An error belongs on the screen, not into a log nobody reads: `refused` is told."""

        def pressed(act: Callable[[], object]) -> None:
            try:
                act()
            except Exception as error:
                refused(error)

        for name, act in acts.items():
            getattr(self, name).on_click(lambda _, act=act: pressed(act))

    def offer_rows(self, prompts: Sequence[str], names: Sequence[object] = ()) -> None:
        """The menu of rows, which is seen only where there is a choice; rows without `names` are numbered."""
        rows = [
            (f"{name}: {p[:18]}", b)
            for b, (name, p) in enumerate(zip(names or range(len(prompts)), prompts, strict=True))
        ]
        if list(self.row.options) != rows:
            row, self.row.options = int(self.row.value or 0), rows
            self.row.value = min(row, len(rows) - 1)
        self.row.layout.display = "none" if len(rows) == 1 else ""

    def box(self, parts: Mapping[str, w.Widget], looks: Mapping[str, w.Widget]) -> w.VBox:
        """Everything in its place. parts: "drafter", "rule" and, by their titles, what is folded away; looks: "tree", "text",
        "studies" and "charts"."""
        buttons = w.HBox([self.run, self.pause, self.step, self.rewind, self.stop, self.chat], layout=WRAP)
        folded = {title: part for title, part in parts.items() if title not in ("drafter", "rule")}
        more = w.Accordion(list(folded.values()), titles=list(folded), selected_index=None)
        menus = w.HBox([self.target, parts["drafter"], parts["rule"], self.evidence, self.delay, self.row], layout=WRAP)
        lower = [looks[name] for name in ("text", "studies", "charts")]
        return w.VBox([self.prompt, buttons, menus, more, self.status, looks["tree"], self.timeline, *lower])

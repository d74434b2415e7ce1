"""The hands: buttons, menus and sliders of a live run. They hold no logic, only widgets and their arrangement."""

from __future__ import annotations

from dataclasses import dataclass, field

import ipywidgets as w


def _button(text: str, icon: str, tip: str) -> w.Button:
    return w.Button(description=text, icon=icon, tooltip=tip, layout=w.Layout(width="96px"))


@dataclass(slots=True)
class Controls:
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
    drafter: w.Dropdown = field(
        default_factory=lambda: w.Dropdown(description="drafter", layout=w.Layout(width="280px"))
    )
    row: w.Dropdown = field(default_factory=lambda: w.Dropdown(description="row", layout=w.Layout(width="170px")))
    delay: w.FloatSlider = field(
        default_factory=lambda: w.FloatSlider(
            description="delay s", min=0.0, max=2.0, step=0.05, readout_format=".2f", layout=w.Layout(width="280px")
        )
    )
    scrubber: w.IntSlider = field(
        default_factory=lambda: w.IntSlider(description="step", min=0, max=0, layout=w.Layout(width="70%"))
    )
    follow: w.ToggleButton = field(
        default_factory=lambda: w.ToggleButton(
            True, description="follow", tooltip="show the newest step", layout=w.Layout(width="90px")
        )
    )
    status: w.HTML = field(default_factory=w.HTML)

    def box(self, tree: w.DOMWidget, ribbon: w.DOMWidget, charts: w.DOMWidget) -> w.VBox:
        """Everything in its place."""
        buttons = w.HBox([self.run, self.pause, self.step, self.rewind, self.stop, self.chat], layout=_WRAP)
        menus = w.HBox([self.drafter, self.delay, self.row], layout=_WRAP)
        time = w.HBox([self.scrubber, self.follow])
        return w.VBox([self.prompt, buttons, menus, self.status, tree, time, ribbon, charts])


_WRAP = w.Layout(flex_flow="row wrap")

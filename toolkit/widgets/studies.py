"""What a lab offers about a run that has been made: ask what would have been, compare drafters, keep it and hand it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ipywidgets import Widget

from toolkit.bench.compare import plan
from toolkit.protocols import Drafter
from toolkit.trace import RowRecord, Trace, save
from toolkit.trace.words import tokens_in
from toolkit.widgets.compare import CompareView
from toolkit.widgets.contest import Contest
from toolkit.widgets.drawers import Drawers
from toolkit.widgets.export import export_html
from toolkit.widgets.share import Share
from toolkit.widgets.whatif import WhatIf

if TYPE_CHECKING:
    from toolkit.widgets.lab import Lab

WHAT_IF, COMPARE, SHARE = "What if", "Compare", "Share"


class Studies:
    """The drawers of a lab, and what they do, which code may ask for as well. `widget` is closed at first, and nothing is made
    or worked out for a drawer that has not been opened."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.panel: WhatIf | None = None
        self.contest: Contest | None = None
        self.share: Share | None = None
        self._views: list[CompareView] = []
        makers: dict[str, Callable[[], Widget]] = {
            WHAT_IF: self._make_panel,
            COMPARE: self._make_contest,
            SHARE: self._make_share,
        }
        self.drawers = Drawers(makers, lab.say)
        self.drawers.widget.observe(lambda _: self.follow(), "selected_index")
        self.widget = self.drawers.widget

    @property
    def comparing(self) -> bool:
        """A comparison has the model now."""
        return any(view.running for view in self._views)

    def follow(self) -> None:
        """Bring an open drawer up to what is on the screen. While steps are being made the question stays with the last one."""
        if self.contest:
            self.contest.offer(self.lab.drafters)
        held = self.lab.live.state != "running" or self.lab.controls.timeline.shown >= 0
        if self.panel and held and self.drawers.open == WHAT_IF:
            self.panel.see(self.shown(), self.lab.step_shown)

    def shown(self) -> RowRecord | None:
        """The shown row's entry of the shown step."""
        steps, at = self.lab.trace.steps, self.lab.step_shown
        return steps[at].rows[self.lab.row] if 0 <= at < len(steps) else None

    def what_if(self) -> WhatIf:
        """A panel of its own for the shown step."""
        record = self.shown()
        if record is None:
            raise ValueError("there is no step of this row to ask about: make one first")
        if record.evidence is None:
            raise ValueError(
                "this step was recorded without evidence: set the evidence menu to 64 likeliest, and run again"
            )
        panel = WhatIf(self.lab.loaded.decode)
        panel.show(record, self.lab.step_shown)
        return panel

    def compare(
        self, prompts: Sequence[str], drafters: Mapping[str, Drafter] | Sequence[str], max_new_tokens: int
    ) -> CompareView:
        """Pause the run and start a comparison."""
        lab = self.lab
        if self.comparing:
            raise ValueError("a comparison is running already: wait for it, or stop it first")
        if not isinstance(drafters, Mapping):
            if unknown := [name for name in drafters if name not in lab.drafters]:
                raise ValueError(f"unknown drafter {unknown[0]!r}: use some of {', '.join(lab.drafters)}")
            drafters = {name: lab.drafters[name] for name in drafters}
        if not drafters:
            raise ValueError("there is nothing to compare: choose at least one drafter")
        lab.live.pause()
        while lab.live.state == "running":  # for the model is looked over anew, which no step must meet
            lab.live.wait(1.0)
        made = plan(drafters, prompts, target=lab.loaded, max_new_tokens=max_new_tokens, sampling=lab.engine.sampling)
        view = CompareView(made)
        self._views = [v for v in self._views if v.running] + [view]
        return view

    def save(self, path: str | Path) -> None:
        """Write the trace with its words."""
        save(self._told(), path)

    def export(self, path: str | Path) -> int:
        """Write the HTML file; its size in bytes."""
        return export_html(self._told(), path, title=f"{self.lab.target}: {self.lab.prompts[0][:60]}")

    def restart(self) -> None:
        """Another run, perhaps of another target: a panel decodes its tokens anew."""
        if self.panel:
            self.panel.decode = self.lab.loaded.decode

    def close(self) -> None:
        """End what runs here, and the widgets."""
        for view in self._views:
            view.close()
        if self.panel:
            self.panel.close()
        self.widget.close()

    def _told(self) -> Trace:
        trace = self.lab.trace
        trace.words = self.lab.loaded.words(tokens_in(trace))
        return trace

    def _make_panel(self) -> WhatIf:
        self.panel = WhatIf(self.lab.loaded.decode)
        return self.panel

    def _make_contest(self) -> Widget:
        lab = self.lab
        chosen = str(lab.desk.drafter.menu.value)
        tokens = min(64, lab.engine.stopping.max_new_tokens)
        self.contest = Contest(lab.drafters, chosen, lab.prompts, tokens, self.compare)
        return self.contest.widget

    def _make_share(self) -> Widget:
        self.share = Share(self.save, self.export)
        return self.share.widget

"""What there is to look at: token tree, text and charts of one row, at one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.trace import RowRecord, StepRecord
from toolkit.whatif import residual
from toolkit.widgets.charts import Charts
from toolkit.widgets.page import static_page
from toolkit.widgets.ribbon import Ribbon
from toolkit.widgets.scene import Decode, Residual
from toolkit.widgets.tree import TreeView


class Stage:
    """Shows what it is given, and knows neither models nor runs."""

    def __init__(self, decode: Decode) -> None:
        self.tree, self.ribbon, self.charts = TreeView(decode), Ribbon(decode), Charts()
        self.row = 0

    @property
    def looks(self) -> dict[str, Any]:
        """The widgets, as `Controls.box` wants them."""
        return {"tree": self.tree, "text": self.ribbon, "charts": self.charts.widget}

    def start(self, prompt: str, row: int = 0) -> None:
        """Begin anew with a row and its prompt's text."""
        self.row = row
        self.ribbon.start(prompt + "\n\n", row)

    def show(self, steps: Sequence[StepRecord], shown: int, *, marked: bool) -> None:
        """The tree of a step, and the text up to the last; `marked` marks the tokens that came in the step."""
        record = steps[shown].rows[self.row] if steps else None
        self.tree.show(record, shown, _left(record) if record and record.evidence else None)
        self.ribbon.update(steps)
        self.ribbon.shown = shown if marked else -1

    def chart(self, steps: Sequence[StepRecord]) -> None:
        """Bring the charts up to date, which costs more than the rest."""
        self.charts.update(steps, self.row)

    def html(self, status: str) -> str:
        """What is on the stage as plain HTML. `status` is HTML already."""
        summary = self.tree.scene.get("summary", "no step yet")
        return static_page(status, summary, self.tree.svg, [(self.ribbon.prompt, "prompt", -1), *self.ribbon.pieces])


def _left(record: RowRecord) -> Residual:
    """What a correction after a node was drawn from; nothing where no child of it was refused."""

    def left(node: int) -> Sequence[tuple[int, float]]:
        found = residual(record, node)
        return found.top if found.refused else ()

    return left

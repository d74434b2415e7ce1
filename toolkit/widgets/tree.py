"""The token tree of one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from toolkit.trace import RowRecord
from toolkit.widgets.scene import Decode, Residual, details, scene
from toolkit.widgets.static import tree_svg

HERE = Path(__file__).parent
AUTOMATIC = -1.0
NOT_WALKING = -1


class TreeView(anywidget.AnyWidget):
    """Draws what `show` is given.

    chosen          the node whose card is open, -1 for none; arrow keys and clicks move it
    collapse_below  path probability below which untested nodes are folded away: 0 for none, -1 for as many as are readable
    weight_by       what an edge's width shows: "p" the target's probability of its node, "q" the drafter's
    walked          how far a teacher has walked through the tests of the step, -1 when not walking
    cost            milliseconds that the page took for a picture; 0 for a page on another machine, a guess until it tells
    """

    _esm = (HERE / "tree_layout.js").read_text(encoding="utf-8") + (HERE / "tree.js").read_text(encoding="utf-8")
    _css = HERE / "tree.css"
    scene = traitlets.Dict().tag(sync=True)
    chosen = traitlets.Int(-1).tag(sync=True)
    collapse_below = traitlets.Float(AUTOMATIC, min=AUTOMATIC, max=1.0).tag(sync=True)
    weight_by = traitlets.Enum(("p", "q"), "p").tag(sync=True)
    walked = traitlets.Int(NOT_WALKING, min=NOT_WALKING).tag(sync=True)
    cost = traitlets.Float(50.0).tag(sync=True)

    def __init__(self, decode: Decode) -> None:
        super().__init__()
        self.decode = decode
        self._shown: tuple[RowRecord, int, Residual | None] | None = None
        self.on_msg(self._asked)

    def show(self, record: RowRecord | None, step: int, residual: Residual | None = None) -> None:
        """Draw one row's entry of a step, or nothing. residual: what was left after a node's refused children, for its card."""
        before = self._shown
        if record is None:
            self._shown, self.scene = None, {}
            return
        if before and before[0] is record and before[1] == step:
            return
        self._shown = (record, step, residual)
        self.walked = NOT_WALKING
        self.scene = scene(record, self.decode, step, told=False)

    @property
    def whole(self) -> dict[str, Any]:
        """The scene with all its cards, as a page without a kernel needs it."""
        if self._shown is None:
            return {}
        record, step, residual = self._shown
        return scene(record, self.decode, step, residual=residual)

    @property
    def svg(self) -> str:
        """The picture now, for pages without a kernel."""
        return tree_svg(self.whole, self.collapse_below) if self._shown else ""

    def _asked(self, _: object, content: dict[str, Any], __: list[bytes]) -> None:
        """A page asks for the cards and the walk of the step that it shows."""
        shown = self._shown
        if content.get("kind") == "details" and shown and content.get("step") == shown[1]:
            record, step, residual = shown
            self.send({"kind": "details", "step": step, **details(record, self.decode, residual)})

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle:
            bundle[0]["text/html"] = self.svg
        return bundle

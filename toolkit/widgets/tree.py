"""The token tree of one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from toolkit.trace import RowRecord
from toolkit.widgets.scene import Decode, scene
from toolkit.widgets.static import tree_svg

HERE = Path(__file__).parent


class TreeView(anywidget.AnyWidget):
    """Draws what `show` is given. `chosen` is the node whose card is open, -1 for none; arrow keys and clicks move it.
    `cost` is how many milliseconds the page took for a picture, 0 for a page on another machine, a guess until it tells."""

    _esm = HERE / "tree.js"
    _css = HERE / "tree.css"
    scene = traitlets.Dict().tag(sync=True)
    chosen = traitlets.Int(-1).tag(sync=True)
    cost = traitlets.Float(50.0).tag(sync=True)

    def __init__(self, decode: Decode) -> None:
        super().__init__()
        self.decode = decode

    def show(self, record: RowRecord | None, step: int) -> None:
        """Draw one row's entry of a step, or nothing."""
        self.scene = scene(record, self.decode, step) if record else {}

    @property
    def svg(self) -> str:
        """The picture now, for pages without a kernel."""
        return tree_svg(self.scene) if self.scene else ""

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle:
            bundle[0]["text/html"] = self.svg
        return bundle

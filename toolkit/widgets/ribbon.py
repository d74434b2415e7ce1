"""The text so far, token by token, each by how it came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from toolkit.sampling.text import TextStream
from toolkit.trace import StepRecord
from toolkit.widgets.scene import Decode
from toolkit.widgets.static import ribbon_html

HERE = Path(__file__).parent
Piece = tuple[str, str, int]  # text, origin, step


class Ribbon(anywidget.AnyWidget):
    """Shows `prompt` and `pieces`.

    pieces   grows in place, which announces nothing: only what is new travels, as a message. A page that opens late or
             is loaded again reads the whole list with the widget's state and needs nobody's answer.
    shown    the step whose tokens are marked, -1 for the newest
    clicked  the step of the token last clicked, -1 before
    """

    _esm = HERE / "ribbon.js"
    _css = HERE / "ribbon.css"
    prompt = traitlets.Unicode().tag(sync=True)
    pieces = traitlets.List().tag(sync=True)
    shown = traitlets.Int(-1).tag(sync=True)
    clicked = traitlets.Int(-1).tag(sync=True)

    def __init__(self, decode: Decode) -> None:
        super().__init__()
        self.decode = decode
        self.row = 0
        self._had: list[StepRecord] = []
        self._stream = TextStream(decode)
        self.on_msg(self._on_message)

    def start(self, prompt: str, row: int = 0) -> None:
        """Begin anew with a prompt's text."""
        self.prompt, self.row = prompt, row
        self.update([])

    def update(self, steps: Sequence[StepRecord]) -> None:
        """Bring the text up to these steps. Steps that were replaced, as after a rewind, are shown anew."""
        common = next((i for i, (a, b) in enumerate(zip(self._had, steps, strict=False)) if a is not b), None)
        if not steps or common is not None or len(steps) < len(self._had):
            self.pieces, self._had, self._stream = [], [], TextStream(self.decode)
        fresh = [piece for step in steps[len(self._had) :] for piece in self._read(step)]
        self._had = list(steps)
        if fresh:
            self.send({"kind": "add", "from": len(self.pieces), "pieces": fresh})
            self.pieces.extend(fresh)

    @property
    def html(self) -> str:
        """The text now, for pages without a kernel."""
        return ribbon_html([(self.prompt, "prompt", -1), *self.pieces])

    def _read(self, step: StepRecord) -> list[Piece]:
        entry = step.rows[self.row]
        if entry is None:
            return []
        return [
            (self._stream.push([token]), origin, step.step)
            for token, origin in zip(entry.emitted, entry.origins, strict=True)
        ]

    def _on_message(self, _: object, content: dict[str, Any], __: list[bytes]) -> None:
        if content.get("kind") == "gap":  # a page lost a message between reading the state and listening
            self.pieces = list(self.pieces)
            self.send_state("pieces")

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle:
            bundle[0]["text/html"] = self.html
        return bundle

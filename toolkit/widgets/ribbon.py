"""The text so far, token by token, each by how it came and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from toolkit.sampling.text import TextStream
from toolkit.trace import StepRecord
from toolkit.widgets.follow import Follower
from toolkit.widgets.scene import Decode
from toolkit.widgets.static import ribbon_html

HERE = Path(__file__).parent
Piece = tuple[str, str, int]  # text, origin, step


class Ribbon(anywidget.AnyWidget):
    """Shows `prompt` and `pieces`.

    pieces   text, origin and step of each token. Grows in place, which announces nothing: only what is new travels, as a
             message. A page that opens late or is loaded again reads the whole list with the widget's state and needs
             nobody's answer. A token that ends inside a character has no text: the one that completes it has it all.
    ms       milliseconds that the text waited for each piece: its step's, shared among the step's tokens of this row
    shown    the step whose tokens are marked, -1 for the newest
    clicked  the step of the token last chosen, by pointer or keyboard, -1 before
    """

    _esm = HERE / "ribbon.js"
    _css = HERE / "ribbon.css"
    prompt = traitlets.Unicode().tag(sync=True)
    pieces = traitlets.List().tag(sync=True)
    ms = traitlets.List().tag(sync=True)
    shown = traitlets.Int(-1).tag(sync=True)
    clicked = traitlets.Int(-1).tag(sync=True)

    def __init__(self, decode: Decode) -> None:
        super().__init__()
        self.decode = decode
        self.row = 0
        self._follower = Follower()
        self._stream = TextStream(decode)
        self.on_msg(self._on_message)

    def start(self, prompt: str, row: int = 0) -> None:
        """Begin anew with a prompt's text."""
        self.prompt, self.row = prompt, row
        self.update([])

    def update(self, steps: Sequence[StepRecord]) -> None:
        """Bring the text up to these steps. Steps that were replaced, as after a rewind, are taken back."""
        gone, fresh = self._follower.news(steps)
        if not steps:
            if self.pieces:  # a page's own list began as empty, so that an empty one is no change to it
                self.send({"kind": "cut", "to": 0})
            self.pieces, self.ms, self._stream = [], [], TextStream(self.decode)
        elif back := sum(len(self._entry(step)) for step in gone):
            self._take_back(back)
        pieces, ms = [], []
        for step in fresh:
            read = self._read(step)
            pieces += read
            ms += [round(step.total_ms / len(read), 3)] * len(read) if read else []  # the row had ended before
        if pieces:
            begin = len(self.pieces)  # written before it is sent: a page that opens in between has it, or gets it
            self.pieces.extend(pieces)
            self.ms.extend(ms)
            self.send({"kind": "add", "from": begin, "pieces": pieces, "ms": ms})

    @property
    def html(self) -> str:
        """The text now, for pages without a kernel."""
        return ribbon_html([(self.prompt, "prompt", -1), *self.pieces])

    def _take_back(self, count: int) -> None:
        keep = len(self.pieces) - count
        del self.pieces[keep:], self.ms[keep:]
        self.send({"kind": "cut", "to": keep})
        self._stream.rewind(keep)

    def _entry(self, step: StepRecord) -> tuple[int, ...]:
        entry = step.rows[self.row]
        return entry.emitted if entry else ()

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
            self.send_state(["ms", "pieces"])
        elif content.get("kind") == "again":  # the same step was chosen twice: observers are told twice
            with self.hold_sync():
                step, self.clicked = self.clicked, -1
                self.clicked = step

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle:
            bundle[0]["text/html"] = self.html
        return bundle

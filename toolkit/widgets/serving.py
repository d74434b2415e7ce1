"""A server at work: who holds which page, who waits, and what the prefix cache keeps."""

from __future__ import annotations

import time
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import anywidget
import traitlets
from IPython.display import HTML, display
from ipywidgets import VBox

from toolkit.trace import Event, Snapshot, StepRecord, Trace
from toolkit.widgets.painter import Painter
from toolkit.widgets.scene import Decode
from toolkit.widgets.serving_labels import Labels, requests_of
from toolkit.widgets.serving_scene import changes, scene
from toolkit.widgets.serving_static import serving_svg

HERE = Path(__file__).parent
LOG = 8  # events on the screen
STATIC_EVERY = 5.0  # seconds between two pictures for the saved notebook


class ServingView(anywidget.AnyWidget):
    """Draws what `show` is given.

    scene  changes in place, which announces nothing: only what is new travels, as a message. A page that opens late or is
           loaded again reads the whole scene with the widget's state; one that lost a message asks for it.
    cost   how many milliseconds the page took for a picture, 0 for a page on another machine, a guess until it tells
    """

    _esm = HERE / "serving.js"
    _css = HERE / "serving.css"
    scene = traitlets.Dict().tag(sync=True)
    cost = traitlets.Float(10.0).tag(sync=True)

    def __init__(self, decode: Decode) -> None:
        super().__init__()
        self._text = lru_cache(maxsize=4096)(decode)  # a tokenizer is slow, and most pages were shown before
        self._labels = Labels()
        self._log: deque[Event] = deque(maxlen=LOG)
        self._preempted: Counter[str] = Counter()
        self.on_msg(self._on_message)

    def show(self, snapshot: Snapshot, events: Iterable[Event] = ()) -> None:
        """Draw a snapshot. `events` are those since the last call; a snapshot of an earlier step begins anew."""
        if self.scene and snapshot.step < self.scene["head"]["step"]:
            self._log.clear()
            self._preempted.clear()
        for event in events:
            self._log.append(event)
            self._preempted[event.request] += event.kind == "preempted"
        here, gone = set(requests_of(snapshot)), [e.request for e in self._log]
        self._labels.keep(requests_of(snapshot), gone)
        self._preempted = Counter({r: n for r, n in self._preempted.items() if n and (r in here or r in gone)})
        self._put(scene(snapshot, self._labels, self._text, tuple(self._log), self._preempted))

    @property
    def svg(self) -> str:
        """The picture now, for pages without a kernel."""
        return serving_svg(self.scene) if self.scene else ""

    def _put(self, fresh: dict[str, Any]) -> None:
        if not self.scene:
            self.scene = {"number": 0, **fresh}
            return
        if change := changes(self.scene, fresh):
            number = self.scene["number"]
            self.send({"kind": "change", "from": number, "parts": change})
            # The number is the first thing read and the last written: who reads in between takes the next change as well.
            self.scene.update({name: fresh[name] for name in change})
            self.scene["number"] = number + 1

    def _on_message(self, _: object, content: dict[str, Any], __: list[bytes]) -> None:
        if content.get("kind") == "gap":
            self.send_state("scene")

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle:
            bundle[0]["text/html"] = self.svg
        return bundle


class Served(Protocol):
    """What can be watched."""

    @property
    def trace(self) -> Trace: ...

    def snapshot(self) -> Snapshot:
        """Called from a thread of ours while the server runs."""
        ...


class ServerWatch:
    """Shows a live server in a view, from a thread of its own. The server's loop only notes that there is something new;
    an error in drawing is printed and never reaches it.

        with ServerWatch(server, decode) as watch:
            display(watch)
            ...

    A saved notebook keeps the last picture.
    """

    def __init__(self, server: Served, decode: Decode, view: ServingView | None = None, every: float = 0.2) -> None:
        self.server, self.view = server, view or ServingView(decode)
        self._events: deque[Event] = deque()
        self._static = f"specdec-{uuid.uuid4().hex[:8]}"
        self._handle: Any = None
        self._kept = float("-inf")  # when the picture for the saved notebook was made
        self._painter = Painter(self._paint, every, elsewhere=lambda: self.view.cost / 1e3)
        server.trace.watch(self._see, every=0)
        self._painter.poke()

    def settle(self, timeout: float = 10.0) -> bool:
        """Wait until everything that has happened is drawn."""
        self._painter.hurry()
        return self._painter.settle(timeout)

    def close(self) -> None:
        """Draw what is left, then look no longer. The picture stays."""
        self.server.trace.unwatch(self._see)
        self.settle()
        self._painter.close()
        self._keep()

    def __enter__(self) -> ServerWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ipython_display_(self) -> None:
        # Two outputs: the widget, and a picture that a live page hides. A saved notebook keeps the picture. The box keeps
        # the view from leaving one of its own, which would stay as it was at the beginning.
        display(VBox([self.view]))
        self._handle = display(HTML(self._fallback()), display_id=self._static)

    def _see(self, records: Sequence[StepRecord]) -> None:
        for record in records:
            self._events.extend(record.events)
        self._painter.poke()

    def _paint(self) -> None:
        snapshot = self.server.snapshot()
        events = [self._events.popleft() for _ in range(len(self._events))]
        self.view.show(snapshot, events)
        resting = not (snapshot.waiting or snapshot.prefilling or snapshot.running)
        if resting or time.monotonic() - self._kept >= STATIC_EVERY:
            self._keep()

    def _keep(self) -> None:
        if self._handle:
            self._kept = time.monotonic()
            self._handle.update(HTML(self._fallback()))

    def _fallback(self) -> str:
        return f'<div class="specdec-served" id="{self._static}" style="overflow-x:auto">{self.view.svg}</div>'

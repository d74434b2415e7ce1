"""Live figures that share one copy of plotly."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import ipywidgets as w
import plotly.graph_objects as go
import traitlets

HERE = Path(__file__).parent


class Library(w.Widget):
    """plotly's own module for figures in a page, once for all figures that share it."""

    code = traitlets.Unicode(read_only=True).tag(sync=True)
    _kept: ClassVar[Library | None] = None

    @classmethod
    def shared(cls) -> Library:
        """One for all of a kernel: these are 5 MB that a page must fetch and read for each library there is, those of labs
        that an earlier run of a cell made among them. One that was closed, as `Widget.close_all()` does, is replaced."""
        if cls._kept is None or cls._kept.comm is None:
            cls._kept = cls()
        return cls._kept

    @traitlets.default("code")
    def _plotly(self) -> str:
        return (files("plotly") / "package_data" / "widgetbundle.js").read_text(encoding="utf-8")


class Figure(go.FigureWidget):  # pyrefly: ignore[invalid-inheritance]  # plotly names a stand-in for pages without anywidget
    """A `FigureWidget` with a library that it shares, and a style sheet of ours: plotly's texts follow the page's theme. A page
    reads plotly once, and only when the first figure is seen; each plain `FigureWidget` makes it read 5 MB on arrival, for which
    a page that is loaded anew stands still a second or two, and other widgets' models are given up meanwhile."""

    _esm = HERE / "figure.js"
    _css = HERE / "charts.css"
    _library = traitlets.Instance(Library).tag(sync=True, **w.widget_serialization)

    def __init__(self, figure: Any) -> None:
        self._library = Library.shared()  # before the page hears of the figure
        super().__init__(figure)

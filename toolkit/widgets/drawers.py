"""Panels folded away below each other: one is made when it is opened first, so that a closed one costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ipywidgets as w


class Drawers:
    """makers: title to a function that makes its panel; what that raises is told to `refused`, and tried again at the next opening."""

    def __init__(self, makers: Mapping[str, Callable[[], w.Widget]], refused: Callable[[Exception], None]) -> None:
        self._makers, self._refused = list(makers.values()), refused
        self._made: set[int] = set()
        self._titles = list(makers)
        self.widget = w.Accordion([w.VBox() for _ in makers], titles=self._titles, selected_index=None)
        self.widget.observe(lambda change: self._opened(change["new"]), "selected_index")

    @property
    def open(self) -> str:
        """The title of the open one, "" for none. Assign to open it."""
        index = self.widget.selected_index
        return "" if index is None else self._titles[index]

    @open.setter
    def open(self, title: str) -> None:
        self.widget.selected_index = self._titles.index(title) if title else None

    def _opened(self, index: int | None) -> None:
        if index is None or index in self._made:
            return
        try:
            self.widget.children[index].children = (self._makers[index](),)
            self._made.add(index)
        except Exception as error:
            self._refused(error)

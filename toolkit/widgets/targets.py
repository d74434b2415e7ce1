"""The menu of targets: models by name, loaded when they are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import ipywidgets as w

from toolkit.models import zoo
from toolkit.terminal.progress import download_bar

Target = str | Path | zoo.Loaded


def load(target: Target, dtype: str) -> zoo.Loaded:
    """What `zoo.load` gives, with a bar where something is fetched."""
    if isinstance(target, zoo.Loaded):
        return target
    with download_bar(str(target)) as progress:
        return zoo.load(target, dtype=dtype, progress=progress)


class TargetMenu:
    """Fills a menu, which is seen only where there is a choice. `choose(target)` is told what a person chose; what it raises is
    told to `refused`, and the menu goes back to what is in use."""

    def __init__(
        self,
        menu: w.Dropdown,
        targets: Sequence[Target],
        choose: Callable[[Target], None],
        refused: Callable[[Exception], None],
    ) -> None:
        self.menu = menu
        self._known: dict[str, Target] = {_name(t): t for t in targets}
        self._choose, self._refused = choose, refused
        self._in_use = _name(targets[0])
        self._showing = False  # the menu is moved by us
        self.show(targets[0])
        menu.observe(lambda change: self._chosen(change["new"]), "value")

    def show(self, target: Target) -> None:
        """Say which one is in use; one that is not in the menu is added."""
        self._in_use = _name(target)
        self._known[self._in_use] = target
        self._showing = True
        try:
            if list(self.menu.options) != list(self._known):
                self.menu.options = list(self._known)
            self.menu.value = self._in_use
        finally:
            self._showing = False
        self.menu.layout.display = "none" if len(self._known) == 1 else ""

    def _chosen(self, name: str) -> None:
        if self._showing or name == self._in_use:
            return
        before = self._known[self._in_use]
        try:
            self._choose(self._known[name])
        except Exception as error:
            self.show(before)
            self._refused(error)


def _name(target: Target) -> str:
    return target.name if isinstance(target, zoo.Loaded) else str(target)

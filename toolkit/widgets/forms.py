"""Controls made from what a class asks for: every parameter of its constructor that a person can type gets one.

So a class typed into a notebook cell is shown as our own are. A parameter is read back from the attribute of its name; one that has
no such attribute, or whose kind no control can show (models, tensors, functions), is left as it is.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import ipywidgets as w

NARROW = w.Layout(width="226px")
_STYLE = {"description_width": "124px"}  # the longest name in full


@dataclass(frozen=True, slots=True)
class Parameter:
    """One that a control can show. kind: int, float, bool, str or tuple (of whole numbers); choices: of a Literal."""

    name: str
    kind: type
    optional: bool = False  # None is a value
    choices: tuple[Any, ...] = ()


def parameters(part: object) -> list[Parameter]:
    """What of a part's constructor can be shown, in its order."""
    kind = type(part)
    try:
        asked = inspect.signature(kind).parameters
    except (TypeError, ValueError):
        return []
    hints = _hints(kind)
    found = []
    for name, given in asked.items():
        if given.kind in (given.VAR_POSITIONAL, given.VAR_KEYWORD) or not hasattr(part, name):
            continue
        hint = hints.get(name, type(given.default) if given.default is not given.empty else None)
        if made := _parameter(name, hint):
            found.append(made)
    return found


def rebuilt(part: Any, **changes: Any) -> Any:
    """The same part with some parameters changed: a new object, made by its own constructor, which may refuse."""
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return dataclasses.replace(part, **changes)
    asked = inspect.signature(type(part)).parameters
    kept = {name: getattr(part, name) for name in asked if hasattr(part, name)}
    return type(part)(**kept | changes)


class Form:
    """The controls of one part. `changed(part)` is told the new part after an edit; a value that the constructor refuses is put back
    and told to `refused`."""

    def __init__(self, changed: Callable[[Any], None], refused: Callable[[Exception], None]) -> None:
        self.box = w.VBox()
        self.part: Any = None
        self._changed, self._refused = changed, refused
        self._controls: dict[str, w.ValueWidget] = {}
        self._showing = False  # values are being set by us

    def show(self, part: Any) -> None:
        """Show a part's values. Controls stay where the part is of the same class."""
        anew = type(part) is not type(self.part)
        self.part = part
        found = parameters(part)
        self._showing = True
        try:
            if anew:
                for old in self._controls.values():
                    old.close()
                self._controls = {p.name: self._control(p) for p in found}
                self.box.children = tuple(self._controls.values())
            for p in found:
                self._controls[p.name].value = _shown(getattr(part, p.name), p)
        finally:
            self._showing = False

    def _control(self, p: Parameter) -> w.ValueWidget:
        about: dict[str, Any] = {"description": p.name.replace("_", " "), "layout": NARROW, "style": _STYLE}
        made: w.ValueWidget
        if p.choices:
            made = w.Dropdown(options=[(str(c), c) for c in p.choices], value=getattr(self.part, p.name), **about)
        elif p.kind is bool:
            made = w.Checkbox(indent=True, **about)
        elif p.kind in (int, float) and not p.optional:
            made = (w.IntText if p.kind is int else w.FloatText)(**about)
        else:
            made = w.Text(continuous_update=False, placeholder="none" if p.optional else "", **about)
        made.observe(lambda change, p=p: self._edited(p, change["new"]), "value")
        return made

    def _edited(self, p: Parameter, value: object) -> None:
        if self._showing or self.part is None:
            return
        try:
            part = rebuilt(self.part, **{p.name: _read(value, p)})
        except Exception as error:
            self.show(self.part)  # what is shown is what holds
            self._refused(error)
            return
        self._changed(part)  # first: whoever shows the engine's part meanwhile shows this one
        self.part = part


class PartMenu:
    """A menu of parts by name, with the chosen one's form below, and below that the menu of a part within it (a drafter's shape).

    options   name to part; a part assigned from code that is none of them is added under its class's name
    within    attribute of the part that a nested menu chooses, and that menu's options
    """

    def __init__(
        self,
        label: str,
        options: Mapping[str, Any],
        changed: Callable[[Any], None],
        refused: Callable[[Exception], None],
        within: tuple[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.options = dict(options)
        self._changed, self._refused = changed, refused
        self.menu = w.Dropdown(
            description=label,
            options=list(self.options),
            layout=w.Layout(width="270px"),
            style={"description_width": "60px"},
        )
        self.form = Form(self._edited, refused)
        self._attribute = within[0] if within else ""
        self.inner = PartMenu(within[0], within[1], self._inner_changed, refused) if within else None
        self.box = w.VBox([self.menu, self.form.box, *([self.inner.box] if self.inner else [])])
        self.part: Any = None
        self._showing = False
        self.menu.observe(self._chosen, "value")

    def show(self, part: Any) -> None:
        """Show the part in use, which may have been assigned from code."""
        if part is self.part:
            return
        name = self._name(part)
        self.part, self.options[name] = part, part
        self._showing = True
        try:
            if list(self.menu.options) != list(self.options):
                self.menu.options = list(self.options)
            self.menu.value = name
        finally:
            self._showing = False
        self.form.show(part)
        if self.inner:
            inside = getattr(part, self._attribute, None)
            self.inner.box.layout.display = "none" if inside is None else ""
            if inside is not None:
                self.inner.show(inside)

    def offer(self, options: Mapping[str, Any]) -> None:
        """Other options; nothing is chosen by that."""
        self.options, self.part = dict(options), None

    def _name(self, part: Any) -> str:
        """What a part is called: as the option that it is, or that it differs from only in what a form shows; else as its class."""
        now = str(self.menu.value)
        for name, option in self.options.items():
            if option is part:
                return name
        if now in self.options and self._akin(part, self.options[now]):
            return now
        for name, option in self.options.items():
            inside, others = getattr(part, self._attribute, None), getattr(option, self._attribute, None)
            if self._akin(part, option) and type(inside) is type(others):
                return name
        name = type(part).__name__
        while name in self.options:
            name += "'"
        return name

    def _akin(self, a: Any, b: Any) -> bool:
        """Are two parts the same but for what the form and the inner menu show."""
        if type(a) is not type(b):
            return False
        shown = {p.name for p in parameters(a)} | {self._attribute}
        asked = inspect.signature(type(a)).parameters
        return all(getattr(a, n, None) is getattr(b, n, None) for n in asked if n not in shown)

    def _chosen(self, change: dict[str, Any]) -> None:
        if not self._showing and change["new"] in self.options:
            part = self.options[change["new"]]
            self._changed(part)
            self.show(part)

    def _edited(self, part: Any) -> None:
        self.options[str(self.menu.value)] = part
        self._changed(part)  # first: whoever shows the engine's part meanwhile shows this one
        self.show(part)

    def _inner_changed(self, inside: Any) -> None:
        try:
            part = rebuilt(self.part, **{self._attribute: inside})
        except Exception as error:
            if self.inner:
                self.inner.show(getattr(self.part, self._attribute))
            self._refused(error)
            return
        self._edited(part)


def _hints(kind: type) -> dict[str, Any]:
    """Annotations of the constructor, as far as they can be found: those of a class in a cell may name what is gone."""
    for where in (kind.__init__, kind):
        try:
            found = typing.get_type_hints(where)
        except Exception:  # a name that is imported for type checkers alone, for one
            found = {n: _simple(a) for n, a in getattr(where, "__annotations__", {}).items()}
        if found:
            return found
    return {}


def _simple(annotation: Any) -> Any:
    """A hint that could not be looked up: simple ones are known by their words."""
    words = {"int": int, "float": float, "bool": bool, "str": str, "tuple[int, ...]": tuple[int, ...]}
    if not isinstance(annotation, str):
        return annotation
    bare = annotation.removesuffix(" | None")
    found = words.get(bare)
    return found | None if found is not None and bare != annotation else found


def _parameter(name: str, hint: Any) -> Parameter | None:
    optional = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [a for a in typing.get_args(hint) if a is not type(None)]
        optional = len(kinds) < len(typing.get_args(hint))
        if len(kinds) != 1:
            return None
        hint = kinds[0]
    if typing.get_origin(hint) is Literal:
        return Parameter(name, str, optional, typing.get_args(hint))
    if typing.get_origin(hint) is tuple and typing.get_args(hint) == (int, ...):
        return Parameter(name, tuple, optional)
    return Parameter(name, hint, optional) if hint in (int, float, bool, str) else None


def _shown(value: Any, p: Parameter) -> Any:
    if p.choices or (p.kind in (int, float, bool) and not p.optional):
        return value
    if value is None:
        return ""
    return ", ".join(map(str, value)) if p.kind is tuple else str(value)


def _read(value: Any, p: Parameter) -> Any:
    if p.choices or (p.kind in (int, float, bool) and not p.optional):
        return value
    text = str(value).strip()
    if p.optional and text in ("", "none", "None"):
        return None
    try:
        return tuple(int(x) for x in text.split(",") if x.strip()) if p.kind is tuple else p.kind(text)
    except ValueError:
        wanted = "whole numbers with commas between" if p.kind is tuple else f"{p.kind.__name__}"
        raise ValueError(f"{p.name} is {wanted}; got {text!r}") from None

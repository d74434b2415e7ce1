"""Controls from constructors: what a person edits becomes a new part, and what code assigns is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from toolkit.drafting import BestFirst, Chain, DraftModel, Dynamic, Fixed, NGram, Nothing, Sampled
from toolkit.sampling import Sampling
from toolkit.verification import Rejection, Typical
from toolkit.widgets.forms import Form, PartMenu, parameters, rebuilt


class Mine:
    """As typed into a cell: no dataclass, one parameter without an attribute, one that no control can show."""

    def __init__(
        self, length: int = 2, how: Literal["first", "last"] = "last", table: dict | None = None, gone: int = 1
    ):
        if length < 1:
            raise ValueError(f"length must be at least 1; got {length}")
        self.length, self.how, self.table = length, how, table


def shown(form: Form) -> dict[str, object]:
    return {c.description: c.value for c in form.box.children}


def test_parameters_are_those_that_a_control_can_show():
    assert [(p.name, p.kind) for p in parameters(NGram())] == [
        ("longest", int), ("shortest", int), ("length", int), ("branches", int)
    ]  # fmt: skip
    assert [p.name for p in parameters(Sampling())][:5] == ["temperature", "top_k", "top_p", "min_p", "seed"]
    assert parameters(Sampling())[0].optional
    assert [(p.name, p.choices) for p in parameters(Mine())] == [("length", ()), ("how", ("first", "last"))]
    assert [p.name for p in parameters(Sampled())] == ["widths", "distinct"]
    assert parameters(Nothing()) == parameters(object()) == []


def test_an_edit_makes_a_new_part_by_its_own_constructor():
    seen, errors = [], []
    form = Form(seen.append, errors.append)
    mine = Mine(table={"a": 1})
    form.show(mine)
    length, how = form.box.children
    length.value = 5
    how.value = "first"
    assert [(m.length, m.how, m.table is mine.table) for m in seen] == [(5, "last", True), (5, "first", True)]
    assert mine.length == 2 and not errors
    length.value = 0
    assert length.value == 5 and len(seen) == 2 and "got 0" in str(errors[0])


def test_tuples_and_none_are_typed_as_text():
    seen, errors = [], []
    form = Form(seen.append, errors.append)
    form.show(Sampled((3, 2, 1)))
    widths = form.box.children[0]
    widths.value = "4, 4"
    assert seen[-1].widths == (4, 4)
    widths.value = "4, x"
    assert "whole numbers" in str(errors[-1]) and widths.value == "4, 4"
    form.show(Sampling())
    temperature = form.box.children[0]
    assert temperature.value == ""
    temperature.value = "0.7"
    assert seen[-1].temperature == 0.7
    temperature.value = "none"
    assert seen[-1].temperature is None
    temperature.value = "-1"
    assert "-1" in str(errors[-1]) and temperature.value == ""


@pytest.fixture
def menu():
    seen, errors = [], []
    model = object()
    options = {
        "none": Nothing(),
        "ngram": NGram(),
        "model, chain": DraftModel(model, Chain(3)),
        "model, tree": DraftModel(model, Dynamic()),
    }
    shapes = {"chain": Chain(), "dynamic": Dynamic(), "best-first": BestFirst()}
    made = PartMenu("drafter", options, seen.append, errors.append, within=("shape", shapes))
    made.show(options["ngram"])
    return made, seen, errors


def test_a_menu_chooses_and_edits(menu):
    made, seen, _ = menu
    made.menu.value = "model, chain"
    assert seen[-1] is made.options["model, chain"] and made.inner.menu.value == "chain"
    assert shown(made.inner.form)["length"] == 3
    made.inner.form.box.children[0].value = 6
    assert seen[-1].shape == Chain(6) and seen[-1].model is made.options["model, tree"].model
    made.inner.menu.value = "dynamic"
    assert seen[-1].shape == Dynamic() and made.menu.value == "model, chain"
    made.menu.value = "none"
    assert made.inner.box.layout.display == "none" and made.form.box.children == ()
    made.menu.value = "model, chain"
    assert seen[-1].shape == Dynamic(), "what was edited is kept under its name"


def test_a_menu_shows_what_code_assigned(menu):
    made, seen, _ = menu
    made.show(NGram(length=3))
    assert made.menu.value == "ngram" and shown(made.form)["length"] == 3
    mine = Mine()
    made.show(mine)
    assert made.menu.value == "Mine" and shown(made.form) == {"length": 2, "how": "last"}
    made.menu.value = "ngram"
    assert seen[-1].length == 3
    made.menu.value = "Mine"
    assert seen[-1] is mine and not [s for s in seen if isinstance(s, Nothing)]
    fixed = DraftModel(mine, Fixed())
    made.show(fixed)
    assert made.menu.value == "DraftModel" and made.inner.menu.value == "Fixed"


def test_a_rule_has_its_numbers():
    seen: list = []
    made = PartMenu("rule", {"rejection": Rejection(), "typical": Typical()}, seen.append, print)
    made.show(made.options["rejection"])
    made.menu.value = "typical"
    made.form.box.children[0].value = 0.2
    assert seen[-1] == Typical(epsilon=0.2)


@dataclass(frozen=True)
class Late:
    unknown: Nowhere  # noqa: F821
    size: int = 3


def test_hints_that_cannot_be_looked_up_hide_only_themselves():
    assert [p.name for p in parameters(Late(1))] == ["size"]
    assert rebuilt(Late(1), size=4) == Late(1, 4)

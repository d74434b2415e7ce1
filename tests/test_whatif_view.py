"""The what-if panel, without a page: what it shows is what was worked out, and what goes wrong is a sentence in it."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace

import pytest
from test_whatif import DRAFTERS, drawn, steps
from tiny import PROMPTS, lm

from toolkit.engine import Engine
from toolkit.sampling import Sampling, Stopping
from toolkit.trace.metrics import row_steps
from toolkit.verification import Rejection
from toolkit.whatif import RULES, Prefix, again, distribution, law
from toolkit.widgets import WhatIf


def decode(ids) -> str:
    return "".join("<script>" if i == 5 else f"w{i}" for i in ids)


@pytest.fixture
def panel():
    made = WhatIf(decode)
    yield made
    made.close()


def test_a_record_is_first_shown_as_it_was(panel):
    r = drawn("distinct")[1]
    panel.show(r, 7)
    assert panel.settle(60)
    assert panel.before.scene["step"] == panel.after.scene["step"] == 7
    states = [[n["state"] for n in tree.scene["nodes"]] for tree in (panel.before, panel.after)]
    assert states[0] == states[1] and "Exact" in panel.notes.value and "biased" not in panel.notes.value
    assert panel.rule.value == "Rejection" and panel.top_k.value == 8 and panel.seed.value == "3"


def test_what_is_asked_is_what_is_shown(panel):
    r = next(r for r in drawn("distinct") if max(r.depth) > 1 and not again(r, "Typical").same)
    panel.show(r, 0)
    panel.rule.value = "Typical"
    assert panel.settle(60)
    right = again(r, "Typical").record
    shown = panel.after.scene["nodes"]
    assert [n["parent"] for n in shown] == [*right.parent, right.tip]
    assert f"{len(right.path) - 1} of {len(r.token) - 1} guesses kept" in panel.told[1].value
    assert "Typical is lossy" in panel.notes.value and "this step alone" in panel.notes.value
    was, would = panel.figure.data[:2]
    assert [round(1000 * y) for y in was.y] == list(distribution(r).counts)
    assert [round(1000 * y) for y in would.y] == list(distribution(r, "Typical").counts) != list(was.y)
    assert list(panel.figure.data[2].y) == pytest.approx(law(r).accepted)
    assert list(panel.figure.data[3].y) == pytest.approx(law(r, "Typical").accepted)
    assert f"{distribution(r).mean:.2f} guesses kept a step, {1 + distribution(r).mean:.2f} tokens" in panel.notes.value

    panel.levels.value = 1
    assert panel.settle(60)
    assert len(panel.after.scene["nodes"]) == 1 + len(Prefix(levels=1).nodes(r)) and "biased" in panel.notes.value
    panel.reset.click()
    assert panel.settle(60)
    assert panel.levels.value == 0 and panel.rule.value == "Rejection" and "biased" not in panel.notes.value


def test_controls_that_were_moved_stay_and_others_follow(panel):
    first, second = drawn("chain")[0], steps("chain", Rejection(), Sampling(0.9, top_k=10, seed=5), 12)[0]
    panel.show(first, 0)
    panel.show(second, 1)
    assert (panel.temperature.value, panel.top_k.value, panel.seed.value) == (0.9, 10, "5")
    panel.rule.value = "Traversal"
    panel.show(first, 0)
    assert panel.rule.value == "Traversal" and panel.top_k.value == 10, "asked by a person"
    assert panel.settle(60)
    assert "Traversal" in panel.told[1].value


@dataclass(frozen=True)
class Broken:
    def __call__(self, proposal, logits, sampler):
        raise RuntimeError("a <b>rule</b> in the making")


def test_what_goes_wrong_is_a_sentence_in_the_panel():
    made = WhatIf(decode, {**RULES, "Mine": Broken()})
    r = next(r for r in drawn("distinct") if len(r.token) > 3)
    made.show(r, 0)
    said = {}
    for name, ask in {
        "tree": lambda: setattr(made.rule, "value", "Block"),
        "own": lambda: setattr(made.rule, "value", "Mine"),
        "seed": lambda: setattr(made.seed, "value", "x"),
        "none": lambda: made.show(replace(r, evidence=None), 0),
    }.items():
        ask()
        assert made.settle(60)
        said[name] = made.notes.value
        assert "specdec-error" in said[name] and made.after.scene == {} and made.before.scene
        assert made.after.layout.display == "none"
        assert not made.figure.data[1].y
    assert "use the rule Traversal" in said["tree"] and "a &lt;b&gt;rule" in said["own"]
    assert "whole number; got &#x27;x&#x27;" in said["seed"] or "whole number; got 'x'" in said["seed"]
    assert "run the engine with evidence=64" in said["none"]
    made.reset.click()
    made.show(r, 0)
    assert made.settle(60)
    assert "specdec-error" not in made.notes.value and made.after.layout.display == ""
    made.show(None, 0)
    assert made.settle(60)
    assert made.before.scene == made.after.scene == {} and made.notes.value == ""
    made.close()


def test_a_rule_that_is_not_in_the_menu_leaves_its_own_bars_out(panel):
    r = drawn("distinct")[0]
    panel.show(replace(r, evidence=replace(r.evidence, rule="Mine(<b>)")), 0)
    assert panel.settle(60)
    assert "judged by Mine(&lt;b&gt;)" in panel.notes.value and not panel.figure.data[0].y and panel.figure.data[1].y


def test_a_token_that_was_not_recorded_has_a_name(panel):
    engine = Engine(lm(0), DRAFTERS["certain"](), sampling=Sampling(1.0, seed=5), stopping=Stopping(10), evidence=2)
    rows = list(row_steps(engine.generate(PROMPTS).trace.steps))
    r, seed = next((r, s) for r in rows for s in range(9) if again(r, seed=s).record.bonus < 0)
    panel.show(r, 0)
    panel.seed.value = str(seed)
    assert panel.settle(60)
    assert "(not" in panel.after.scene["nodes"][-1]["label"] and "Not exact" in panel.notes.value


def test_the_static_page_says_the_same_and_nothing_in_it_is_markup(panel):
    panel.show(next(r for r in drawn("distinct") if 5 in r.token), 3)
    assert panel.settle(60)
    bundle = panel._repr_mimebundle_()
    page = bundle["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert page.count("<svg") == 2 and "what if, exactly" in page and "Exact" in page
    assert "<script" not in page and "&lt;script&gt;" in page
    assert re.search(r"<td>as it was</td>(<td>\d+\.\d%</td>)+", page)


def test_no_thread_is_left_behind():
    before = {t for t in threading.enumerate() if t.name == "specdec-painter"}
    made = WhatIf(decode)
    made.show(drawn("chain")[0], 0)
    made.settle(60)
    made.close()
    assert {t for t in threading.enumerate() if t.name == "specdec-painter"} <= before

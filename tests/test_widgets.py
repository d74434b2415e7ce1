"""Widgets without a browser: what they hold, what they send, and that looking changes nothing."""

from __future__ import annotations

import itertools
import re
import threading
import time
from dataclasses import replace

import pytest
from tiny import PROMPTS, greedy, lm, loaded

from toolkit.drafting import NGram, Nothing
from toolkit.engine import Engine
from toolkit.sampling import Sampling, Stopping
from toolkit.trace import RowRecord, StepRecord
from toolkit.verification import Typical
from toolkit.widgets import Lab, Ribbon, TreeView
from toolkit.widgets.painter import Painter
from toolkit.widgets.scene import MARKS, layout, scene
from toolkit.widgets.static import ribbon_html, tree_svg

NASTY = {0: "<script>alert(1)</script>", 1: "\"&'", 2: "\u202eright to left", 3: "\n\t\x07", 4: "🙂", 5: "", 6: " a"}


def decode(ids) -> str:
    return "".join(NASTY.get(i, chr(97 + i % 26)) for i in ids)


def record(**changes) -> RowRecord:
    values = {
        "position": 4,
        "token": (6, 0, 1, 2, 3),
        "parent": (-1, 0, 0, 1, 1),
        "tip": 1,
        "bonus": 4,
        "emitted": (0, 4),
        "outcome": (0, 1, 0, 2, 2),
        "p": (0.0, 0.9, 0.1, 0.2, 0.3),
        "q": (0.0, 1.0, 1.0, 0.5, 0.5),
        "accept": (0.0, 0.9, 0.0, 0.4, 0.6),
        "u": (0.0, 0.1, 0.0, 0.7, 0.8),
        "confidence": (1.0, 0.5, 0.25, 0.2, 0.1),
        "top": (((0, 0.6), (1, 0.3)),) * 5,
        "prob": (0.0, 0.6, 0.3, 0.2, 0.1),
    }
    return RowRecord(**{**values, **changes})


def test_states_are_told_apart_by_mark_and_the_bonus_is_a_node():
    drawn = scene(record(), decode, 7)
    states = [n["state"] for n in drawn["nodes"]]
    assert states == ["pending", "kept", "unreached", "rejected", "rejected", "correction"]
    assert len({MARKS[n["state"]] for n in drawn["nodes"]}) == 5, "each state has its own mark"
    assert scene(record(outcome=(0, 1, 0, 0, 0)), decode, 7)["nodes"][-1]["state"] == "bonus"
    assert drawn["summary"].startswith("Step 7: 4 guesses, 1 accepted, then a correction 🙂")


def test_cards_say_what_was_tested():
    cards = [dict(n["card"]) for n in scene(record(), decode, 0)["nodes"]]
    assert cards[3]["u"] == "0.7000 ≥ 0.4000" and cards[3]["q"] == "0.5000" and cards[1]["q"] == "1.0000 (certain)"
    assert "u" not in cards[2], "a node that was not tested has no test to show"
    assert "u" not in dict(scene(record(u=(float("nan"),) * 5), decode, 0)["nodes"][3]["card"]), "nothing was drawn"
    assert cards[0]["target goes on"].count("0.") == 2


@pytest.mark.parametrize("nodes", [1, 8, 64, 256])
def test_no_two_nodes_stand_on_each_other(nodes):
    parent = [-1, *((i * 7 % i) if i % 3 else i - 1 for i in range(1, nodes))]
    places = layout(parent)
    assert len({(p.x, p.y) for p in places}) == nodes
    lines = sorted((p.x, p.y) for p in places)
    assert all(b[0] > a[0] or b[1] - a[1] >= 22 for a, b in itertools.pairwise(lines))


def test_nothing_a_token_says_becomes_markup():
    page = tree_svg(scene(record(), decode, 0)) + ribbon_html([(decode([t]), "accepted", 0) for t in range(7)])
    assert "<script" not in page and "&lt;script&gt;" in page
    assert "\u202e" not in tree_svg(scene(record(), decode, 0)) and "\x07" not in tree_svg(scene(record(), decode, 0))
    assert set(re.findall(r"<(\w+)", page)) == {"svg", "path", "g", "title", "rect", "text", "div", "span"}


def test_the_tree_view_holds_one_step_only():
    view = TreeView(decode)
    view.show(record(), 3)
    assert view.scene["step"] == 3 and "<svg" in view.svg
    view.show(None, 4)
    assert view.scene == {} and view.svg == ""


def steps_of(*emitted: tuple[int, ...]) -> list[StepRecord]:
    rows = [
        record(
            token=(6,),
            parent=(-1,),
            tip=0,
            outcome=(0,),
            emitted=e,
            bonus=e[-1],
            p=(0.0,),
            q=(1.0,),
            accept=(0.0,),
            u=(0.0,),
            confidence=(),
            prob=(),
            top=(),
        )
        for e in emitted
    ]
    return [StepRecord(i, (r,), "A", "R", 1) for i, r in enumerate(rows)]


def test_the_ribbon_sends_only_what_is_new_and_its_state_holds_all(monkeypatch):
    ribbon, sent = Ribbon(decode), []
    monkeypatch.setattr(ribbon, "send", lambda content, buffers=None: sent.append(content))
    ribbon.start("say: ")
    steps = steps_of((10,), (11,), (12,))
    ribbon.update(steps[:2])
    ribbon.update(steps)
    ribbon.update(steps)
    assert [(m["kind"], m["from"]) for m in sent] == [("add", 0), ("add", 2)]
    assert [p[0] for m in sent for p in m["pieces"]] == ["k", "l", "m"]
    state = ribbon.get_state()  # what a page reads that opens late
    assert state["prompt"] == "say: " and [p[0] for p in state["pieces"]] == ["k", "l", "m"]
    ribbon.update(steps_of((10,), (19,)))  # rewound, and another token came
    assert [p[0] for p in ribbon.get_state()["pieces"]] == ["k", "t"] and "t" in ribbon.html


def lab(**options) -> Lab:
    return Lab(loaded(), **{"prompt": "abcabcabc", "max_new_tokens": 24, "dtype": "float32", **options})


@pytest.fixture
def open_lab():
    made = lab()
    yield made
    made.close()


def test_a_run_shows_its_last_step_and_all_its_text(open_lab):
    open_lab.run()
    session = open_lab.wait()
    n = len(session.trace.steps)
    c = open_lab.controls
    assert c.timeline.steps == n == len(c.timeline.tokens) and c.timeline.shown == -1
    assert open_lab.step_shown == n - 1 == open_lab.tree.scene["step"]
    assert "".join(p[0] for p in open_lab.ribbon.pieces) == session.texts[0]
    assert "<b>done</b>" in c.status.value and "ended by length" in c.status.value
    assert len(open_lab.charts.figure("tokens").data[0].x) == n


def test_the_timeline_and_code_move_each_other(open_lab):
    open_lab.run()
    open_lab.wait()
    open_lab.step_shown = 2
    open_lab.screen.settle()
    assert open_lab.controls.timeline.shown == 2 == open_lab.tree.scene["step"] == open_lab.ribbon.shown
    open_lab.controls.timeline.shown = 1  # as a page does
    open_lab.screen.settle()
    assert open_lab.step_shown == 1 == open_lab.tree.scene["step"]
    open_lab.ribbon.clicked = 3
    open_lab.screen.settle()
    assert open_lab.step_shown == 3
    open_lab.controls.timeline.shown = -1
    open_lab.screen.settle()
    assert open_lab.step_shown == len(open_lab.trace.steps) - 1
    with pytest.raises(ValueError, match="there is no step 999"):
        open_lab.step_shown = 999


def test_the_menu_and_code_choose_the_drafter_both_ways(open_lab):
    open_lab.desk.drafter.menu.value = "none"
    assert open_lab.engine.drafter is open_lab.drafters["none"]
    mine = NGram(longest=2)
    open_lab.engine.drafter = mine
    open_lab.step()
    open_lab.wait()
    assert open_lab.desk.drafter.menu.value == "ngram" and open_lab.drafters["ngram"] is mine
    assert [c.value for c in open_lab.desk.drafter.form.box.children] == [2, 2, 10, 1]
    open_lab.desk.drafter.form.box.children[2].value = 5
    assert open_lab.engine.drafter == NGram(longest=2, length=5)
    open_lab.desk.drafter.form.box.children[2].value = 0
    assert "specdec-error" in open_lab.controls.status.value and open_lab.engine.drafter.length == 5
    open_lab.engine.drafter = open_lab.drafters["early exit, tree"]
    open_lab.step()
    open_lab.wait()
    assert open_lab.desk.drafter.menu.value == "early exit, tree"
    with pytest.raises(ValueError, match="unknown drafter 'magic'"):
        lab(drafter="magic")


def test_another_prompt_or_a_second_run_starts_anew(open_lab):
    open_lab.run()
    first = open_lab.wait()
    open_lab.controls.prompt.value = "xyz"
    open_lab.run()
    second = open_lab.wait()
    assert second is not first and second.prompts != first.prompts and open_lab.ribbon.prompt.startswith("xyz")
    open_lab.controls.prompt.value = " "
    open_lab.controls.run.click()
    assert "the prompt is empty" in open_lab.controls.status.value


def test_a_picture_under_way_leaves_nothing_of_the_old_run_in_the_new_ones_text(open_lab, monkeypatch):
    read, drawing, begun = Ribbon._read, threading.Event(), threading.Event()

    def slowly(ribbon, step):
        drawing.set()
        begun.wait(0.5)  # the next run begins in the middle of this picture, where it can
        return read(ribbon, step)

    monkeypatch.setattr(Ribbon, "_read", slowly)
    open_lab.step()
    assert drawing.wait(10)
    open_lab.controls.prompt.value = "xyz"
    start = Ribbon.start
    monkeypatch.setattr(Ribbon, "start", lambda *args: (start(*args), begun.set()))
    open_lab.step()
    session = open_lab.wait()
    assert len(open_lab.ribbon.pieces) == len(session.outputs[0]) == len(open_lab.ribbon.ms)


def test_rules_change_between_steps_and_sampling_with_the_next_run(open_lab):
    open_lab.step(2)
    first = open_lab.wait()
    open_lab.desk.rule.menu.value = next(n for n in open_lab.desk.rule.options if n.startswith("Greedy"))
    open_lab.step()
    assert open_lab.wait() is first
    assert [s.rule for s in first.trace.steps] == ["Rejection", "Rejection", "Greedy"]
    open_lab.engine.rule = Typical(0.3)
    open_lab.desk.forms["sampling"].box.children[0].value = "0.5"
    assert open_lab.engine.sampling.temperature == 0.5
    open_lab.step()
    second = open_lab.wait()
    assert second is not first and second.entries[0].sampling.temperature == 0.5
    assert open_lab.desk.rule.menu.value == "Typical (lossy)" and second.trace.steps[0].rule == "Typical"
    open_lab.engine.stopping = replace(open_lab.engine.stopping, max_new_tokens=3)
    open_lab.run()
    assert len(open_lab.wait().outputs[0]) == 3


def test_another_target_brings_its_own_drafters(open_lab):
    open_lab.desk.drafter.menu.value = "early exit, tree"
    open_lab.step()
    open_lab.wait()
    old, exits = open_lab.engine.target, open_lab.engine.drafter
    open_lab.target = replace(loaded(), name="other")
    assert open_lab.engine.target is not old and open_lab.target == "other" and not open_lab.trace.steps
    assert open_lab.desk.drafter.menu.value == "early exit, tree" and open_lab.engine.drafter is not exits
    open_lab.run()
    assert open_lab.wait().reasons == ["length"]
    menu = open_lab.controls.target
    assert menu.value == "other" and menu.options == ("tiny", "other") and menu.layout.display == ""
    menu.value = "tiny"
    assert open_lab.target == "tiny" and not open_lab.trace.steps


def test_a_target_that_cannot_be_loaded_leaves_the_one_in_use():
    made = lab(targets=["no/such model"])
    made.controls.target.value = "no/such model"
    assert made.controls.target.value == "tiny" == made.target and "specdec-error" in made.controls.status.value
    made.run()
    assert made.wait().reasons == ["length"]
    made.close()


def test_what_if_asks_about_the_shown_step(open_lab):
    with pytest.raises(ValueError, match="make one first"):
        open_lab.what_if()
    open_lab.step()
    open_lab.wait()
    with pytest.raises(ValueError, match="without evidence"):
        open_lab.what_if()
    made = lab(evidence=16, drafter="early exit, tree")
    made.step(2)
    made.wait()
    left = [dict(card).get("left for a correction") for card in (n["card"] for n in made.tree.whole["nodes"])]
    record = made.trace.steps[-1].rows[0]
    refused = {p for p, o in zip(record.parent, record.outcome, strict=True) if o == 2}
    assert refused and {i for i, text in enumerate(left) if text} == refused
    panel = made.what_if()
    panel.settle()
    assert "<svg" in panel.html
    panel.close()
    made.close()


class Fails:
    def propose(self, context):
        raise RuntimeError("a <b>drafter</b> in the making")


def test_an_error_is_shown_in_red_and_leaves_the_lab_usable(open_lab):
    open_lab.engine.drafter = Fails()
    with pytest.raises(RuntimeError):
        open_lab.run().wait()
    open_lab.screen.settle()
    assert "specdec-error" in open_lab.controls.status.value and "&lt;b&gt;" in open_lab.controls.status.value
    open_lab.engine.drafter = Nothing()
    open_lab.run()
    assert open_lab.wait().reasons == ["length"]


def test_rows_are_chosen_and_rewind_is_shown():
    made = lab(prompts=["abcabc", "xyxyxy"], drafter=Nothing())
    made.run()
    session = made.wait()
    made.row = 1
    made.screen.settle()
    assert "".join(p[0] for p in made.ribbon.pieces) == session.texts[1] and made.text == session.texts[1]
    made.controls.prompt.value = "zzz"
    made.row = 0
    assert made.controls.prompt.value == "abcabc"
    made.rewind(3)
    made.wait()
    assert made.controls.timeline.steps == len(made.trace.steps) == 21 == made.controls.timeline.tokens.count(1)
    made.run()
    assert made.wait() is not session and made.prompts == ("abcabc", "zzz")
    made.close()


def test_a_lab_leaves_no_thread_behind():
    made = lab()
    made.run()
    made.wait()
    made.close()
    made.close()
    assert not [t for t in threading.enumerate() if t.name in ("specdec-live", "specdec-painter")]


def test_the_static_page_shows_tree_and_text(open_lab):
    open_lab.run()
    session = open_lab.wait()
    page = open_lab.snapshot().data
    assert "<svg" in page and "tokens in" in page and "<script" not in page
    assert open_lab._repr_mimebundle_()["text/html"] == page
    assert re.sub(r"<[^>]+>", "", ribbon_html(open_lab.ribbon.pieces)).count("�") == session.texts[0].count("�")


def test_looking_changes_no_token():
    """The same run with a lab that draws after every step, and with nobody looking."""
    plain = (
        Engine(lm(0), NGram(shortest=1), stopping=Stopping(40), sampling=Sampling(1.0, seed=4))
        .generate(PROMPTS)
        .outputs
    )
    engine = Engine(lm(0), NGram(shortest=1), stopping=Stopping(40), sampling=Sampling(1.0, seed=4), top=5)
    session, view = engine.start(PROMPTS), TreeView(decode)
    session.trace.watch(lambda records: [view.show(r.rows[0], r.step) for r in records], every=0)
    for _ in engine.run(session):
        pass
    assert session.outputs == plain and view.scene and greedy()


def test_the_painter_draws_the_last_and_survives_errors(capsys):
    drawn: list[int] = []
    state = {"n": 0}

    def paint() -> None:
        drawn.append(state["n"])
        if state["n"] % 2:
            raise ValueError("a picture in the making")

    painter = Painter(paint, every=0.01)
    for n in range(1, 200):
        state["n"] = n
        painter.poke()
    assert painter.settle() and drawn[-1] == 199 and len(drawn) < 199
    painter.close()
    assert capsys.readouterr().err.count("a picture in the making") == 1


def test_dear_pictures_come_seldom_and_a_hurried_one_at_once():
    drawn: list[float] = []
    painter = Painter(lambda: drawn.append(time.monotonic()), every=0.01, share=0.1, elsewhere=lambda: 10.0)
    painter.hurry()
    assert painter.settle() and len(drawn) == 1
    painter.poke()
    assert not painter.settle(0.3) and len(drawn) == 1  # a picture of 10 s is followed by a long rest
    painter.hurry()
    assert painter.settle(2.0) and len(drawn) == 2
    painter.poke()
    began = time.monotonic()
    painter.close()  # does not wait for the rest to end
    assert time.monotonic() - began < 2.0

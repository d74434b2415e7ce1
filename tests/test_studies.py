"""The drawers of a Lab: what they ask, keep and hand on, and that closed they cost nothing."""

from __future__ import annotations

import json

import ipywidgets as w
import pytest
from tiny import loaded

from toolkit.drafting import NGram
from toolkit.trace import load
from toolkit.widgets import Lab, Replay
from toolkit.widgets.contest import Contest
from toolkit.widgets.drawers import Drawers
from toolkit.widgets.share import Share


@pytest.fixture
def open_lab():
    made = Lab(loaded(), prompt="abcabcabc", max_new_tokens=24, dtype="float32", drafter="early exit, tree")
    yield made
    made.close()


def test_a_closed_drawer_makes_nothing_and_an_open_one_once():
    made, errors = [], []

    def maker():
        made.append(1)
        if len(made) == 1:
            raise ValueError("not yet")
        return w.HTML("here")

    drawers = Drawers({"A": maker, "B": w.HTML}, errors.append)
    assert drawers.open == "" and not made
    drawers.open = "A"
    assert str(errors[0]) == "not yet" and not drawers.widget.children[0].children
    for title in ("", "A", "B", "A"):
        drawers.open = title
    assert len(made) == 2 and drawers.widget.children[0].children[0].value == "here"


def test_evidence_is_chosen_in_the_menu_and_by_code(open_lab):
    menu = open_lab.controls.evidence
    assert [text for text, _ in menu.options] in (["off", "all"], ["off", "64 likeliest", "all"])  # V may be 64
    open_lab.step()
    open_lab.wait()
    menu.value = open_lab.engine.target.vocab
    open_lab.step()
    open_lab.wait()
    first, second = (s.rows[0].evidence for s in open_lab.trace.steps)
    assert first is None and second is not None and open_lab.engine.evidence == open_lab.engine.target.vocab
    open_lab.engine.evidence = 3
    open_lab.step()
    open_lab.wait()
    assert menu.value == 3 and ("3 likeliest", 3) in menu.options
    menu.value = 0
    assert open_lab.engine.evidence == 0


def test_what_if_follows_the_shown_step_and_says_what_it_lacks(open_lab):
    studies = open_lab.studies
    open_lab.step()
    open_lab.wait()
    assert studies.panel is None, "closed, it is not made"
    studies.drawers.open = "What if"
    studies.panel.settle()
    assert "specdec-error" in studies.panel.notes.value and "evidence" in studies.panel.notes.value
    open_lab.engine.evidence = 16
    open_lab.step(2)
    open_lab.wait()
    studies.panel.settle()
    assert studies.panel.found and studies.panel.before.scene["step"] == 2
    open_lab.step_shown = 1
    open_lab.screen.settle()
    studies.panel.settle()
    assert studies.panel.before.scene["step"] == 1
    studies.drawers.open = ""
    open_lab.step_shown = 2
    open_lab.screen.settle()
    assert studies.panel.before.scene["step"] == 1, "a closed drawer works nothing out"
    studies.drawers.open = "What if"
    studies.panel.settle()
    assert studies.panel.before.scene["step"] == 2


def test_comparing_pauses_the_run_and_holds_it_off(open_lab):
    open_lab.controls.delay.value = 0.05
    open_lab.run()
    view = open_lab.compare(
        drafters={"mine": NGram(length=3), "ngram": NGram()}, prompts=["abc"] * 3, max_new_tokens=16
    )
    assert open_lab.live.state == "paused"
    with pytest.raises(ValueError, match="a comparison is running"):
        open_lab.run()
    with pytest.raises(ValueError, match="running already"):
        open_lab.compare()
    found = view.wait()
    assert list(found.arms) == ["plain", "mine", "ngram"] and len(found.answers) == 9
    assert all(row.same == 3 for row in found.rows())
    open_lab.run()
    assert open_lab.wait().reasons == ["length"]
    with pytest.raises(ValueError, match="unknown drafter 'magic'"):
        open_lab.compare(drafters=["magic"])


def test_the_drawer_compares_what_is_ticked_and_stop_keeps_what_there_is(open_lab):
    open_lab.studies.drawers.open = "Compare"
    contest = open_lab.studies.contest
    assert (
        contest.prompts.value == "abcabcabc" and contest.boxes["early exit, tree"].value and "none" not in contest.boxes
    )
    contest.boxes["early exit, tree"].value = False
    contest.button.click()
    assert "choose at least one drafter" in contest.said.value
    contest.boxes["ngram"].value = True
    contest.prompts.value, contest.tokens.value = "abc\n\n" + "xyz\n" * 40, 32
    contest.button.click()
    view = contest.view
    assert contest.said.value == "" and view.compared.whole == 2 * 41
    view.stop()
    view.wait()
    assert 0 < len(view.compared.answers) < 82 and "stopped" in view._said.value

    class Mine(NGram):
        pass

    open_lab.engine.drafter = Mine()
    open_lab.step()
    open_lab.wait()
    assert "Mine" in contest.boxes and contest.boxes["ngram"].value, "what was ticked stays so"


def test_a_contest_begins_with_what_exists():
    contest = Contest(["none", "a"], "none", ["two\nlines"], 8, lambda *_: pytest.fail("nobody asked"))
    assert list(contest.boxes) == ["a"] and contest.prompts.value == "two lines" and contest.view is None


def test_sharing_writes_and_says_so(open_lab, tmp_path):
    open_lab.studies.drawers.open = "Share"
    share = open_lab.studies.share
    share.trace.value, share.page.value = str(tmp_path / "run.jsonl"), str(tmp_path / "<b>.html")
    share.export.click()
    assert "no step to show" in share.said.value
    open_lab.run()
    open_lab.wait()
    share.save.click()
    assert "Wrote <b>" in share.said.value and "run.jsonl" in share.said.value
    assert len(load(tmp_path / "run.jsonl").steps) == len(open_lab.trace.steps)
    assert json.loads((tmp_path / "run.jsonl").read_text().splitlines()[0])
    share.export.click()
    assert "&lt;b&gt;.html" in share.said.value and (tmp_path / "<b>.html").stat().st_size > 10_000
    replay = Replay(tmp_path / "run.jsonl")
    assert replay.step_shown == len(open_lab.trace.steps) - 1
    replay.close()


def test_a_name_that_cannot_be_written_is_told():
    share = Share(lambda name: None, lambda name: None)
    share.trace.value = " "
    share.save.click()
    assert "has no name" in share.said.value

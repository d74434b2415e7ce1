"""Comparisons: right figures from known answers, partial ones that are kept, and a view that leaves nothing behind."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
import torch
from tiny import loaded, reference

from toolkit.bench import Compared, compare
from toolkit.bench.compare import HF, PLAIN, plan, sign_test
from toolkit.bench.suite import Answer, Question
from toolkit.drafting import NGram
from toolkit.engine import Engine
from toolkit.engine.parts import menu
from toolkit.models.hf import HFModel
from toolkit.sampling import Sampling, Stopping
from toolkit.widgets.compare import CompareView, table_html

PROMPTS = [("loop", "abcabcabc"), ("loop", "xyxyxy"), ("talk", "hello <b>you</b>")]


def known() -> Compared:
    asked = [Question(i, "qa" if i < 2 else "math", f"q{i}") for i in range(3)]
    answers = [
        Answer(0, "qa", PLAIN, 10, 10, 1.0, (1,) * 10),
        Answer(0, "qa", "mine", 10, 5, 0.5, (1,) * 10),
        Answer(1, "qa", PLAIN, 20, 20, 1.0, (2,) * 20),
        Answer(1, "qa", "mine", 20, 5, 0.25, (2,) * 19 + (3,)),
        Answer(2, "math", PLAIN, 10, 10, 1.0, (1,) * 10),
        Answer(2, "math", "mine", 10, 10, 2.0, (1,) * 10),
    ]
    return Compared({PLAIN: lambda t: ((), 0), "mine": lambda t: ((), 0)}, asked, "about", answers)


def test_rows_are_what_one_would_reckon_by_hand():
    rows = {(r.arm, r.task): r for r in known().rows()}
    mine = rows["mine", "all"]
    assert mine.acceptance_length == 40 / 20 and mine.ms_per_step == pytest.approx(2750 / 20)
    assert mine.tokens_per_second == pytest.approx(40 / 2.75)
    assert (mine.speedup, mine.low, mine.high) == pytest.approx((2.0, 1.25, 3.0))  # of 2, 4 and 0.5
    assert mine.same == 2 and mine.prompts == 3 and mine.p_value == 1.0
    assert rows["mine", "qa"].speedup == pytest.approx(3.0) and rows["mine", "math"].speedup == pytest.approx(0.5)
    assert rows[PLAIN, "all"].speedup is None and rows[PLAIN, "all"].acceptance_length == 1.0
    assert sign_test(5, 5) == sign_test(0, 5) == 2 / 32 and sign_test(1, 4) == 10 / 16


def test_a_frame_has_a_line_a_row(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)  # not installed
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(DataFrame=dict))
    frame = known().frame()
    assert frame["arm"][:2] == [PLAIN, "mine"] and {len(column) for column in frame.values()} == {6}
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        known().frame()


def test_arms_answer_beside_plain_decoding_and_hugging_face():
    tiny = loaded()
    own = Engine(HFModel(tiny.model), NGram(), stopping=Stopping(12), sampling=Sampling(0), decode=tiny.decode)
    seen = []
    arms = {"ngram": NGram(shortest=1), "engine": own, "function": lambda text: ([1, 2], 1)}
    found = compare(
        arms, PROMPTS, target=tiny, hf=True, max_new_tokens=12, report=lambda c: seen.append(len(c.answers))
    )
    assert seen == list(range(1, 16)) and len(found.answers) == found.whole == 15 and not found.interrupted
    rows = {(r.arm, r.task): r for r in found.rows()}
    assert rows["ngram", "all"].same == rows["engine", "all"].same == rows[HF, "all"].same == 3
    assert rows["function", "all"].same == 0 and rows["function", "loop"].acceptance_length == 2.0
    assert rows[HF, "all"].ms_per_step is None and rows[PLAIN, "talk"].acceptance_length == 1.0


def test_an_interrupt_keeps_what_is_there_and_a_log_goes_on(tmp_path):
    calls = []

    def fragile(text: str):
        calls.append(text)
        if len(calls) == 4:  # one to warm up
            raise KeyboardInterrupt
        return [1, 2, 3], 1

    log = tmp_path / "log.jsonl"
    found = compare({"mine": fragile}, PROMPTS, target=loaded(), max_new_tokens=4, log=log)
    assert found.interrupted and 2 <= len([a for a in found.answers if a.arm == "mine"]) < 3
    again = compare({"mine": fragile}, PROMPTS, target=loaded(), max_new_tokens=4, log=log)
    assert not again.interrupted and len(again.answers) == again.whole == 6
    assert len(calls) == 4 + 1 + 1, "only what was lacking was asked for, after a warm-up"
    with pytest.raises(ValueError, match="other questions or options"):
        compare({"mine": fragile}, PROMPTS, target=loaded(), max_new_tokens=5, log=log)
    with pytest.raises(ValueError, match="other questions or options"):
        compare({"mine": fragile}, ["another prompt"], target=loaded(), max_new_tokens=4, log=log)


def test_a_log_knows_its_drafters(tmp_path):
    log = tmp_path / "log.jsonl"
    compare({"ngram": NGram(length=3)}, PROMPTS, target=loaded(), max_new_tokens=4, log=log)
    assert len(compare({"ngram": NGram(length=3)}, PROMPTS, target=loaded(), max_new_tokens=4, log=log).answers) == 6
    with pytest.raises(ValueError, match="other questions or options"):
        compare({"ngram": NGram(length=4)}, PROMPTS, target=loaded(), max_new_tokens=4, log=log)


@pytest.mark.parametrize(
    ("arms", "prompts", "options", "says"),
    [
        ({}, ["a"], {}, "nothing to compare"),
        ({PLAIN: NGram()}, ["a"], {}, "name 'plain'"),
        ({"n": NGram()}, [], {}, "no prompt"),
        ({"n": NGram()}, ["a", " "], {}, "prompt 1 is empty"),
        ({"n": NGram()}, "a text", {}, "a single text"),
        ({"n": NGram()}, ["a"], {"max_new_tokens": 0}, "max_new_tokens"),
        ({"n": NGram()}, ["a"], {"hf": True, "sampling": Sampling(1.0)}, "greedy generation"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_a_model_is_loaded(arms, prompts, options, says):
    with pytest.raises(ValueError, match=says):
        compare(arms, prompts, target="no such model", **options)


def test_drafters_that_read_through_the_targets_cache_are_compared_on_it():
    tiny = loaded()
    exits = menu(HFModel(tiny.model))["early exit, tree"]
    found = compare({"exits": exits, "ngram": NGram()}, PROMPTS, target=tiny, max_new_tokens=8)
    assert all(row.same == 3 for row in found.rows() if row.task == "all")
    with pytest.raises(ValueError, match="another model"):
        plan({"exits": exits}, PROMPTS, target=loaded(seed=1))


def test_an_odd_arm_is_refused():
    with pytest.raises(ValueError, match="'odd' is a int"):
        plan({"odd": 3}, ["a"], target=loaded())


def test_the_view_runs_stops_and_goes_on():
    gate, entered = threading.Event(), threading.Event()

    def slow(text: str):
        entered.set()
        gate.wait(20)
        return [1], 1

    view = CompareView(plan({"mine": slow}, PROMPTS, target=loaded(), max_new_tokens=4))
    assert entered.wait(20)
    with pytest.raises(RuntimeError, match="running already"):
        view.start()
    view.stop()
    gate.set()
    stopped = view.wait()
    assert stopped.interrupted and len(stopped.answers) == 1, "the one that was being given, after the warm-up"
    assert "1 of 6 answers, stopped" in view._said.value and "plain" in view._repr_mimebundle_()["text/html"]
    view.start()
    whole = view.wait()
    assert len(whole.answers) == whole.whole == len({(a.number, a.arm) for a in whole.answers})
    assert len(view._figure.data[0].x) == 3
    view.close()
    assert not [t for t in threading.enumerate() if t.name == "specdec-compare"]


def test_the_view_says_what_went_wrong():
    def broken(text: str):
        raise RuntimeError("an <i>arm</i> in the making")

    view = CompareView(plan({"mine": broken}, PROMPTS, target=loaded(), max_new_tokens=4))
    with pytest.raises(RuntimeError, match="in the making"):
        view.wait()
    assert "&lt;i&gt;" in view._said.value
    view.error = None
    view.close()


def test_the_table_is_text_and_can_be_followed():
    rows = known().rows()
    page = table_html(rows, "<script>")
    assert "<script>" not in page and page.count('scope="row"') == len(rows) and 'scope="col">speedup' in page


def test_where_an_arm_parts_and_by_how_much():
    """A fault has a logit gap that rounding cannot explain; a token as likely as the right one has none."""
    model = loaded()

    def wrong(text):
        right = reference(model.model, model.tokenizer(text)["input_ids"], 12)
        return [*right[:5], (right[5] + 1) % 256, *right[6:]], 0

    found = compare({"wrong": wrong, "ngram": NGram()}, PROMPTS[:1], target=model, max_new_tokens=12)
    assert found.divergences("ngram") == {}
    parted = found.divergences("wrong")[0]
    with torch.inference_mode():
        right = found.pairs("wrong")[0][0].output
        ids = torch.tensor([[*model.tokenizer(PROMPTS[0][1])["input_ids"], *right[:5]]])
        logits = model.model(input_ids=ids).logits[0, -1]
    assert parted.at == 5 and parted.tokens == (right[5], (right[5] + 1) % 256)
    assert parted.gap == pytest.approx(float(logits.max() - logits[parted.tokens[1]])) and parted.gap > 0
    with pytest.raises(ValueError, match="there is no arm 'x'"):
        found.divergences("x")
    sampled = plan({"ngram": NGram()}, PROMPTS[:1], target=model, sampling=Sampling(1.0))
    with pytest.raises(ValueError, match="sampled answers need not be alike"):
        sampled.divergences("ngram")


def test_a_comparison_in_a_terminal_is_a_table(capsys):
    view = CompareView(known(), start=False)
    view._ipython_display_()
    said = capsys.readouterr().out
    assert said.rstrip() == str(view).rstrip() and "CompareView(6 of 6 answers)" in said
    line = next(x for x in said.splitlines() if "mine" in x and "all" in x)
    assert line.split() == ["all", "mine", "2.00", "137.5", "14.5", "2.00", "2/3"]
    assert "<" not in said and "VBox" not in said
    view.close()

"""Text and time as widgets without a browser: what they hold, what they send, what they take back."""

from __future__ import annotations

import pytest
import traitlets

from toolkit.trace import RowRecord, StepRecord
from toolkit.widgets import Ribbon, Timeline


def decode(ids) -> str:
    """Bytes, as byte-level tokenizers have them: a token may end inside a character."""
    return bytes(ids).decode("utf-8", errors="replace")


def step(i: int, text: bytes, guesses: int = 0) -> StepRecord:
    """All but the last token accepted from a chain, 12 ms."""
    n = max(len(text), guesses + 1)
    none = (0.0,) * n
    chain = RowRecord(
        0, tuple(range(n)), (-1, *range(n - 1)), len(text) - 1, text[-1], tuple(text), (0,) * n, *(none,) * 4
    )
    return StepRecord(i, (chain, None), "d", "r", n, {"draft": 4.0, "target": 8.0})


STEPS = [step(0, b"ab"), step(1, b"c"), step(2, "🙂".encode()), step(3, b"xyz")]


@pytest.fixture
def ribbon(monkeypatch):
    made = Ribbon(decode)
    made.sent = []
    monkeypatch.setattr(made, "send", lambda content, buffers=None: made.sent.append(content))
    made.start("say: ")
    return made


def test_every_piece_knows_what_its_text_waited_for(ribbon):
    ribbon.update(STEPS[:2])
    ribbon.update(STEPS)
    assert ribbon.ms == [6.0, 6.0, 12.0, *[3.0] * 4, *[4.0] * 3]
    assert [(m["from"], m["ms"]) for m in ribbon.sent] == [(0, [6.0, 6.0, 12.0]), (3, [*[3.0] * 4, *[4.0] * 3])]
    assert len(ribbon.get_state()["ms"]) == len(ribbon.pieces), "a page that opens late has them too"


def test_half_a_character_is_never_shown(ribbon):
    ribbon.update(STEPS)
    assert [p[0] for p in ribbon.pieces[3:7]] == ["", "", "", "🙂"]
    assert "\ufffd" not in ribbon.html


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_a_rewind_takes_back_and_what_replaces_it_is_added(ribbon, keep):
    ribbon.update(STEPS)
    ribbon.sent.clear()
    other = [*STEPS[:keep], step(keep, b"new")]
    ribbon.update(other)
    straight = Ribbon(decode)
    straight.start("say: ")
    straight.update(other)
    assert ribbon.pieces == straight.pieces and ribbon.ms == straight.ms
    held = sum(len(s.rows[0].emitted) for s in STEPS[:keep])
    assert [(m["kind"], m.get("to", m.get("from"))) for m in ribbon.sent] == [("cut", held), ("add", held)]


def test_choosing_the_same_step_twice_is_told_twice(ribbon):
    told = []
    ribbon.observe(lambda change: told.append(change["new"]), "clicked")
    ribbon.clicked = 3
    ribbon._on_message(ribbon, {"kind": "again"}, [])
    assert [n for n in told if n >= 0] == [3, 3]


def test_the_timeline_sends_only_what_is_new_and_its_state_holds_all(monkeypatch):
    timeline, sent = Timeline(), []
    monkeypatch.setattr(timeline, "send", lambda content, buffers=None: sent.append(content))
    timeline.update(STEPS[:2])
    timeline.update(STEPS)
    timeline.update(STEPS)
    assert sent == [{"kind": "add", "from": 0, "tokens": [2, 1]}, {"kind": "add", "from": 2, "tokens": [4, 3]}]
    state = timeline.get_state()
    assert state["tokens"] == [2, 1, 4, 3] and state["steps"] == 4 and state["shown"] == -1
    timeline.update([*STEPS[:1], step(1, b"wxyz")])
    assert timeline.tokens == [2, 4] == timeline.get_state()["tokens"] and sent[-1] == {
        "kind": "add",
        "from": 1,
        "tokens": [4],
    }
    timeline.update(STEPS, row=1)
    assert timeline.tokens == [0] * 4, "a row that had ended emits nothing"


def test_a_step_that_is_gone_is_the_newest():
    timeline = Timeline()
    timeline.update(STEPS)
    timeline.shown = 3
    timeline.update(STEPS[:3])
    assert timeline.shown == -1 and timeline.steps == 3
    timeline.shown = 99  # as from a page that has not heard of the rewind
    assert timeline.shown == -1
    timeline.shown = 2
    assert timeline.shown == 2
    with pytest.raises((ValueError, traitlets.TraitError), match="there is no step -2"):
        timeline.shown = -2


def test_a_new_text_tells_pages_to_forget_the_old_one(monkeypatch):
    """A page's list grows by messages: its state stayed empty, and an empty state is no change to it."""
    ribbon, sent = Ribbon(decode), []
    monkeypatch.setattr(ribbon, "send", lambda content, buffers=None: sent.append(content))
    ribbon.start("one")
    assert sent == []
    ribbon.update(STEPS[:2])
    ribbon.start("two")
    assert sent[-1] == {"kind": "cut", "to": 0} and ribbon.pieces == []

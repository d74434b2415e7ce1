import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import PROMPTS, Knows, Parrot, Scripted, greedy, lm, loaded, reference, tiny, tokenizer

from toolkit.drafting import DraftModel, NGram, Nothing
from toolkit.engine import Engine
from toolkit.sampling import Stopping
from toolkit.sampling.stopping import Judge
from toolkit.sampling.text import TextStream

DECODE = loaded().decode
TEXTS = ["héllo wörld", "🙂👩‍👩‍👧 ok 日本語", "a\n\n\tb  c", "no", "٣ עברית ‮ x"]


@given(st.sampled_from(TEXTS), st.lists(st.integers(1, 4), max_size=40))
def test_never_half_a_character_however_tokens_arrive(text, sizes):
    ids, stream, pieces = tokenizer()(text)["input_ids"], TextStream(DECODE), []
    for size in [*sizes, *[1] * len(ids)]:
        if ids[:size]:
            pieces.append(stream.push(ids[:size]))
        ids = ids[size:]
    assert all("�" not in p for p in pieces)
    assert "".join(pieces) == stream.text == text


@given(st.integers(0, 30))
def test_rewinding_text_is_like_never_having_gone_on(count):
    ids = tokenizer()(TEXTS[1])["input_ids"]
    went, never = TextStream(DECODE), TextStream(DECODE)
    went.push(ids)
    went.rewind(count)
    for token in ids[:count]:
        never.push([token])
    assert went.text == never.text
    went.push(ids[count:])
    assert went.text == TEXTS[1]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=20), st.sampled_from(["ok", "k 日", "🙂", "👧 o", "語"]))
def test_a_stop_string_ends_at_the_same_token_however_runs_are_cut(sizes, stop):
    ids = tokenizer()(TEXTS[1])["input_ids"]
    judge, taken, rest = Judge(Stopping(99, strings=(stop,)), 99, DECODE), 0, list(ids)
    for size in [*sizes, *[1] * len(ids)]:
        if judge.reason is None and rest:
            taken += judge.take(rest[:size])
            rest = rest[size:]
    assert judge.reason == "stop_string"
    assert judge.text == TEXTS[1].partition(stop)[0]
    assert stop in DECODE(ids[:taken]) and stop not in DECODE(ids[: taken - 1])


def test_the_first_of_several_stop_strings_counts():
    judge = Judge(Stopping(99, strings=("cd", "bcd")), 99, DECODE)
    judge.take(tokenizer()("abcdef")["input_ids"])
    assert judge.text == "a"


def test_stop_strings_need_a_decoder_and_text():
    with pytest.raises(ValueError, match="tokenizer"):
        Judge(Stopping(5, strings=("x",)), 9)
    with pytest.raises(ValueError, match="empty"):
        Stopping(5, strings=("",))
    for bad in (0, -1, 1.5):
        with pytest.raises(ValueError, match=f"max_new_tokens .*{bad}"):
            Stopping(bad)


STARTS = [len(p) for p in PROMPTS]


def all_drafters():
    return {
        "nothing": Nothing(),
        "ngram": NGram(shortest=1),
        "knows": Knows(greedy(), STARTS, 8),
        "itself": DraftModel(lm(0)),
        "parrot": Parrot(),
    }


@pytest.mark.parametrize("name", all_drafters())
@pytest.mark.parametrize("place", range(0, 20, 3))
def test_a_stop_token_ends_inside_an_accepted_run(name, place):
    """Whatever stands at `place` of the greedy text is declared the end: nothing after its first occurrence."""
    for prompt, answer in zip(PROMPTS, greedy(), strict=True):
        end = answer[place]
        drafter = Knows([answer], [len(prompt)], 8) if name == "knows" else all_drafters()[name]
        session = Engine(lm(0), drafter, stopping=Stopping(40, (end,))).generate([prompt])
        want = reference(tiny(0), prompt, 40, end)
        assert session.outputs[0] == want == answer[: answer.index(end) + 1]
        assert session.reasons == ["stop_token"]
        assert sum(len(r.emitted) for s in session.trace.steps if (r := s.rows[0])) == len(want)


@pytest.mark.parametrize("length", range(1, 9))
def test_never_more_than_max_new_tokens(length):
    for cap in range(1, 11):
        session = Engine(lm(0), Knows(greedy(), STARTS, length), stopping=Stopping(cap)).generate(PROMPTS)
        assert session.outputs == [a[:cap] for a in greedy()]
        assert session.reasons == ["length"] * 4


def test_the_stop_inside_the_budget_beats_the_budget():
    answer = greedy()[0]
    place = next(i for i in range(3, 40) if answer[i] not in answer[:i])
    for cap, reason in ((place + 1, "stop_token"), (place, "length"), (place + 2, "stop_token")):
        engine = Engine(lm(0), Knows([answer], STARTS[:1], 8), stopping=Stopping(cap, (answer[place],)))
        session = engine.generate(PROMPTS[:1])
        assert session.reasons == [reason] and session.outputs[0] == answer[: min(cap, place + 1)]


def test_an_end_token_the_target_rejects_ends_nothing():
    answer = greedy()[0]
    end = next(t for t in range(64) if t not in answer)
    drafter = Scripted(lambda context, b: [[end, 1, 2]])
    session = Engine(lm(0), drafter, stopping=Stopping(40, (end,))).generate(PROMPTS[:1])
    assert session.outputs[0] == answer


@pytest.mark.parametrize("name", ["nothing", "itself", "parrot"])
def test_the_context_end_is_used_to_its_last_position_and_not_beyond(name):
    prompt = [5] * 250  # 256 positions
    want = reference(tiny(0), prompt, 6)
    session = Engine(lm(0), all_drafters()[name], stopping=Stopping(100)).generate([prompt, [1, 2]])
    assert session.outputs[0] == want and session.reasons == ["context", "length"]


def letters(ids) -> str:
    return "".join(chr(97 + i % 26) for i in ids)


@pytest.mark.parametrize("name", all_drafters())
def test_a_stop_string_ends_text_and_stream_alike_with_any_drafter(name):
    text = letters(greedy()[0])
    for at in (1, 9, 17):
        stop = text[at : at + 3]
        engine = Engine(lm(0), all_drafters()[name], decode=letters, stopping=Stopping(40, strings=(stop,)))
        session = engine.start(PROMPTS[:1])
        seen = [session.texts[0] for _ in engine.run(session)]
        assert session.texts[0] == text[: text.index(stop)] and session.reasons == ["stop_string"]
        assert letters(session.outputs[0]) == text[: text.index(stop) + 3]
        assert all(text.startswith(piece) for piece in seen)


def test_rows_may_end_for_different_reasons():
    stoppings = [Stopping(3), Stopping(40, (greedy()[1][5],)), Stopping(40), Stopping(1)]
    session = Engine(lm(0), Knows(greedy(), STARTS, 5)).start(PROMPTS, stopping=stoppings)
    for _ in Engine(lm(0), Knows(greedy(), STARTS, 5)).run(session):
        pass
    cut = greedy()[1].index(greedy()[1][5]) + 1
    assert [len(o) for o in session.outputs] == [3, cut, 40, 1]
    assert session.reasons == ["length", "stop_token", "length", "length"]
    assert torch.equal(
        torch.tensor(session.lengths),
        torch.tensor([len(p) + len(o) for p, o in zip(PROMPTS, session.outputs, strict=True)]),
    )

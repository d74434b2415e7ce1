"""Suffix decoding: what it counts, and that it changes no token."""

from __future__ import annotations

import pytest
from test_cache import context
from tiny import PROMPTS, greedy, lm

from toolkit.drafting import Nothing, Suffix
from toolkit.engine import Engine
from toolkit.sampling import Stopping
from toolkit.trace import metrics


def guesses(text: list[int], room: int = 9, **options: int) -> list[tuple[int, ...]]:
    return Suffix(**options).guesses(context([text]).row(0), room)


def test_the_more_frequent_continuation_comes_first():
    text = [1, 5, 1, 7, 1, 7, 1]
    assert guesses(text, room=1, longest=1) == [(7,), (5,)]


def test_longer_endings_get_larger_trees_and_room_is_respected():
    text = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3]
    assert guesses(text, longest=1) == [(4,), (4, 5)]
    assert max(map(len, guesses(text))) == 6
    assert max(map(len, guesses(text, room=2))) == 2
    assert guesses(text, room=0) == [] and guesses([1]) == [] and guesses([1, 2, 3]) == []


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="budget"):
        Suffix(budget=0)
    with pytest.raises(ValueError, match="memory"):
        Suffix(memory=-1)


def test_it_remembers_other_texts_if_asked_and_never_runs_from_one_into_another():
    for memory, learnt in ((0, []), (64, [(6,), (6, 7)])):
        drafter = Suffix(longest=4, memory=memory)
        drafter.propose(context([[1, 2, 5, 6, 7]]))
        tree = drafter.propose(context([[9, 9, 8, 5]])).tree  # another text, which ends as the first one went
        guessed = [tuple(tree.token[0, 1 : i + 1].tolist()) for i in range(1, tree.size)]
        assert guessed == learnt
    beside = Suffix(longest=4, memory=64).propose(context([[9, 9, 8, 5], [1, 2, 5, 6, 7]])).tree
    assert beside.token[0, 1:].tolist() == [6, 7]  # learnt from the other row


def test_what_it_remembers_has_an_end_and_changes_no_token():
    drafter = Suffix(memory=40)
    for _ in range(3):
        assert Engine(lm(), drafter, stopping=Stopping(20)).generate(PROMPTS).outputs == [g[:20] for g in greedy()]
        assert len(drafter.past) <= 40
    large = Suffix(memory=400)
    Engine(lm(), large, stopping=Stopping(20)).generate(PROMPTS)
    assert metrics.acceptance_length(Engine(lm(), large, stopping=Stopping(20)).generate(PROMPTS).trace.steps) > 3


def test_suffix_changes_no_token_also_when_swapped_in_and_out():
    engine = Engine(lm(), Suffix())
    lengths = (20, 7, 1, 13)
    session = engine.start(PROMPTS, stopping=[Stopping(n) for n in lengths])
    for step, _ in enumerate(engine.run(session)):
        engine.drafter = Nothing() if step % 3 == 0 else Suffix(longest=4)
    assert session.outputs == [g[:n] for g, n in zip(greedy(), lengths, strict=True)]
    rows = list(metrics.row_steps(session.trace.steps))
    assert any(len(r.path) > 1 for r in rows) and any(2 in r.outcome for r in rows), "this run tested nothing"

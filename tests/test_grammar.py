"""Grammars along the paths of trees."""

from __future__ import annotations

import json
import re
import sys

import pytest
import torch
from tiny import Knows, RandomTrees, lm, tokenizer

from toolkit.drafting import Chain, DraftModel, Dynamic, NGram, Nothing
from toolkit.engine import Engine
from toolkit.models import zoo
from toolkit.models.early_exit import first_layers
from toolkit.models.hf import HFModel
from toolkit.sampling import Sampling, Stopping
from toolkit.sampling.grammar import Grammars

VOCAB = 260  # more than the tokenizer has, as models often do
PROMPTS = [[65, 66, 67], [70, 71, 72, 73, 74]]
PATTERN = r"(ab|ac)[0-9]{2,6}(x|yz)!"
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "maximum": 99, "minimum": 0}, "b": {"enum": ["on", "off"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}


@pytest.fixture(scope="module")
def tok():
    pytest.importorskip("llguidance")
    made = tokenizer()
    made.add_special_tokens({"eos_token": "<end>"})
    return made


@pytest.fixture(scope="module")
def grammars(tok):
    return Grammars(tok)


def drafters(answers):
    yield Nothing()
    yield NGram(shortest=1, branches=3)
    yield DraftModel(lm(5, vocab=VOCAB), Chain(4))
    yield DraftModel(lm(0, vocab=VOCAB), Dynamic(3, 4, 9))
    yield RandomTrees(answers, [len(p) for p in PROMPTS])
    yield Knows([[*a, 1, 2, 3] for a in answers], [len(p) for p in PROMPTS], 6)  # drafts past the end of the grammar


def by_hand(prompt, grammar, end):
    """Token by token: the likeliest token that a fresh matcher allows after the whole text."""
    out: list[int] = []
    while True:
        walk = grammar.walk()
        assert walk.go(out)
        if walk.ended:
            return out
        mask = torch.zeros(VOCAB, dtype=torch.bool)
        mask[: walk.vocab] = torch.from_numpy(walk.mask())
        with torch.inference_mode():
            logits = lm(0, vocab=VOCAB).model(torch.tensor([[*prompt, *out]]), use_cache=False).logits[0, -1]
        out.append(int(logits.masked_fill(~mask, -torch.inf).argmax()))


@pytest.mark.parametrize("kind", ["regex", "json", "ebnf"])
def test_greedy_equals_token_by_token_and_is_valid(kind, grammars, tok):
    made = {
        "regex": lambda: grammars.regex(PATTERN),
        "json": lambda: grammars.json(SCHEMA),
        "ebnf": lambda: grammars.ebnf('start: "[" item ("," item)~2 "]"\nitem: "x" | "yy"'),
    }
    grammar = made[kind]()
    right = [by_hand(p, grammar, tok.eos_token_id) for p in PROMPTS]
    for drafter in drafters(right):
        engine = Engine(lm(0, vocab=VOCAB), drafter, stopping=Stopping(80), sampling=Sampling(grammar=grammar))
        session = engine.generate(PROMPTS)
        assert session.outputs == right and session.reasons == ["grammar"] * 2
    for out in right:
        text = tok.decode(out, skip_special_tokens=True)
        assert {
            "regex": lambda t: re.fullmatch(PATTERN, t),
            "json": lambda t: set(json.loads(t)) == {"a", "b"},
            "ebnf": lambda t: re.fullmatch(r"\[(x|yy)(,(x|yy)){2}\]", t),
        }[kind](text)


def test_sampled_output_is_always_valid_and_rows_without_a_grammar_are_free(grammars, tok):
    sampling = [Sampling(1.5, seed=s, grammar=grammars.regex(PATTERN) if s % 3 else None) for s in range(24)]
    for drafter in (DraftModel(lm(5, vocab=VOCAB), Chain(4)), DraftModel(lm(0, vocab=VOCAB), Dynamic(3, 4, 9))):
        engine = Engine(lm(0, vocab=VOCAB), drafter, stopping=Stopping(20))
        session = engine.generate([PROMPTS[0]] * 24, sampling=sampling)
        for s, (out, reason) in enumerate(zip(session.outputs, session.reasons, strict=True)):
            matches = bool(re.fullmatch(PATTERN, tok.decode(out, skip_special_tokens=True)))
            assert (matches, reason) == ((True, "grammar") if s % 3 else (False, "length"))


def test_the_matcher_follows_swaps_and_rewinds(grammars):
    engine = Engine(lm(0, vocab=VOCAB), stopping=Stopping(80), sampling=Sampling(grammar=grammars.json(SCHEMA)))
    first = engine.generate(PROMPTS).outputs
    session = engine.start(PROMPTS)
    for make in (Nothing(), DraftModel(lm(5, vocab=VOCAB), Chain(4)), DraftModel(lm(0, vocab=VOCAB), Dynamic(3, 4, 9))):
        engine.drafter = make
        engine.step(session)
        engine.step(session)
        session.rewind(1)
    for _ in engine.run(session):
        pass
    assert session.outputs == first
    session.rewind(2)  # back from the end of the grammar
    assert not session.done
    for _ in engine.run(session):
        pass
    assert session.outputs == first and session.reasons == ["grammar"] * 2


def test_what_cannot_be_is_one_sentence(grammars, tok, monkeypatch):
    with pytest.raises(ValueError, match="grammar is refused"):
        grammars.ebnf("start: missing")
    engine = Engine(lm(0, vocab=VOCAB), sampling=Sampling(grammar=grammars.regex("ab"), min_new_tokens=5))
    with pytest.raises(ValueError, match="end of a grammar"):
        engine.start(PROMPTS)
    engine = Engine(lm(0, vocab=VOCAB), sampling=Sampling(grammar=grammars.regex("ab"), allowed=(3,)))
    with pytest.raises(ValueError, match="leave no token"):
        engine.generate(PROMPTS)
    with pytest.raises(ValueError, match="end token"):
        Grammars(tokenizer())
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ImportError, match="pip install llguidance"):
        Grammars(tok)


@pytest.mark.slow
def test_the_default_model_fills_in_a_schema():
    pytest.importorskip("llguidance")
    model = zoo.load("smollm2", dtype="float32")
    grammar = Grammars(model.tokenizer).json(SCHEMA)
    prompt = zoo.chat(model.tokenizer, 'Answer in JSON with the keys "a" (your age) and "b" ("on" or "off").')
    target, stopping = HFModel(model.model), Stopping(60, model.stop_tokens)
    made = []
    for drafter in (Nothing(), NGram(), DraftModel(first_layers(target, 10), Dynamic(3, 3, 8))):
        session = Engine(target, drafter, stopping=stopping, sampling=Sampling(grammar=grammar)).generate([prompt])
        made.append(session.outputs[0])
    assert made[0] == made[1] == made[2]
    value = json.loads(model.tokenizer.decode(made[0], skip_special_tokens=True))
    assert set(value) == {"a", "b"} and 0 <= value["a"] <= 99 and value["b"] in ("on", "off")

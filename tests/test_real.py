"""The default model: every drafter writes what transformers' generate writes, token for token in float32."""

from __future__ import annotations

import pytest

from toolkit.drafting import Chain, DraftModel, Dynamic, EarlyExit, Fixed, NGram, Nothing, Suffix
from toolkit.engine import Engine
from toolkit.models import zoo
from toolkit.models.baseline import diverge, hf_generate
from toolkit.models.early_exit import first_layers
from toolkit.models.hf import HFModel
from toolkit.sampling import Sampling, Stopping
from toolkit.trace import metrics
from toolkit.verification import Coupled

pytestmark = pytest.mark.slow
NEW = 64
PROMPTS = [
    "Why do leaves turn red in autumn?",
    "Translate into French: The train to Lyon leaves at nine, and the train to Nice leaves at ten.",
    "Summarise in one sentence: The library opened a reading room for children. The room has low shelves, soft chairs and "
    "a small stage. Every Saturday a storyteller reads there, and every Saturday the room is full.",
    "A baker sells 12 rolls in the morning and three times as many in the afternoon. How many rolls does the baker sell?",
    "Rename the variable x to total in this code:\ndef add(values):\n    x = 0\n    for v in values:\n        x += v\n    return x",
    "Write a short poem about a lighthouse.",
    "List the planets from the sun outwards, then list them again in reverse.",
    "Context: Ada keeps bees on the roof. Her honey won a prize in May.\nQuestion: What won a prize?",
    "Repeat these words and nothing else: stone, river, stone, river, stone, river.",
    "Give three tips for sleeping well.",
]


@pytest.fixture(scope="module")
def model() -> zoo.Loaded:
    return zoo.load("smollm2", dtype="float32")


@pytest.fixture(scope="module")
def target(model) -> HFModel:
    return HFModel(model.model)


@pytest.fixture(scope="module")
def prompts(model) -> list[list[int]]:
    return [zoo.chat(model.tokenizer, p) for p in PROMPTS]


@pytest.fixture(scope="module")
def want(model, prompts) -> list[list[int]]:
    return [hf_generate(model.model, p, max_new_tokens=NEW, stop_tokens=model.stop_tokens) for p in prompts]


def drafter(name: str, target: HFModel):
    return {
        "none": lambda: Nothing(),
        "ngram": lambda: NGram(),
        "ngram branches": lambda: NGram(branches=3, length=5),
        "early exit, chain": lambda: EarlyExit(first_layers(target, 10), Chain(3)),
        "early exit, dynamic": lambda: EarlyExit(first_layers(target, 10), Dynamic(3, 3, 8)),
        "early exit, fixed": lambda: EarlyExit(first_layers(target, 10), Fixed()),
    }[name]()


@pytest.mark.parametrize(
    "name", ["none", "ngram", "ngram branches", "early exit, chain", "early exit, dynamic", "early exit, fixed"]
)
def test_greedy_output_is_the_models_own(model, target, prompts, want, name):
    engine = Engine(target, drafter(name, target), stopping=Stopping(NEW, model.stop_tokens))
    session = engine.generate(prompts)
    for prompt, got, right in zip(prompts, session.outputs, want, strict=True):
        assert got == right, diverge(model.model, prompt, right, got)
    rows = list(metrics.row_steps(session.trace.steps))
    if name != "none":
        assert any(len(r.path) > 1 for r in rows) and any(2 in r.outcome for r in rows)


def test_one_word_over_and_over_changes_nothing(model, target):
    """A drafter that copies is at its boldest here, and every verify pass is full."""
    prompt = zoo.plain(model.tokenizer, "serving " * 48)
    right = hf_generate(model.model, prompt, max_new_tokens=32, stop_tokens=model.stop_tokens)
    for drafts in (NGram(longest=5, length=4), NGram(longest=5, length=12, branches=2)):
        session = Engine(target, drafts, stopping=Stopping(32, model.stop_tokens)).generate([prompt])
        assert session.outputs[0] == right
        assert any(len(r.path) > 1 for r in metrics.row_steps(session.trace.steps))


def test_bfloat16_parts_from_generate_at_near_ties_only(prompts):
    """Half precision rounds differently for one row and for many: equality is not promised, a small gap is."""
    half = zoo.load("smollm2", dtype="bfloat16")
    engine = Engine(HFModel(half.model), NGram(), stopping=Stopping(32, half.stop_tokens))
    session = engine.generate(prompts[:4])
    for prompt, got in zip(prompts[:4], session.outputs, strict=True):
        right = hf_generate(half.model, prompt, max_new_tokens=32, stop_tokens=half.stop_tokens)
        parted = diverge(half.model, prompt, right, got)
        assert parted is None or parted.near_tie, parted


def test_sampled_text_is_a_matter_of_the_seed_and_not_of_the_batch(model, target, prompts):
    engine = Engine(target, NGram(), stopping=Stopping(24, model.stop_tokens))
    seeds = [Sampling(0.8, top_p=0.9, seed=s) for s in (1, 2, 1)]
    three = [prompts[0], prompts[0], prompts[3]]
    session = engine.start(three, sampling=seeds)
    for _ in engine.run(session):
        pass
    alone = [engine.generate([p], sampling=s).outputs[0] for p, s in zip(three, seeds, strict=True)]
    assert session.outputs == alone and alone[0] != alone[1]


@pytest.fixture(scope="module")
def plain_samples(model, target, prompts) -> list[list[int]]:
    engine = Engine(target, Nothing(), Coupled(), stopping=Stopping(24, model.stop_tokens))
    return engine.generate(prompts[:4], sampling=COUPLED).outputs


COUPLED = [Sampling(0.8, top_p=0.9, seed=s) for s in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    "name", ["ngram", "suffix", "early exit, coupled chain", "early exit, dynamic", "early exit, fixed", "whole target"]
)
def test_coupled_sampling_writes_the_plain_text_whatever_the_drafter(model, target, prompts, plain_samples, name):
    drafter = {
        "ngram": lambda: NGram(branches=2),
        "suffix": lambda: Suffix(),
        "early exit, coupled chain": lambda: EarlyExit(first_layers(target, 10), Chain(3, coupled=True)),
        "early exit, dynamic": lambda: EarlyExit(first_layers(target, 10), Dynamic(3, 3, 8)),
        "early exit, fixed": lambda: EarlyExit(first_layers(target, 10), Fixed()),
        "whole target": lambda: DraftModel(target, Chain(3, coupled=True)),
    }[name]()
    engine = Engine(target, drafter, Coupled(), stopping=Stopping(24, model.stop_tokens))
    session = engine.generate(prompts[:4], sampling=COUPLED)
    assert session.outputs == plain_samples
    rows = list(metrics.row_steps(session.trace.steps))
    if name == "whole target":  # it draws with the target's noise and so knows the answer
        assert not any(2 in r.outcome for r in rows) and metrics.acceptance_length(session.trace.steps) > 3
    elif name.startswith("early"):
        assert any(2 in r.outcome for r in rows)

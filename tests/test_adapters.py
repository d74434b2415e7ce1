"""Hugging Face's guesses in our engine, our guesses in Hugging Face's `generate`, and draft models with other tokenizers."""

from __future__ import annotations

import copy
import functools
import random

import pytest
import torch
from test_engine import pvalue
from tiny import PROMPTS, V, exact_law, greedy, lm, loaded, noisy_lm, tiny, tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast
from transformers.generation.candidate_generator import AssistedCandidateGenerator

from toolkit.drafting import Chain, DraftModel, Dynamic, Intersection, NGram, Nothing, Reencode, Sampled
from toolkit.drafting.translated import Vocabularies
from toolkit.engine import Engine
from toolkit.engine.custom_generate import custom_generate
from toolkit.models.candidates import Candidates, prompt_lookup
from toolkit.models.hf import HFModel
from toolkit.sampling import Sampling, Stopping
from toolkit.trace import metrics
from toolkit.verification import Coupled

# Hugging Face's generators.


def assisted(ids: torch.Tensor) -> AssistedCandidateGenerator:
    model = copy.deepcopy(noisy_lm().model)
    config = GenerationConfig(max_length=250, min_length=0, do_sample=False, num_assistant_tokens=4, pad_token_id=0)
    config.update(**{k: v for k, v in model.generation_config.to_dict().items() if getattr(config, k, None) is None})
    model.generation_config.update(num_assistant_tokens=4, num_assistant_tokens_schedule="heuristic", max_length=250)
    return AssistedCandidateGenerator(ids, model, config, {"attention_mask": torch.ones_like(ids)}, inputs_tensor=ids)


GENERATORS = {"prompt lookup": prompt_lookup(num_output_tokens=6), "assisted": assisted}


@pytest.mark.parametrize("name", GENERATORS)
def test_their_generators_guess_in_our_engine(name):
    drafter = Candidates(GENERATORS[name])
    session = Engine(lm(0), drafter, stopping=Stopping(40)).generate(PROMPTS)
    assert session.outputs == greedy()
    rows = list(metrics.row_steps(session.trace.steps))
    assert sum(len(r.path) - 1 for r in rows) > 10 and any(2 in r.outcome for r in rows)


@pytest.mark.parametrize("name", GENERATORS)
def test_their_generators_follow_rewinds_and_swaps(name):
    rng, engine = random.Random(1), Engine(lm(0), stopping=Stopping(40))
    session, theirs = engine.start(PROMPTS), Candidates(GENERATORS[name])
    while not session.done:
        engine.drafter = theirs if rng.random() < 0.8 else NGram(shortest=1)
        engine.step(session)
        if rng.random() < 0.2:
            session.rewind(rng.randint(1, 3))
    assert session.outputs == greedy()


def test_a_generator_that_wants_the_targets_outputs_is_refused():
    class Wants:
        requires_model_outputs = True

    with pytest.raises(ValueError, match="Wants wants the target's outputs"):
        Engine(lm(0), Candidates(lambda ids: Wants()), stopping=Stopping(4)).generate(PROMPTS)


# Our engine behind their `generate`.


def padded() -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, PROMPTS))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in PROMPTS])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in PROMPTS])
    return ids, mask


def test_generate_with_our_loop_says_what_generate_says():
    records, (ids, mask) = [], padded()
    run = custom_generate(DraftModel(noisy_lm(), Dynamic(3, 3, 8)), watch=records.append)
    out = tiny(0).generate(
        ids, attention_mask=mask, custom_generate=run, max_new_tokens=40, do_sample=False, pad_token_id=0
    )
    assert out[:, ids.shape[1] :].tolist() == greedy() and torch.equal(out[:, : ids.shape[1]], ids)
    assert metrics.acceptance_length(records) > 1.2


def test_generate_with_our_loop_obeys_processors_ends_and_streams():
    ids = torch.tensor([PROMPTS[0]])
    favourite, end = greedy()[0][0], greedy()[0][9]
    options = {
        "max_new_tokens": 30,
        "do_sample": False,
        "pad_token_id": 0,
        "repetition_penalty": 1.3,
        "bad_words_ids": [[favourite]],
    }
    plain = tiny(0).generate(ids, **options)
    assert plain.tolist() != tiny(0).generate(ids, max_new_tokens=30, do_sample=False, pad_token_id=0).tolist()
    assert (
        tiny(0).generate(ids, custom_generate=custom_generate(NGram(shortest=1)), **options).tolist() == plain.tolist()
    )

    class Streamer:
        def __init__(self) -> None:
            self.got, self.ended = [], False

        def put(self, tokens: torch.Tensor) -> None:
            self.got += tokens.flatten().tolist()

        def end(self) -> None:
            self.ended = True

    streamer = Streamer()
    out = tiny(0).generate(
        ids, custom_generate=custom_generate(NGram(shortest=1), streamer=streamer), max_new_tokens=30, do_sample=False,
        pad_token_id=0, eos_token_id=end,
    )  # fmt: skip
    assert out[0].tolist()[-1] == end and out.shape[1] <= ids.shape[1] + 10
    assert streamer.got == out[0].tolist() and streamer.ended


def test_generate_with_our_loop_draws_from_the_targets_law():
    """With their own filters, one prompt many times; and another law is seen to be another."""

    def law(k: int) -> dict:
        def probs(logits):
            kept = torch.full_like(logits, -torch.inf)
            best = (logits / 0.8).topk(k)
            return kept.scatter(0, best.indices, best.values).softmax(-1)

        return exact_law(tiny(0), PROMPTS[0], probs, 2)

    torch.manual_seed(0)
    run = custom_generate(DraftModel(noisy_lm(0, 0.1), Chain(2)))
    out = tiny(0).generate(
        torch.tensor([PROMPTS[0]]), custom_generate=run, do_sample=True, temperature=0.8, top_k=4, top_p=1.0,
        max_new_tokens=2, pad_token_id=0, num_return_sequences=1500,
    )  # fmt: skip
    found: dict[tuple[int, ...], int] = {}
    for row in out[:, -2:].tolist():
        found[tuple(row)] = found.get(tuple(row), 0) + 1
    assert pvalue(found, law(4), 1500) > 1e-4
    assert pvalue(found, law(6), 1500) < 1e-6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_beams": 2}, "num_beams"),
        ({"return_dict_in_generate": True}, "return_dict_in_generate"),
        ({"max_time": 1.0}, "MaxTimeCriteria"),
    ],
)
def test_what_our_loop_cannot_do_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        tiny(0).generate(
            torch.tensor([PROMPTS[0]]),
            custom_generate=custom_generate(Nothing()),
            max_new_tokens=4,
            pad_token_id=0,
            **options,
        )


# Other tokenizers.

ASCII = [i for t, i in tokenizer().get_vocab().items() if len(t) == 1 and t.isascii() and t.isalnum()]
SAID = Sampling(0.0, allowed=ASCII)
TEXTS = [ASCII[:9], ASCII[3:6], ASCII[20:36]]


def shuffled() -> PreTrainedTokenizerFast:
    """The bytes in another order, and one merge."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), reverse=True)
    vocab = {c: i for i, c in enumerate(alphabet)} | {"ab": 256}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[("a", "b")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


@functools.cache
def translated(noise: float = 0.0) -> HFModel:
    """The target itself in the shuffled tokenizer's ids, with noise on its LM head."""
    target = speaker()
    model = type(target)(copy.deepcopy(target.config)).eval()
    model.load_state_dict(target.state_dict())
    model.resize_token_embeddings(257)
    ours, theirs = tokenizer().get_vocab(), shuffled().get_vocab()
    both = [(theirs[t], i) for t, i in ours.items()]
    draft, old = torch.tensor([d for d, _ in both]), torch.tensor([i for _, i in both])
    torch.manual_seed(0)
    for new, was in ((model.model.embed_tokens, target.model.embed_tokens), (model.lm_head, target.lm_head)):
        new.weight.data.zero_()
        new.weight.data[draft] = was.weight.data[old]
    model.lm_head.weight.data += noise * torch.randn_like(model.lm_head.weight)
    return HFModel(model)


@functools.cache
def speaker():
    """A target that says letters and digits, so that its bytes are text."""
    model = copy.deepcopy(loaded().model)
    silent = [i for i in range(256) if i not in ASCII]
    model.lm_head.weight.data[silent] = 0
    return model


@functools.cache
def target() -> HFModel:
    return HFModel(speaker())


def drafter(name: str, noise: float = 0.0) -> object:
    parts = (translated(noise), shuffled(), tokenizer())
    if name == "reencode":
        return Reencode(*parts, length=4)
    return Intersection(*parts, target_vocab=256, shape=Dynamic(2, 3, 6) if name == "tree" else Chain(4))


@pytest.mark.parametrize("name", ["chain", "tree", "reencode"])
@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_another_tokenizer_changes_no_token_and_costs_no_guess(name, noise):
    engine = Engine(target(), drafter(name, noise), sampling=SAID, stopping=Stopping(24))
    session = engine.generate(TEXTS)
    assert session.outputs == Engine(target(), sampling=SAID, stopping=Stopping(24)).generate(TEXTS).outputs
    length = metrics.acceptance_length(session.trace.steps)
    assert length > 2 if noise == 0 else length >= 1


def test_intersection_draws_from_the_q_it_names():
    """Above temperature 0, with `Coupled` as the judge of the text and rejection's law by frequencies."""
    sampling = [Sampling(0.9, top_k=5, seed=s, allowed=ASCII) for s in (1, 2, 3)]
    plain = Engine(target(), rule=Coupled(), stopping=Stopping(16)).generate(TEXTS, sampling=sampling).outputs
    coupled = Intersection(translated(0.4), shuffled(), tokenizer(), 256, Chain(3, coupled=True))
    session = Engine(target(), coupled, Coupled(), stopping=Stopping(16)).generate(TEXTS, sampling=sampling)
    assert session.outputs == plain
    n, some = 1500, ASCII[:6]

    def probs(logits):
        kept = torch.full_like(logits, -torch.inf)
        kept[some] = logits[some]
        return kept.double().softmax(-1)

    law = exact_law(speaker(), TEXTS[0], probs, 1)
    drawn = Intersection(translated(0.4), shuffled(), tokenizer(), 256, Sampled((2,)))
    many = [Sampling(1.0, seed=s, allowed=some) for s in range(n)]
    out = Engine(target(), drawn, stopping=Stopping(2)).generate([TEXTS[0]] * n, sampling=many).outputs
    found: dict[tuple[int, ...], int] = {}
    for first, _ in out:
        found[(first,)] = found.get((first,), 0) + 1
    assert pvalue(found, law, n) > 1e-4


def test_shared_tokens_are_those_that_spell_the_same():
    both = Vocabularies.of(tokenizer(), shuffled(), target_vocab=256, draft_vocab=257)
    ours = {i: t for t, i in tokenizer().get_vocab().items()}
    theirs = {i: t for t, i in shuffled().get_vocab().items()}
    assert len(both.target) == 256
    assert all(ours[t] == theirs[d] for t, d in zip(both.target.tolist(), both.draft.tolist(), strict=True))

    class Other:
        def get_vocab(self):
            return {"zzz": 0}

    with pytest.raises(ValueError, match="share no token"):
        Vocabularies.of(tokenizer(), Other(), target_vocab=256, draft_vocab=1)


def test_a_draft_model_with_another_vocabulary_is_told_what_to_do():
    with pytest.raises(ValueError, match="Intersection or Reencode"):
        Engine(lm(0), DraftModel(lm(1, vocab=V + 2)), stopping=Stopping(4)).generate(PROMPTS)

"""Biases, penalties and constraints along the paths of trees, judged by transformers' own token-by-token decoding."""

from __future__ import annotations

import itertools

import pytest
import torch
from scipy.stats import chisquare
from tiny import PROMPTS, Knows, RandomTrees, Scripted, V, exact_law, greedy, lm, noisy_lm, tiny
from transformers import LogitsProcessorList, NoRepeatNGramLogitsProcessor, TypicalLogitsWarper

from toolkit.drafting import Chain, DraftModel, Dynamic, Fixed, NGram, Nothing
from toolkit.engine import Engine
from toolkit.sampling import BatchSampler, Sampling, Stopping
from toolkit.sampling.paths import Paths
from toolkit.tree import TokenTree
from toolkit.verification import Greedy

N = 24
STARTS = [len(p) for p in PROMPTS]
FAVOURITES = [row[0] for row in greedy()]
PAIR = tuple(greedy()[0][3:5])
SETTINGS = {
    "repetition": {"repetition_penalty": 1.7},
    "reward": {"repetition_penalty": 0.6},
    "bias": {"logit_bias": {FAVOURITES[0]: -100.0, 17: 3.5}},
    "sequence bias": {"logit_bias": {PAIR: -50.0, (greedy()[1][1], 33): 40.0, tuple(PROMPTS[2][:3]): -9.0}},
    "bad words": {"bad_words": [PAIR, (FAVOURITES[1],), tuple(greedy()[3][5:8])]},
    "no end yet": {"min_new_tokens": 9},
    "all": {
        "repetition_penalty": 1.3,
        "logit_bias": {3: 2.0, (5, 9): -4.0},
        "bad_words": [PAIR, (greedy()[2][1],)],
        "min_new_tokens": 5,
    },
}
DRAFTERS = {
    "nothing": lambda answers: Nothing(),
    "ngram": lambda answers: NGram(shortest=1, branches=3),
    "chain": lambda answers: DraftModel(noisy_lm(), Chain(4)),
    "dynamic": lambda answers: DraftModel(noisy_lm(), Dynamic(3, 4, 9)),
    "fixed": lambda answers: DraftModel(noisy_lm(), Fixed()),
    "random trees": lambda answers: RandomTrees(answers, STARTS),
    "knows": lambda answers: Knows(answers, STARTS, 6, wrong_at=4),
}
ENDS = (FAVOURITES[1], greedy()[0][2])


@torch.inference_mode()
def oracle(prompt: list[int], sampling: Sampling, ends: tuple[int, ...] = (), processors: list = ()) -> list[int]:
    """transformers' greedy `generate` with the same settings."""
    biases = [[list(k), v] for k, v in sampling.biases.items()]
    out = tiny(0).generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=N,
        do_sample=False,
        eos_token_id=list(ends) or None,
        pad_token_id=0,
        repetition_penalty=sampling.repetition_penalty,
        sequence_bias=biases or None,
        bad_words_ids=[list(w) for w in sampling.bad_words] or None,
        min_new_tokens=sampling.min_new_tokens or None,
        logits_processor=LogitsProcessorList(processors),
    )
    return out[0, len(prompt) :].tolist()


QUICK = ("nothing", "dynamic", "random trees")


@pytest.mark.parametrize("drafter", [d if d in QUICK else pytest.param(d, marks=pytest.mark.slow) for d in DRAFTERS])
@pytest.mark.parametrize("name", SETTINGS)
def test_greedy_equals_transformers_with_the_same_settings(name, drafter):
    sampling = Sampling(**SETTINGS[name])
    ends = ENDS if sampling.min_new_tokens else ()
    right = [oracle(p, sampling, ends) for p in PROMPTS]
    assert right != [oracle(p, Sampling(), ends) for p in PROMPTS], "these settings change nothing"
    engine = Engine(lm(0), DRAFTERS[drafter](right), stopping=Stopping(N, ends), sampling=sampling)
    assert engine.generate(PROMPTS).outputs == right


def test_rows_have_settings_of_their_own():
    samplings = [Sampling(**SETTINGS[n]) for n in ("repetition", "sequence bias", "bad words", "all")]
    right = [oracle(p, s) for p, s in zip(PROMPTS, samplings, strict=True)]
    for drafter in (DRAFTERS["dynamic"], DRAFTERS["random trees"]):
        session = Engine(lm(0), drafter(right), Greedy(), stopping=Stopping(N)).generate(PROMPTS, sampling=samplings)
        assert session.outputs == right


def test_a_swap_a_rewind_and_another_batch_change_nothing():
    sampling = Sampling(**SETTINGS["all"])
    right = [oracle(p, sampling) for p in PROMPTS]
    engine = Engine(lm(0), stopping=Stopping(N), sampling=sampling)
    session = engine.start(PROMPTS)
    for make in itertools.cycle(DRAFTERS.values()):
        engine.drafter = make(right)
        engine.step(session)
        if len(session.trace.steps) == 4:
            session.rewind(2)
            break
    for _ in engine.run(session):
        pass
    assert session.outputs == right


def token_by_token(prompt: list[int], score: object) -> list[int]:
    out: list[int] = []
    with torch.inference_mode():
        for _ in range(N):
            text = [*prompt, *out]
            out.append(int(score(tiny(0)(torch.tensor([text]), use_cache=False).logits[0, -1].clone(), out).argmax()))
    return out


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_presence_and_frequency_count_the_new_text_alone(drafter):
    def score(logits, out):
        for t in set(out):
            logits[t] -= 1.5 + 0.7 * out.count(t)
        return logits

    right = [token_by_token(p, score) for p in PROMPTS]
    assert right != [o[:N] for o in greedy()]
    sampling = Sampling(presence_penalty=1.5, frequency_penalty=0.7)
    engine = Engine(lm(0), DRAFTERS[drafter](right), stopping=Stopping(N), sampling=sampling)
    assert engine.generate(PROMPTS).outputs == right


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_forced_and_allowed_tokens(drafter):
    allowed = tuple(range(0, V, 2))

    def score(logits, out):
        if len(out) in (0, 5):
            return torch.eye(V)[7 + len(out)]
        return (
            logits[list(allowed)].new_full((V,), -torch.inf).index_put((torch.tensor(allowed),), logits[list(allowed)])
        )

    right = [token_by_token(p, score) for p in PROMPTS]
    sampling = Sampling(allowed=allowed, forced={0: 7, 5: 12})
    engine = Engine(lm(0), DRAFTERS[drafter](right), stopping=Stopping(N), sampling=sampling)
    assert engine.generate(PROMPTS).outputs == right


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_transformers_processors_as_they_are(drafter):
    right = [oracle(p, Sampling(), processors=[NoRepeatNGramLogitsProcessor(2)]) for p in PROMPTS]
    assert right != [o[:N] for o in greedy()]
    sampling = Sampling(processors=[NoRepeatNGramLogitsProcessor(2)])
    engine = Engine(lm(0), DRAFTERS[drafter](right), stopping=Stopping(N), sampling=sampling)
    assert engine.generate(PROMPTS).outputs == right
    assert engine.generate(PROMPTS).outputs == right, "a second run must find the processor as the first did"


def test_a_processor_sees_every_history_once_and_leaves_nothing_behind():
    seen: list[list[int]] = []

    def record(input_ids, scores):
        seen.extend(input_ids.tolist())
        input_ids.zero_()
        return scores

    def spoil(input_ids, scores):  # changes its argument and hands out another
        kept = scores.clone()
        scores.fill_(-torch.inf)
        return kept

    right, prompt = greedy()[0], PROMPTS[0]
    paths = [right[1:4], [right[1], 60, 61], [62]]
    drafter = Scripted(lambda context, b: paths if context.lengths[0] == len(prompt) + 1 else [])
    engine = Engine(lm(0), drafter, stopping=Stopping(9), sampling=Sampling(processors=[record, spoil]))
    session = engine.start([prompt])
    engine.step(session)
    seen.clear()
    engine.step(session)
    text = [*prompt, right[0]]
    nodes = [[], right[1:2], right[1:3], right[1:4], [right[1], 60], [right[1], 60, 61], [62]]
    assert sorted(seen) == sorted([*text, *n] for n in nodes)
    for _ in engine.run(session):
        pass
    assert session.outputs == [right[:9]]


def test_a_processor_that_keeps_a_state_is_refused():
    calls = itertools.count()
    with pytest.raises(ValueError, match="keeps a state"):
        Engine(lm(0), sampling=Sampling(processors=[lambda i, s: s + next(calls)])).start([[1, 2]])
    with pytest.raises(ValueError, match=r"must return scores \[1, 64\]"):
        Engine(lm(0), sampling=Sampling(processors=[lambda i, s: s[0]])).start([[1, 2]])
    engine = Engine(lm(0), sampling=Sampling(processors=[lambda i, s: s * 0 - torch.inf if i.shape[1] > 3 else s]))
    with pytest.raises(ValueError, match="forbid every token after 4 tokens"):
        engine.generate([[1, 2]])


def test_siblings_never_see_each_other():
    torch.manual_seed(0)
    settings = Sampling(
        repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.3, logit_bias={(9, 11): 5.0, (4, 9, 12): 6.0}
    )
    text = torch.tensor([[1, 2, 3, 4, 0, 0]])
    tree = TokenTree.from_paths(text[:, 3:4], [[[9, 10, 9], [11, 10], [9, 12]]])
    logits = torch.randn(1, tree.size, V, dtype=torch.float64)
    sampler = BatchSampler.of([settings], prompts=[2])
    together = sampler.at(torch.tensor([4]), text).processed(logits, tree)
    for node in range(tree.size):
        path = tree.token[0, tree.ancestors[0, node]]  # the pending token, then the guesses
        alone = torch.cat([text[0, :3], path])[None]
        bound = sampler.at(torch.tensor([alone.shape[1]]), alone)
        right = bound.processed(logits[:, node : node + 1], TokenTree.chain(alone[:, -1:]))
        torch.testing.assert_close(together[:, node], right[:, 0], rtol=0, atol=0)
    half = sampler.at(torch.tensor([4]), text).processed(logits[:, 3:], tree, 3)
    torch.testing.assert_close(half, together[:, 3:], rtol=0, atol=0)


def test_paths_of_ragged_rows_against_plain_lists():
    text = torch.tensor([[1, 2, 3, 63], [5, 63, 63, 63]])
    tree = TokenTree.from_paths(torch.tensor([[3], [5]]), [[[7, 8], [7, 1]], [[5]]])
    paths = Paths(text, torch.tensor([3, 1]), torch.tensor([1, 1]), tree)
    for b, length in enumerate((3, 1)):
        for i in range(tree.size):
            if not tree.real[b, i]:
                continue
            history = [*text[b, :length].tolist(), *tree.token[b, tree.ancestors[b, i]].tolist()[1:]]
            assert paths.tails(4)[b, i].tolist() == ([-1] * 4 + history)[-4:]
            assert paths.counts(9, prompt=True)[b, i].tolist() == [history.count(t) for t in range(9)]
            assert paths.counts(9, prompt=False)[b, i].tolist() == [history[1:].count(t) for t in range(9)]
            assert paths.fresh[b, i] == len(history) - 1


@pytest.mark.parametrize("p", [0.05, 0.3, 0.9])
def test_typical_p_keeps_what_transformers_keeps(p):
    torch.manual_seed(1)
    logits = torch.randn(5, 1, V, dtype=torch.float64) * 3
    probs = BatchSampler.of([Sampling(typical_p=p)] * 5).probs(logits, TokenTree.chain(torch.zeros(5, 1).long()))
    theirs = TypicalLogitsWarper(p)(torch.zeros(5, 1), logits[:, 0]).softmax(-1)
    torch.testing.assert_close(probs[:, 0], theirs)


@pytest.mark.parametrize("drafter", ["chain", "dynamic", "random trees"])
def test_sampled_law_of_two_tokens_with_penalties(drafter):
    prompt, rows, batches = [3, 4, 3], 500, 8
    settings = {
        "temperature": 0.7,
        "top_k": 3,
        "repetition_penalty": 1.4,
        "frequency_penalty": 1.0,
        "presence_penalty": 0.4,
    }

    def law(path):
        def probs(logits):
            said = {*prompt, *path}
            out = logits.clone()
            for t in said:
                out[t] = out[t] / 1.4 if out[t] > 0 else out[t] * 1.4
            for t in set(path):
                out[t] -= 0.4 + 1.0 * path.count(t)
            out = out / 0.7
            return out.masked_fill(out < out.topk(3).values[-1], -torch.inf).softmax(-1)

        return probs

    first = exact_law(tiny(0), prompt, law([]), 1)
    right = {
        (a, b): p * r for (a,), p in first.items() for (b,), r in exact_law(tiny(0), [*prompt, a], law([a]), 1).items()
    }
    found = dict.fromkeys(right, 0)
    a, b = max(right, key=right.get)
    for batch in range(batches):
        seeds = [Sampling(**settings, seed=batch * rows + s) for s in range(rows)]
        made = {
            "chain": DraftModel(noisy_lm(), Chain(2)),
            "dynamic": DraftModel(noisy_lm(), Dynamic(2, 2, 4)),
            "random trees": Scripted(lambda context, row: [[a, b], [b, a], [a, a]]),
        }
        session = Engine(lm(0), made[drafter], stopping=Stopping(2)).generate([prompt] * rows, sampling=seeds)
        for out in session.outputs:
            found[tuple(out)] += 1
    common = [k for k in right if right[k] * rows * batches >= 5]
    seen = [found[k] for k in common]
    expected = [right[k] for k in common]
    rest = rows * batches - sum(seen)
    if (left := 1 - sum(expected)) * rows * batches >= 5:
        seen, expected = [*seen, rest], [*expected, left]
    expected = [e * sum(seen) / sum(expected) for e in expected]
    assert chisquare(seen, expected).pvalue > 1e-4


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"typical_p": 0}, "typical_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": float("nan")}, "presence_penalty"),
        ({"frequency_penalty": float("inf")}, "frequency_penalty"),
        ({"logit_bias": {-1: 2.0}}, "logit_bias"),
        ({"logit_bias": {1: float("inf")}}, "logit_bias"),
        ({"bad_words": [()]}, "bad_words"),
        ({"bad_words": [5]}, "bad_words"),
        ({"min_new_tokens": -1}, "min_new_tokens"),
        ({"allowed": ()}, "allowed"),
        ({"allowed": (3,), "bad_words": [(3,)]}, "allowed"),
        ({"forced": {-1: 3}}, "forced"),
        ({"processors": [3]}, "not callable"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs_of": "cooked"}, "logprobs_of"),
    ],
)
def test_senseless_parameters_are_refused(bad, words):
    with pytest.raises(ValueError, match=words):
        Sampling(**bad)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"logit_bias": {64: 1.0}}, "token 64"),
        ({"min_new_tokens": 9}, "max_new_tokens 8"),
        ({"min_new_tokens": 2, "allowed": (3,)}, "stop tokens"),
        ({"logprobs": 65}, "65 alternatives"),
    ],
)
def test_parameters_that_contradict_the_request_are_refused_before_any_work(bad, words):
    with pytest.raises(ValueError, match=words):
        Engine(lm(0), sampling=Sampling(**bad), stopping=Stopping(8, (3,))).start([[1, 2]])


def test_stages_that_nobody_uses_do_not_exist():
    assert BatchSampler.of([Sampling(), Sampling(0.7, top_p=0.9)]).stages == ()
    logits = torch.randn(1, 2, V)
    assert BatchSampler.of([Sampling()]).processed(logits, TokenTree.chain(torch.zeros(1, 2).long())) is logits
    with pytest.raises(ValueError, match="committed text"):
        BatchSampler.of([Sampling(repetition_penalty=2.0)]).probs(logits, TokenTree.chain(torch.zeros(1, 2).long()))

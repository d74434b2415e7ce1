import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from test_cache import context
from tiny import PROMPTS, greedy, lm, noisy_lm, tiny

from toolkit.drafting import Chain, DraftModel, Dynamic, EarlyExit, Fixed, NGram, Nothing, Sampled
from toolkit.engine import Engine
from toolkit.models.early_exit import first_layers
from toolkit.protocols import Context
from toolkit.sampling import BatchSampler, Sampling, Stopping
from toolkit.trace import metrics

TEXTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [2, 7, 1], [8]]


def sampled(texts: list[list[int]], sampling: list[Sampling]) -> Context:
    c = context(texts)
    return Context(c.token, c.length, c.host, c.lengths, c.room, BatchSampler.of(sampling).at(c.length))


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(1, 4), st.integers(1, 4))
def test_ngram_copies_from_the_longest_latest_match(text, longest, shortest):
    if shortest > longest:
        return
    found = NGram(longest=longest, shortest=shortest, length=5).guesses(context([text]).row(0), 5)
    n, want = len(text), []
    for size in range(longest, shortest - 1, -1):
        places = [i for i in range(size, n) if text[i - size : i] == text[n - size :]]
        if places and size < n:
            want = [text[places[-1] : places[-1] + 5]]
            break
    assert found == want


def test_ngram_branches_are_different_places_and_respect_room():
    text = [1, 2, 3, 4, 1, 2, 5, 6, 1, 2]
    assert NGram(branches=3, length=3).guesses(context([text]).row(0), 9) == [[5, 6, 1], [3, 4, 1]]
    assert NGram(branches=3, length=3).guesses(context([text]).row(0), 1) == [[5], [3]]
    assert NGram().guesses(context([text]).row(0), 0) == []


def test_nothing_is_a_tree_of_one_node():
    assert Nothing().propose(context(TEXTS)).tree.token.tolist() == [[5], [1], [8]]


def brute_eagle2(model, text: list[int], width: int, depth: int, budget: int) -> set[tuple[int, ...]]:
    """EAGLE-2's tree by the book: expand the best `width` of the last level, then keep the best of all."""
    scores: dict[tuple[int, ...], float] = {}
    front = [()]
    with torch.inference_mode():
        for _ in range(depth):
            level: dict[tuple[int, ...], float] = {}
            for path in front:
                logits = model(input_ids=torch.tensor([[*text, *path]]), use_cache=False).logits[0, -1]
                best = logits.log_softmax(-1).topk(width)
                for lp, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                    level[(*path, token)] = scores.get(path, 0.0) + lp
            scores |= level
            front = sorted(level, key=lambda p: -level[p])[:width]
    return set(sorted(scores, key=lambda p: -scores[p])[:budget])


@pytest.mark.parametrize(("width", "depth", "budget"), [(1, 3, 9), (2, 3, 5), (3, 3, 8), (3, 2, 100)])
def test_dynamic_is_the_tree_of_eagle_2(width, depth, budget):
    proposal = DraftModel(lm(1, 1), Dynamic(width, depth, budget)).propose(context(TEXTS))
    tree = proposal.tree
    tree.check()
    for b, text in enumerate(TEXTS):
        paths = {tuple(tree.token[b][tree.ancestors[b, i]].tolist()[1:]) for i in range(1, tree.size)}
        assert paths == brute_eagle2(tiny(1, 1), text, width, depth, budget)
    assert proposal.draw == "certain" and proposal.q is None


def test_fixed_takes_the_ranks_it_was_given():
    choices = ((0,), (2,), (0, 1), (2, 0), (2, 0, 3))
    tree = DraftModel(lm(1, 1), Fixed(choices)).propose(context(TEXTS)).tree
    for b, text in enumerate(TEXTS):
        want = set()
        for choice in choices:
            path: list[int] = []
            for rank in choice:
                with torch.inference_mode():
                    logits = tiny(1, 1)(input_ids=torch.tensor([[*text, *path]]), use_cache=False).logits[0, -1]
                path.append(logits.topk(rank + 1).indices[-1].item())
            want.add(tuple(path))
        assert {tuple(tree.token[b][tree.ancestors[b, i]].tolist()[1:]) for i in range(1, tree.size)} == want


def test_confidence_is_the_drafters_own_probability():
    proposal = DraftModel(lm(1, 1), Dynamic(3, 2, 6)).propose(context(TEXTS))
    tree = proposal.tree
    for i in range(1, tree.size):
        path = tree.token[0][tree.ancestors[0, i]].tolist()[1:]
        with torch.inference_mode():
            probs = (
                tiny(1, 1)(input_ids=torch.tensor([[*TEXTS[0], *path[:-1]]]), use_cache=False).logits[0, -1].softmax(-1)
            )
        assert proposal.confidence[0, i].item() == pytest.approx(probs[path[-1]].item(), abs=1e-6)


def test_chains_are_really_drawn_from_their_q():
    n = 3000
    sampling = [Sampling(0.6, top_k=4, seed=s) for s in range(n)]
    proposal = DraftModel(lm(1, 1), Chain(2)).propose(sampled([TEXTS[0]] * n, sampling))
    assert proposal.draw == "independent" and proposal.tree.linear
    q = proposal.q[torch.arange(n)[:, None], proposal.source.clamp(min=0)]  # [n, nodes, V]
    for node in (1, 2):
        drawn = proposal.tree.token[:, node]
        assert (q[torch.arange(n), node, drawn] > 0).all()
    law = q[0, 1]
    support = law > 0
    counts = torch.bincount(proposal.tree.token[:, 1], minlength=64)[support].numpy()
    assert chisquare(counts, n * law[support].numpy()).pvalue > 1e-4
    flat = torch.ones_like(law[support]) / support.sum()
    assert chisquare(counts, n * flat.numpy()).pvalue < 1e-4


def test_a_draft_cache_trusts_nothing_it_did_not_read():
    """The same drafter used on one text, then on another with the same beginning, then on a shorter one."""
    drafter = DraftModel(noisy_lm(), Dynamic(3, 3, 8))
    for texts in (TEXTS, [[3, 1, 4, 2, 2], [2, 7, 1, 4], [9, 9]], [[3], [2, 7], [8, 1, 1]], TEXTS):
        used = drafter.propose(context(texts)).tree
        new = DraftModel(noisy_lm(), Dynamic(3, 3, 8)).propose(context(texts)).tree
        assert torch.equal(used.token, new.token) and torch.equal(used.parent, new.parent)
    assert drafter.propose(context(TEXTS[:2])).tree.rows == 2


@pytest.mark.parametrize("shape", [Chain(3), Dynamic(3, 3, 8), Fixed()], ids=lambda s: type(s).__name__)
def test_guesses_follow_the_requests_penalties_and_constraints(shape):
    """A drafter that is the target is right under every sampling parameter, or it guesses for another request."""
    favourite = greedy()[0][0]
    sampling = Sampling(repetition_penalty=1.7, logit_bias={favourite: -50.0}, allowed=range(40))
    engine = Engine(lm(0), DraftModel(lm(0), shape), sampling=sampling, stopping=Stopping(20))
    session = engine.generate(PROMPTS)
    assert session.outputs == Engine(lm(0), sampling=sampling, stopping=Stopping(20)).generate(PROMPTS).outputs
    assert all(favourite not in out and max(out) < 40 for out in session.outputs)
    rows = [r for r in metrics.row_steps(session.trace.steps) if not r.ended]
    deepest = [max(r.depth) for r in rows]
    assert all(len(r.path) - 1 == deep for r, deep in zip(rows, deepest, strict=True)) and max(deepest) >= 2


@pytest.mark.parametrize(
    "shape", [Chain(3), Dynamic(3, 3, 8), Fixed(), Sampled((2, 2))], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_an_early_exit_through_the_targets_cache_guesses_what_one_with_its_own_does(shape, temperature):
    part, sampling = first_layers(lm(0), 1), [Sampling(temperature, seed=s) for s in range(4)]
    runs = [
        Engine(lm(0), kind(part, shape), stopping=Stopping(20)).generate(PROMPTS, sampling=sampling)
        for kind in (EarlyExit, DraftModel)
    ]
    assert runs[0].outputs == runs[1].outputs
    guessed = [[r.token for r in metrics.row_steps(run.trace.steps)] for run in runs]
    assert guessed[0] == guessed[1] and max(map(len, guessed[0])) > 3


def test_an_early_exit_of_another_model_is_refused():
    with pytest.raises(ValueError, match="first layers of a model"):
        EarlyExit(lm(0))
    engine = Engine(lm(0), EarlyExit(first_layers(lm(0), 1)), stopping=Stopping(9))
    session = engine.start(PROMPTS)
    engine.step(session)
    engine.target = lm(5)
    with pytest.raises(ValueError, match="another model"):
        engine.step(session)
    engine.target = lm(0)
    for _ in engine.run(session):
        pass
    assert session.outputs == [g[:9] for g in greedy()]

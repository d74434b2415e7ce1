import random

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tiny import PROMPTS, Knows, Parrot, RandomTrees, Scripted, V, exact_law, greedy, lm, noisy_lm, reference, tiny

from toolkit.cache import fill
from toolkit.drafting import (
    Adaptive,
    BestFirst,
    Block,
    Budgets,
    Chain,
    Confident,
    DraftModel,
    Dynamic,
    Eagle,
    EarlyExit,
    Fixed,
    Lookahead,
    Medusa,
    Mixture,
    NGram,
    Nothing,
    Recycling,
    Sampled,
)
from toolkit.drafting.joined import branches
from toolkit.engine import Engine
from toolkit.heads import BlockHead, EagleHead, MedusaHead
from toolkit.models.early_exit import first_layers
from toolkit.models.hf import HFModel
from toolkit.protocols import Proposal
from toolkit.sampling import Sampling, Stopping
from toolkit.trace import metrics
from toolkit.tree import TokenTree
from toolkit.verification import Greedy, Rejection

STARTS = [len(p) for p in PROMPTS]
DRAFTERS = {
    "nothing": lambda: Nothing(),
    "ngram": lambda: NGram(shortest=1),
    "ngram branches": lambda: NGram(shortest=1, branches=3, length=4),
    "chain": lambda: DraftModel(noisy_lm(), Chain(5)),
    "dynamic": lambda: DraftModel(noisy_lm(), Dynamic(3, 4, 9)),
    "distinct": lambda: DraftModel(noisy_lm(), Sampled((3, 2))),
    "independent": lambda: DraftModel(noisy_lm(), Sampled((2, 2, 1), distinct=False)),
    "confident": lambda: DraftModel(noisy_lm(), Confident(Chain(5), 0.3)),
    "adaptive": lambda: Adaptive(DraftModel(noisy_lm(), Chain(3)), probe=2),
    "fixed": lambda: DraftModel(noisy_lm(), Fixed()),
    "early exit": lambda: DraftModel(first_layers(lm(0), 1), Chain(3)),
    "early exit, shared cache": lambda: EarlyExit(first_layers(lm(0), 1), Dynamic(3, 3, 8)),
    "random trees": lambda: RandomTrees(greedy(), STARTS),
    "knows": lambda: Knows(greedy(), STARTS, 6, wrong_at=3),
    "parrot": lambda: Parrot(),
    "recycling": lambda: Recycling(),
    "lookahead": lambda: Lookahead(),
    "mixture": lambda: Mixture(
        [NGram(shortest=1), DraftModel(noisy_lm(), Chain(2)), DraftModel(noisy_lm(3), Chain(2))]
    ),
    "budgets": lambda: Budgets(DraftModel(noisy_lm(), Sampled((3, 2))), [5, 2, 0, 9]),
    "best first": lambda: DraftModel(noisy_lm(), BestFirst(7, 4)),
}


def counts(session) -> tuple[int, int]:
    rows = list(metrics.row_steps(session.trace.steps))
    return sum(len(r.path) - 1 for r in rows), sum(o == 2 for r in rows for o in r.outcome)


@pytest.mark.parametrize("rule", [Greedy(), Rejection()])
@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_equals_transformers_in_ragged_batches(name, rule):
    session = Engine(lm(0), DRAFTERS[name](), rule, stopping=Stopping(40)).generate(PROMPTS)
    assert session.outputs == greedy()
    accepted, rejected = counts(session)
    if name not in ("nothing", "parrot", "early exit", "early exit, shared cache"):
        assert accepted and rejected, "this run tested nothing"


@pytest.mark.parametrize("length", range(1, 9))
def test_output_does_not_depend_on_draft_length(length):
    assert (
        Engine(lm(0), DraftModel(noisy_lm(), Chain(length)), stopping=Stopping(40)).generate(PROMPTS).outputs
        == greedy()
    )


@pytest.mark.parametrize("shape", [Chain(5), Dynamic(1, 4, 12), Fixed(), Sampled((2, 2)), Confident(Chain(5), 0.2)])
def test_a_target_that_drafts_for_itself_accepts_everything_at_temperature_0(shape):
    session = Engine(lm(0), DraftModel(HFModel(tiny(0)), shape), stopping=Stopping(40)).generate(PROMPTS)
    assert session.outputs == greedy()
    full = session.trace.steps[:-1]
    assert all(len(r.path) - 1 == max(r.depth) for r in metrics.row_steps(full))


def test_a_target_that_drafts_for_itself_accepts_every_sampled_chain():
    sampling = [Sampling(0.8, seed=s) for s in range(4)]
    engine = Engine(lm(0), DraftModel(HFModel(tiny(0)), Chain(4)), stopping=Stopping(40))
    session = engine.start(PROMPTS, sampling=sampling)
    for _ in engine.run(session):
        pass
    accepted, rejected = counts(session)
    assert accepted and not rejected


@pytest.mark.parametrize("seed", range(4))
def test_swaps_and_rewinds_change_nothing(seed):
    rng = random.Random(seed)
    engine = Engine(lm(0), stopping=Stopping(40))
    parts = [make() for make in DRAFTERS.values()]
    session, undone = engine.start(PROMPTS), 0
    while not session.done:
        engine.drafter = rng.choice(parts)
        engine.step(session)
        if rng.random() < 0.15:
            undone += session.rewind(rng.randint(1, 3))
    assert session.outputs == greedy() and undone
    assert [sum(len(r.emitted) for s in session.trace.steps if (r := s.rows[b])) for b in range(4)] == [40] * 4


@pytest.mark.parametrize("name", DRAFTERS)
def test_one_drafter_may_serve_two_batches_in_turn(name):
    engine = Engine(lm(0), DRAFTERS[name](), stopping=Stopping(24))
    batches = [PROMPTS, PROMPTS[::-1]]
    sessions = [engine.start(prompts) for prompts in batches]
    while not all(s.done for s in sessions):
        for session in sessions:
            if not session.done:
                engine.step(session)
    want = [g[:24] for g in greedy()]
    assert sessions[0].outputs == want
    assert sessions[1].outputs == want[::-1]


def test_another_target_in_mid_run_goes_on_from_the_same_text():
    engine = Engine(lm(0), NGram(shortest=1), stopping=Stopping(40))
    session = engine.start(PROMPTS)
    for _ in range(5):
        engine.step(session)
    texts = [[*p, *o] for p, o in zip(PROMPTS, session.outputs, strict=True)]
    engine.target = lm(5)
    for _ in engine.run(session):
        pass
    for b, text in enumerate(texts):
        assert [*PROMPTS[b], *session.outputs[b]] == text + reference(tiny(5), text, len(PROMPTS[b]) + 40 - len(text))


@pytest.mark.parametrize("name", ["nothing", "chain", "dynamic", "ngram", "random trees"])
def test_a_row_is_the_same_alone_and_in_a_batch(name):
    """Sampled: the draws of a row are its own, whoever else is in the batch."""
    make = {**DRAFTERS, "random trees": lambda: NGram(shortest=1, branches=4)}[name]
    sampling = [Sampling(0.9, top_k=9, seed=3), Sampling(0), Sampling(top_p=0.8, seed=-4), Sampling(1.7, seed=3)]
    engine = Engine(lm(0), make(), stopping=Stopping(30))
    together = engine.start(PROMPTS, sampling=sampling)
    for _ in engine.run(together):
        pass
    for b in range(4):
        alone = Engine(lm(0), make(), stopping=Stopping(30), sampling=sampling[b]).generate(PROMPTS[b : b + 1])
        assert together.outputs[b] == alone.outputs[0]


@pytest.mark.parametrize(
    "drafter", [Nothing, lambda: DraftModel(noisy_lm(), Chain(3)), lambda: DraftModel(noisy_lm(), Dynamic(3, 3, 8))]
)
def test_rewinding_gives_the_same_tokens_again(drafter):
    engine = Engine(lm(0), drafter(), stopping=Stopping(30), sampling=Sampling(1.0, seed=5))
    session = engine.generate(PROMPTS)
    first = session.outputs
    session.rewind(len(session.trace.steps))
    assert session.outputs == [[]] * 4 and not session.done
    for _ in engine.run(session):
        pass
    assert session.outputs == first


def joint(drafter, rows: int, sampling: dict, batches: int = 1) -> dict[tuple[int, ...], int]:
    """Counts of the first two tokens over many seeds, one row a seed."""
    found: dict[tuple[int, ...], int] = {}
    for batch in range(batches):
        seeds = [Sampling(**sampling, seed=batch * rows + s) for s in range(rows)]
        engine = Engine(lm(0), drafter, stopping=Stopping(2))
        session = engine.start([PROMPTS[0]] * rows, sampling=seeds)
        for _ in engine.run(session):
            pass
        for out in session.outputs:
            found[tuple(out)] = found.get(tuple(out), 0) + 1
    return found


def top4(logits: torch.Tensor) -> torch.Tensor:
    kept = torch.full_like(logits, -torch.inf)
    best = logits.topk(4)
    return kept.scatter(0, best.indices, best.values).div(0.7).softmax(-1)


def pvalue(found: dict, law: dict, n: int) -> float:
    assert set(found) <= set(law), "a token outside the support"
    cells = sorted(law, key=lambda c: -law[c])
    big = [c for c in cells if law[c] * n >= 5]
    seen = [found.get(c, 0) for c in big]
    want = [law[c] * n for c in big]
    return (
        float(chisquare([*seen, n - sum(seen)], [*want, n - sum(want)]).pvalue)
        if n - sum(want) > 1e-6
        else float(chisquare(seen, want).pvalue)
    )


SETTING = {"temperature": 0.7, "top_k": 4}


LAWS = {
    **DRAFTERS,
    "chain": lambda: DraftModel(noisy_lm(0, 0.1), Chain(2)),
    "budgets": lambda: Budgets(DraftModel(noisy_lm(0, 0.1), Sampled((3, 2))), [i % 6 for i in range(1000)]),
    "eagle": lambda: Eagle(EagleHead.of(lm(0)), Chain(2)),
    "medusa": lambda: Medusa(MedusaHead.of(lm(0), heads=2), Sampled((2, 2))),
    "block": lambda: Block(BlockHead.of(lm(0), mask=0, block=3, markov_rank=4), Sampled((2, 1), distinct=False)),
}


@pytest.mark.parametrize(
    "name",
    [
        "nothing", "chain", "distinct", "independent", "eagle", "block",
        *(pytest.param(name, marks=pytest.mark.slow)
          for name in ("dynamic", "fixed", "parrot", "recycling", "lookahead", "mixture", "budgets", "medusa")),
    ],
)  # fmt: skip
def test_the_first_two_tokens_have_the_targets_joint_law(name):
    law = exact_law(tiny(0), PROMPTS[0], top4, 2)
    assert pvalue(joint(LAWS[name](), 1000, SETTING, 2), law, 2000) > 1e-4


class OneNoise(Mixture):
    """Lets its drafters share their noise: what the second draws then tells what the first drew."""

    def propose(self, context):
        return branches([d.propose(context) for d in self.drafters])


@pytest.mark.parametrize("shared", [False, True])
def test_noise_that_drafters_share_would_show(shared):
    """Where nothing is truncated, and in the first token alone."""
    law = exact_law(tiny(0), PROMPTS[0], lambda logits: logits.softmax(-1), 1)
    pair = (OneNoise if shared else Mixture)([DraftModel(noisy_lm(0, 0.5), Chain(1)) for _ in range(2)])
    found: dict[tuple[int, ...], int] = {}
    for (first, _), count in joint(pair, 1000, {"temperature": 1.0}, 4).items():
        found[(first,)] = found.get((first,), 0) + count
    p = pvalue(found, law, 4000)
    assert p < 1e-6 if shared else p > 1e-4, p


class Mislabelled:
    """Samples its guess and calls it certain: the rule then tests it as if q were one."""

    def __init__(self, inner: DraftModel) -> None:
        self.inner = inner

    def propose(self, context):
        p = self.inner.propose(context)
        if p.q is None:
            return p
        q = torch.full_like(p.q, 1 / V)  # claims to have drawn from another distribution than it did
        return Proposal(p.tree, q, "independent", p.q_row)


def test_that_law_would_show_a_wrong_q():
    law = exact_law(tiny(0), PROMPTS[0], top4, 2)
    wrong = Mislabelled(DraftModel(noisy_lm(0, 0.1), Chain(2)))
    assert pvalue(joint(wrong, 1000, SETTING, 2), law, 2000) < 1e-4


# ---- bad input: one sentence, before any work ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "says"),
    [
        ([], "no prompt"),
        ([[1], []], "prompt 1 is empty"),
        ([[1] * 256], "256 tokens.*holds 256.*shorten it to 255"),
        ([[1, 64]], "token 64.*0..63"),
        ([[-1]], "token -1"),
    ],
)
def test_bad_prompts(prompts, says):
    with pytest.raises(ValueError, match=says):
        Engine(lm(0)).start(prompts)


def test_bad_counts_and_parts():
    with pytest.raises(ValueError, match="sampling has 1 entries for 2 prompts"):
        Engine(lm(0)).start([[1], [2]], sampling=[Sampling()])
    with pytest.raises(ValueError, match="vocabulary of DraftModel has 32 tokens and the target's 64"):
        Engine(lm(0), DraftModel(lm(1, vocab=32))).start([[1]])
    with pytest.raises(ValueError, match="Greedy verifies at temperature 0 only"):
        Engine(lm(0), rule=Greedy(), sampling=Sampling(1.0)).generate([[1]])
    for bad in (
        lambda: Chain(0),
        lambda: Dynamic(width=0),
        lambda: NGram(length=0),
        lambda: NGram(longest=1, shortest=2),
    ):
        with pytest.raises(ValueError, match=r"at least 1|shortest <= longest"):
            bad()
    for bad in ((), ((0, 1),), ((-1,),)):
        with pytest.raises(ValueError, match="Fixed needs"):
            Fixed(bad)


def broken(model_seed: int = 3):
    torch.manual_seed(model_seed)
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM(tiny(0).config).double().eval()


def test_broken_weights_are_refused_at_construction():
    model = broken()
    model.lm_head.weight.data[3, 4] = torch.nan
    with pytest.raises(ValueError, match="not finite numbers: its weights are broken"):
        HFModel(model)


def test_nan_logits_in_mid_run_commit_nothing():
    model = broken()
    engine = Engine(HFModel(model), stopping=Stopping(20))
    session = engine.start(PROMPTS)
    for _ in range(3):
        engine.step(session)
    before, kept = session.outputs, model.lm_head.weight.data[0, 0].item()
    model.lm_head.weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"position \d+.*row 0.*not finite"):
        engine.step(session)
    assert session.outputs == before and len(session.trace.steps) == 3
    model.lm_head.weight.data[0, 0] = kept
    for _ in engine.run(session):
        pass
    assert session.outputs == [reference(model, p, 20) for p in PROMPTS]


class Fails:
    def propose(self, context):
        raise RuntimeError("a drafter in the making")


@pytest.mark.parametrize(
    ("drafter", "says"),
    [
        (Fails(), "in the making"),
        (Scripted(lambda c, b: [[1]] if b else []), None),
        (
            type("Wrong", (), {"propose": lambda s, c: Proposal(TokenTree.chain((c.pending + 1) % V))})(),
            "pending token",
        ),
        (
            type("Few", (), {"propose": lambda s, c: Proposal(TokenTree.chain(c.pending[:1]))})(),
            "1 rows, and the batch has 4",
        ),
        (
            type(
                "Loop",
                (),
                {
                    "propose": lambda s, c: Proposal(
                        TokenTree(c.pending.expand(-1, 2), torch.tensor([[-1, 1]] * 4), torch.ones(4, 2).bool())
                    )
                },
            )(),
            "smaller index",
        ),
    ],
)
def test_a_faulty_drafter_leaves_the_session_usable(drafter, says):
    engine = Engine(lm(0), stopping=Stopping(40))
    session = engine.start(PROMPTS)
    engine.step(session)
    engine.drafter = drafter
    if says:
        with pytest.raises((ValueError, RuntimeError), match=says):
            engine.step(session)
        engine.drafter = NGram()
    for _ in engine.run(session):
        pass
    assert session.outputs == greedy()


def test_recording_more_changes_no_token():
    def run(top: int):
        engine = Engine(lm(0), DRAFTERS["dynamic"](), stopping=Stopping(20), top=top, sampling=Sampling(1.0))
        return engine.generate(PROMPTS)

    session = run(5)
    assert session.outputs == run(0).outputs
    row = session.trace.steps[2].rows[0]
    assert len(row.top) == len(row.token) and all(len(t) == 5 for t in row.top)


def test_recorded_probabilities_are_the_models():
    engine = Engine(lm(0), DRAFTERS["dynamic"](), stopping=Stopping(12), top=3, sampling=Sampling(1.0, seed=2))
    session = engine.generate(PROMPTS[:1])
    text = [*PROMPTS[0], *session.outputs[0]]
    for step in session.trace.steps:
        row = step.rows[0]
        for i in range(1, len(row.token)):
            path = []
            at = i
            while at > 0:
                path.append(row.token[at])
                at = row.parent[at]
            with torch.inference_mode():
                ids = torch.tensor([[*text[: row.position + 1], *reversed(path)]])
                probs = tiny(0)(input_ids=ids, use_cache=False).logits[0].softmax(-1)
            assert row.p[i] == pytest.approx(probs[-2, row.token[i]].item(), abs=1e-6)
            assert row.prob[i] == pytest.approx(row.p[i], abs=1e-6)
            assert row.top[i][0][0] == probs[-1].argmax()


class Taps:
    """Wants features, and checks that they are the plain model's."""

    def __init__(self, taps) -> None:
        self.taps, self.seen = taps, 0

    def propose(self, context):
        for b in range(context.rows):
            n = context.lengths[b] - 1
            if n < 1:
                continue
            with torch.inference_mode():
                out = tiny(0).model(
                    input_ids=torch.tensor(context.row(b)[None, :n]), output_hidden_states=True, use_cache=False
                )
            parts = [out.last_hidden_state if t == "final" else out.hidden_states[t] for t in self.taps]
            torch.testing.assert_close(context.feature[b, :n], torch.cat(parts, -1)[0])
            self.seen += 1
        return DRAFTERS["random trees"]().propose(context)


def test_features_are_the_targets_also_after_a_swap_and_a_rewind():
    taps = Taps((0, 1, "final"))
    engine = Engine(lm(0), NGram(), stopping=Stopping(40))
    session = engine.start(PROMPTS)
    for n in range(12):
        engine.drafter = [NGram(), taps, taps, Taps((1,))][n % 4]
        engine.step(session)
        if n == 7:
            session.rewind(2)
    assert taps.seen > 10
    with pytest.raises(ValueError, match="tap 9 does not exist"):
        lm(0).read(TokenTree.chain(torch.zeros(1, 1).long()), lm(0).open(1, 4), taps=(9,))


@pytest.mark.parametrize("leave", [0, 3, 20, 256])
def test_long_prompts_are_read_in_chunks_and_ragged_rows_stay_apart(monkeypatch, leave):
    monkeypatch.setitem(fill.__kwdefaults__, "chunk", 7)
    monkeypatch.setattr("toolkit.engine.session.LEAVE", leave)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, V, n).tolist() for n in (1, 7, 8, 60, 33)]
    session = Engine(lm(0), DRAFTERS["chain"](), stopping=Stopping(10)).generate(prompts)
    assert session.outputs == [reference(tiny(0), p, 10) for p in prompts]

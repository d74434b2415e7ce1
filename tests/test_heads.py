"""Draft heads of every kind: exact however bad, right where they know, and fed with the target's true features."""

from __future__ import annotations

import copy
import functools
import random

import pytest
import torch
from tiny import PROMPTS, V, greedy, lm, noisy_lm
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from toolkit.drafting import (
    BestFirst,
    Block,
    Budgets,
    Chain,
    Confident,
    DraftModel,
    Dynamic,
    Eagle,
    Fixed,
    Medusa,
    Mixture,
    NGram,
    Nothing,
    PEagle,
    PerRow,
    Sampled,
)
from toolkit.engine import Engine
from toolkit.heads import (
    BlockHead,
    Borrowed,
    Eagle3Head,
    EagleHead,
    HeadConfig,
    MedusaHead,
    MTPHead,
    PEagleHead,
    spread_taps,
)
from toolkit.heads.parts import DraftVocabulary
from toolkit.heads.whole import Causal
from toolkit.models.hf import HFModel
from toolkit.sampling import Sampling, Stopping
from toolkit.trace import metrics
from toolkit.verification import Coupled, Rejection, Traversal

SHAPES = {
    "chain": Chain(4),
    "dynamic": Dynamic(3, 3, 8),
    "fixed": Fixed(),
    "best first": BestFirst(9, 4),
    "distinct": Sampled((3, 2)),
    "independent": Sampled((2, 2), distinct=False),
    "confident": Confident(Chain(4), 0.05),
}
SAMPLED = [Sampling(0.9, top_k=9, seed=3), Sampling(0), Sampling(top_p=0.8, seed=-4), Sampling(1.7, seed=3)]


def wake(head: nn.Module, seed: int = 0) -> nn.Module:
    """Random weights everywhere, those that begin at zero included."""
    torch.manual_seed(seed)
    for p in head.parameters():
        p.data.normal_(1 if p.ndim == 1 else 0, 0.3)
    return head


@functools.cache
def head(kind: str) -> nn.Module:
    target, some = lm(0), torch.randperm(V, generator=torch.Generator().manual_seed(5))[:40]
    made = {
        "eagle": lambda: EagleHead.of(target),
        "eagle, two layers": lambda: EagleHead.of(target, layers=2, bias=False),
        "eagle 3": lambda: Eagle3Head.of(target),
        "eagle 3, reduced vocabulary": lambda: Eagle3Head.of(target, tokens=some, norm_before_residual=True),
        "eagle 3.1": lambda: Eagle3Head.of(target, taps=(0, 1, 2, "final"), fc_norm=True, norm_output=True, layers=2),
        "eagle 3, one norm": lambda: Eagle3Head.of(target, taps=(1,), input_norm=True),
        "mtp": lambda: MTPHead.of(target),
        "mtp, state before its norm": lambda: MTPHead.of(target, norm_output=False),
        "medusa": lambda: MedusaHead.of(target, heads=3),
        "medusa, own lm heads": lambda: MedusaHead.of(target, heads=4, layers=2, own_lm_heads=True),
        "block": lambda: BlockHead.of(target, mask=V - 1, block=5),
        "block, markov": lambda: BlockHead.of(target, mask=V - 1, block=4, markov_rank=6),
        "block, anchored, gated, reduced vocabulary": lambda: BlockHead.of(
            target,
            mask=V - 1,
            block=4,
            markov_rank=6,
            markov_kind="gated",
            anchored=True,
            own_lm_head=True,
            tokens=some,
        ),
        "block, rnn": lambda: BlockHead.of(target, mask=V - 1, block=4, markov_rank=6, markov_kind="rnn"),
        "p-eagle": lambda: PEagleHead.of(target, mask=V - 1, depths=4, layers=2, tokens=some),
    }[kind]()
    return wake(made)


KINDS = (
    "eagle",
    "eagle, two layers",
    "eagle 3",
    "eagle 3, reduced vocabulary",
    "eagle 3.1",
    "eagle 3, one norm",
    "mtp",
    "mtp, state before its norm",
    "medusa",
    "medusa, own lm heads",
    "block",
    "block, markov",
    "block, anchored, gated, reduced vocabulary",
    "block, rnn",
    "p-eagle",
)


QUICK = ("eagle 3, reduced vocabulary", "medusa", "block, markov", "p-eagle")
EVERY = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]


def drafter(kind: str, shape: object) -> object:
    wraps = {"medusa": Medusa, "block": Block, "p-eagle": PEagle}
    return wraps.get(kind.partition(",")[0], Eagle)(head(kind), shape)


def really_tested(session) -> None:
    rows = list(metrics.row_steps(session.trace.steps))
    assert any(o for r in rows for o in r.outcome), "no guess was ever tested"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", EVERY)
def test_random_heads_change_no_greedy_token(kind, shape):
    session = Engine(lm(0), drafter(kind, SHAPES[shape]), stopping=Stopping(24)).generate(PROMPTS)
    assert session.outputs == [g[:24] for g in greedy()]
    really_tested(session)


@functools.cache
def plain() -> list[list[int]]:
    return Engine(lm(0), rule=Coupled(), stopping=Stopping(20)).generate(PROMPTS, sampling=SAMPLED).outputs


@pytest.mark.parametrize("shape", [*SHAPES, "coupled"])
@pytest.mark.parametrize("kind", EVERY)
def test_random_heads_change_no_coupled_token(kind, shape):
    how = {**SHAPES, "coupled": Chain(4, coupled=True)}[shape]
    session = Engine(lm(0), drafter(kind, how), Coupled(), stopping=Stopping(20)).generate(PROMPTS, sampling=SAMPLED)
    assert session.outputs == plain()
    really_tested(session)


def test_mixed_drafters_and_budgets_in_one_batch_with_swaps_and_rewinds():
    rng = random.Random(3)
    engine = Engine(lm(0), stopping=Stopping(40))
    mixed = [
        PerRow([drafter("eagle", Chain(3)), NGram(shortest=1), DraftModel(noisy_lm(), Dynamic(3, 3, 8)), Nothing()]),
        Budgets(drafter("medusa", Dynamic(3, 3, 12)), [9, 0, 3, 1]),
        Mixture([NGram(shortest=1), drafter("eagle 3", Dynamic(2, 3, 6)), DraftModel(noisy_lm(), Dynamic(2, 2, 4))]),
        drafter("block, markov", BestFirst(6, 3)),
        Budgets(DraftModel(noisy_lm(), Sampled((3, 2))), [8, 2, 1, 0]),
    ]
    session, undone = engine.start(PROMPTS), 0
    while not session.done:
        engine.drafter = rng.choice(mixed)
        engine.step(session)
        if rng.random() < 0.15:
            undone += session.rewind(rng.randint(1, 3))
    assert session.outputs == greedy() and undone
    really_tested(session)


# Heads that know.

PERMUTATION = torch.randperm(V, generator=torch.Generator().manual_seed(1))


@functools.cache
def successor() -> HFModel:
    """A target in which every token has one successor: one-hot embeddings, layers that do nothing, a permutation as its
    LM head."""
    config = LlamaConfig(
        vocab_size=V, hidden_size=V, intermediate_size=8, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False, eos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).double().eval()
    for p in model.model.layers.parameters():
        p.data.zero_()
    model.model.embed_tokens.weight.data.copy_(torch.eye(V))
    model.lm_head.weight.data.zero_()
    model.lm_head.weight.data[PERMUTATION, torch.arange(V)] = 1.0
    return HFModel(model)


def power(k: int) -> Tensor:
    return torch.linalg.matrix_power(successor().unembedding.weight.detach(), k)


def still(made: nn.Module) -> nn.Module:
    """The head with layers that hand their input on."""
    for p in made.layers.parameters():
        p.data.zero_()
    return made


@functools.cache
def knowing(kind: str) -> object:
    target, eye = successor(), torch.eye(V).double()
    if kind == "medusa":
        made = MedusaHead.of(target, heads=5, layers=0, own_lm_heads=True)
        for k, own in enumerate(made.own):  # from the token before the pending one
            own.weight.data.copy_(power(k + 2))
        return made
    if kind == "block":  # the pairwise table alone knows
        made = still(BlockHead.of(target, mask=0, block=6, markov_rank=V))
        made.norm.weight.data.zero_()
        made.markov_head.markov_w1.weight.data.copy_(eye)
        made.markov_head.markov_w2.weight.data.copy_(power(1) * 9)
        return made
    if kind == "mtp":
        made = still(MTPHead.of(target))
        made.input_proj.weight.data.copy_(torch.cat([eye, 0 * eye], 1))
        return made
    if kind == "eagle":
        made = still(EagleHead.of(target, bias=False))
        made.fc.weight.data.copy_(torch.cat([9 * eye, 0 * eye], 1))
        return made
    config = HeadConfig.of(target, kv_heads=4, head_dim=V // 4)
    made = Eagle3Head(config, Borrowed.of(target), (1,), tokens=torch.arange(V).flip(0), norm_before_residual=True)
    made = still(made.double())
    made.lm_head.weight.data.copy_(power(1).flip(0))
    layer = made.layers[0]
    layer.input_layernorm.weight.data.fill_(1)
    for sharp in (layer.self_attn.q_proj, layer.self_attn.k_proj):  # the nearest key, a pair's own, wins by far
        sharp.weight.data[:, :V] = 5.0
    layer.self_attn.v_proj.weight.data[:, :V] = eye  # only attention carries the embedding on
    layer.self_attn.o_proj.weight.data.copy_(eye)
    return made


@pytest.mark.parametrize(
    "shape", [Chain(4), Dynamic(2, 4, 12), Fixed(), BestFirst(8, 4), Sampled((2, 2, 1))], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("kind", ["eagle", "eagle 3", "mtp", "medusa", "block"])
def test_a_head_that_knows_has_everything_accepted(kind, shape):
    wrap = {"medusa": Medusa, "block": Block}.get(kind, Eagle)
    engine = Engine(successor(), wrap(knowing(kind), shape), stopping=Stopping(30))
    prompts = [[t, int(PERMUTATION[t])] for t in (3, 8, 20, 41)]  # Medusa looks at the first and speaks of the third
    session = engine.generate(prompts)
    assert session.outputs == Engine(successor(), stopping=Stopping(30)).generate(prompts).outputs
    for row in metrics.row_steps(session.trace.steps[:-1]):
        assert len(row.path) - 1 == max(row.depth) == min(shape.depth, getattr(knowing(kind), "horizon", 99))


# True features.


def recomputed(engine: Engine, session, drafter: Eagle) -> Tensor:
    """Keys of a head's cache made at once from the whole text."""
    fresh = Eagle(drafter.head, drafter.shape)
    again = engine.start([[*p, *o] for p, o in zip(session.prompts, session.outputs, strict=True)])
    again.fit(engine.target, fresh.taps)
    again.read_up()
    fresh.propose(again.context())
    return keys(fresh)


def keys(drafter: Eagle) -> Tensor:
    cache = drafter.kept.store
    lengths = cache.filled
    return torch.cat([k[:, b, :, :n].flatten() for k, _ in cache.layout.memory.values() for b, n in enumerate(lengths)])


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize(
    "kind", ["eagle 3", *(pytest.param(k, marks=pytest.mark.slow) for k in ("eagle", "eagle 3.1", "mtp"))]
)
@pytest.mark.parametrize("shape", ["chain", "dynamic"])
def test_the_heads_cache_holds_true_features_after_fifty_steps(kind, shape, stale):
    """A head with a target it often guesses right, so that accepted guesses are there to be replaced."""
    own = copy.deepcopy(drafter(kind, SHAPES[shape]))
    own.stale = stale
    own.head.logits = lambda state: answers.logits(state)  # says what comes next, whatever its state is
    answers = Answers(own)
    engine = Engine(lm(0), answers, stopping=Stopping(200))
    session = engine.start(PROMPTS)
    for _ in range(50):
        engine.step(session)
    own.propose(answers.context_of(engine, session))
    assert metrics.acceptance_length(session.trace.steps) > 1.3
    gap = (keys(own) - recomputed(engine, session, own)).abs().max().item()
    assert gap > 1e-3 if stale else gap < 1e-5


class Answers:
    """An `Eagle` whose logits are put into its mouth: the right token for the first guess two times in three, and
    others after it, so that steps accept none, one or more."""

    def __init__(self, inner: Eagle) -> None:
        self.inner, self.context, self.step = inner, None, 0
        self.taps = inner.taps
        self.right = [Engine(lm(0), stopping=Stopping(220)).generate([p]).outputs[0] for p in PROMPTS]

    def logits(self, state: Tensor) -> Tensor:
        out = torch.zeros(*state.shape[:2], V, dtype=torch.float64)
        for b, n in enumerate(self.context.lengths):
            at = n - len(PROMPTS[b]) + self.level
            token = self.right[b][at] if at < len(self.right[b]) else 0
            out[b, :, (token + (self.step + self.level + b) % 3 // 2) % V] = 9.0
        self.level += 1
        return out

    def propose(self, context):
        self.context, self.level, self.step = context, 0, self.step + 1
        return self.inner.propose(context)

    def context_of(self, engine, session):
        session.fit(engine.target, self.taps)
        session.read_up()
        self.context, self.level = session.context(), 0
        return self.context


@pytest.mark.parametrize("shape", [Chain(4), Dynamic(2, 4, 12)], ids=["chain", "dynamic"])
def test_open_pairs_see_all_true_pairs_and_the_open_ones_before_them(shape):
    """What a text's guesses are, read at once and causally: after some steps, rows of unlike progress, one of them new."""
    own = drafter("p-eagle", shape)
    engine = Engine(lm(0), own, stopping=Stopping(60))
    session = engine.start(PROMPTS)
    for _ in range(7):
        engine.step(session)
    session.fit(lm(0), own.taps)
    session.read_up()
    context = session.context()
    tree = own.propose(context).tree
    for b, n in enumerate(context.lengths):
        feature, token = context.feature[b, : n - 1], context.token[b, 1:n]
        opened = own.head.mask_hidden[0].expand(3, -1)
        state = own.head.fuse(torch.cat([feature, opened])[None])
        ids = torch.cat([token, token.new_full((3,), own.head.mask)])[None]
        said = own.head(ids, state, torch.arange(n + 2)[None], Causal())[:, n - 2 :]
        best = own.head.logits(said)[0].argmax(-1).tolist()
        deepest = tree.token[b][tree.ancestors[b, int(tree.depth[b].argmax())]].tolist()
        assert deepest[1:] == best if isinstance(shape, Chain) else tree.token[b, 1] == best[0]


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("kind", ["vanilla", "gated", "rnn"])
@torch.inference_mode()
def test_a_markov_head_follows_each_path_through_the_block(kind, anchored):
    """A branching tree's tokens are among the likeliest by the recurrence written out for one path."""
    made = wake(
        BlockHead.of(lm(0), mask=3, block=5, markov_rank=6, markov_kind=kind, anchored=anchored, confidence="markov")
    )
    markov, rank, taken = made.markov_head, 6, []

    def by_hand(states: Tensor, path: list[int]) -> Tensor:
        """Logits after each token of a path, the pending one first; states [J, H]."""
        memory, out = torch.zeros(rank, dtype=states.dtype), []
        skipped = [] if anchored else [path[0]]
        for place, token in enumerate([*skipped, *path]):
            x, h = markov.markov_w1.weight[token], states[place]
            if kind == "gated":
                x = torch.sigmoid(markov.gate_proj(torch.cat([h, x]))) * x
            if kind == "rnn":
                g, c, o = markov.joint_proj(torch.cat([memory, x, h])).split(rank)
                memory = torch.sigmoid(g) * memory + (1 - torch.sigmoid(g)) * torch.tanh(c)
                x = torch.tanh(o)
            out.append(made.borrowed.unembedding.weight @ h + markov.markov_w2.weight @ x)
        return torch.stack(out[len(skipped) :])

    def seen(*arguments: object) -> Tensor:
        taken.append(BlockHead.states(made, *arguments))
        return taken[-1]

    made.states = seen
    ranks = ((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 1, 0), (0, 1, 0, 1))
    own = Block(made, Fixed(ranks))
    session = Engine(lm(0), own, stopping=Stopping(6)).start(PROMPTS)
    session.fit(lm(0), own.taps)
    session.read_up()
    tree = own.propose(session.context()).tree
    for b in range(len(PROMPTS)):
        path_of = {tuple(tree.token[b][tree.ancestors[b, i]].tolist()) for i in range(tree.size)}
        for choice in ranks:
            path = [int(tree.token[b, 0])]
            for r in choice:
                path.append(int(by_hand(taken[0][b], path)[-1].argsort(descending=True)[r]))
            assert tuple(path) in path_of
    sure = made.confidence(taken[0], tree.token[:, :1].expand(-1, 5))
    before = markov.markov_w1.weight[tree.token[0, 0]]
    want = torch.sigmoid(made.confidence_head.proj(torch.cat([taken[0][0, 2], before])))[0]
    torch.testing.assert_close(sure[0, 2], want)


def test_a_prompt_of_one_token_is_not_guessed_at_before_there_is_a_feature():
    for kind in ("eagle", "eagle 3", "medusa", "block"):
        prompts = [[5], [7, 8, 9]]
        session = Engine(lm(0), drafter(kind, Chain(3)), stopping=Stopping(9)).generate(prompts)
        assert session.outputs == Engine(lm(0), stopping=Stopping(9)).generate(prompts).outputs
        assert len(session.trace.steps[0].rows[0].token) == 1 and len(session.trace.steps[0].rows[1].token) > 1
        alone = Engine(lm(0), drafter(kind, Chain(3)), stopping=Stopping(9)).generate([[5]])
        assert alone.outputs[0] == session.outputs[0]


def test_heads_of_another_target_start_afresh():
    own = drafter("eagle", Chain(3))
    engine = Engine(lm(0), own, stopping=Stopping(30))
    session = engine.start(PROMPTS)
    for _ in range(4):
        engine.step(session)
    engine.target = lm(5)
    engine.step(session)
    session.fit(lm(5), own.taps)
    session.read_up()
    own.propose(session.context())
    fresh = Eagle(own.head, own.shape)
    fresh.propose(session.context())
    torch.testing.assert_close(keys(own), keys(fresh))


# Parts.


def test_a_reduced_vocabulary_says_minus_infinity_for_the_rest():
    tokens = torch.tensor([9, 3, 7])
    made = DraftVocabulary(12, tokens)
    assert made.d2t.tolist() == [9, 2, 5] and made.tokens.tolist() == [9, 3, 7]
    assert made.t2d.nonzero()[:, 0].tolist() == [3, 7, 9]
    wide = made.widen(torch.tensor([[1.0, 2.0, 3.0]]))
    assert wide[0, tokens].tolist() == [1, 2, 3] and (wide == -torch.inf).sum() == 9
    for bad in ([1, 1], [0, 12], [-1]):
        with pytest.raises(ValueError, match="draft vocabulary"):
            DraftVocabulary(12, torch.tensor(bad))


def test_a_constraint_outside_the_draft_vocabulary_leaves_no_guess():
    own = drafter("eagle 3, reduced vocabulary", Chain(3))
    outside = (~own.head.vocabulary.t2d).nonzero()[:, 0].tolist()
    session = Engine(lm(0), own, stopping=Stopping(8)).generate(PROMPTS, sampling=Sampling(1.0, allowed=outside))
    assert all(len(r.token) == 1 for r in metrics.row_steps(session.trace.steps))
    assert all(t in outside for out in session.outputs for t in out)


@pytest.mark.parametrize("kind", ["eagle", "eagle 3", "mtp", "medusa", "block"])
def test_a_head_made_for_another_target_is_refused_in_a_sentence(kind):
    """Another vocabulary before any work, another width at the first guess."""
    with pytest.raises(ValueError, match=r"vocabulary of \w+ has 64 tokens and the target's 66"):
        Engine(lm(1, vocab=V + 2), drafter(kind, Chain(2))).start(PROMPTS)
    with pytest.raises(ValueError, match=r"reads features of width \d+, and this target's taps give \d+"):
        Engine(successor(), drafter(kind, Chain(2)), stopping=Stopping(4)).generate(PROMPTS)


def test_what_is_borrowed_is_not_the_heads():
    made = EagleHead.of(lm(0))
    assert not any("embed" in n or "lm_head" in n for n in made.state_dict())
    assert {id(p) for p in made.parameters()}.isdisjoint(id(p) for p in lm(0).model.parameters())
    assert made.borrowed.embedding is lm(0).embedding


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: BlockHead.of(lm(0), mask=V), "mask"),
        (lambda: BlockHead.of(lm(0), mask=0, block=1), "block"),
        (lambda: BlockHead.of(lm(0), mask=0, markov_rank=2, markov_kind="lstm"), "no Markov head of kind 'lstm'"),
        (lambda: BlockHead.of(lm(0), mask=0, confidence="markov"), "give markov_rank > 0"),
        (lambda: BlockHead.of(lm(0), mask=0, tokens=torch.arange(3)), "own_lm_head=True"),
        (
            lambda: BlockHead.of(lm(0), mask=0).confidence(torch.zeros(1, 1, 32), torch.zeros(1, 1)),
            "no confidence head",
        ),
        (
            lambda: head("block, rnn").markov_head(torch.zeros(1, 1, dtype=torch.long)),
            "rnn Markov head also reads states",
        ),
        (lambda: PEagleHead.of(lm(0), mask=V), "mask"),
        (lambda: PEagleHead.of(lm(0), mask=0, depths=0), "at least one guess"),
        (lambda: MedusaHead.of(lm(0), heads=0), "head"),
        (lambda: spread_taps(lm(0), 5), "taps"),
        (lambda: Mixture([]), "at least one drafter"),
        (lambda: Budgets(Nothing(), [-1]), "at least 0"),
        (lambda: BestFirst(0), "budget"),
        (lambda: Sampled(()), "width"),
        (lambda: Confident(Chain(), 2.0), "threshold"),
    ],
)
def test_nonsense_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("make", [lambda: PerRow([Nothing()]), lambda: Budgets(Nothing(), [1])])
def test_a_batch_of_another_size_is_refused(make):
    with pytest.raises(ValueError, match="the batch has 4 rows"):
        Engine(lm(0), make(), stopping=Stopping(4)).generate(PROMPTS)


def test_ways_of_drawing_that_cannot_share_a_step_are_refused():
    two = Mixture([DraftModel(noisy_lm(), Sampled((2,))), DraftModel(noisy_lm(), Chain(2))])
    with pytest.raises(ValueError, match="distinct and independent cannot share a step"):
        Engine(lm(0), two, stopping=Stopping(4)).generate(PROMPTS, sampling=Sampling(1.0))
    taps = Mixture([drafter("eagle", Chain(2)), drafter("eagle 3", Chain(2))])
    with pytest.raises(ValueError, match="one set a step"):
        Engine(lm(0), taps, stopping=Stopping(4)).generate(PROMPTS)


@pytest.mark.parametrize("rule", [Rejection(), Traversal()])
def test_a_mixture_of_sampled_and_certain_guesses_has_rows_like_its_own(rule):
    """Both draft models draw, each with noise of its own."""
    pair = Mixture([NGram(shortest=1), DraftModel(noisy_lm(), Chain(2)), DraftModel(noisy_lm(3), Chain(2))])
    session = Engine(lm(0), pair, rule, stopping=Stopping(20)).generate(PROMPTS, sampling=Sampling(1.0, seed=2))
    really_tested(session)
    first = [r.token for r in metrics.row_steps(session.trace.steps)]
    assert max(map(len, first)) > 4


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("stale", [False, True])
def test_one_head_may_serve_two_batches_in_turn_with_rewinds(kind, stale):
    own = drafter(kind, Chain(3))
    if isinstance(own, Eagle):
        own.stale = stale
    engine = Engine(lm(0), own, stopping=Stopping(20))
    sessions, rng = [engine.start(prompts) for prompts in (PROMPTS, PROMPTS[::-1])], random.Random(1)
    while not all(s.done for s in sessions):
        for session in sessions:
            if not session.done:
                engine.step(session)
                if rng.random() < 0.2:
                    session.rewind(2)
    want = [g[:20] for g in greedy()]
    assert [s.outputs for s in sessions] == [want, want[::-1]]

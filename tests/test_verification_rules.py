"""Every rule against its blackboard version, under the compiler, at temperature 0 and on the edges of arithmetic."""

from __future__ import annotations

from itertools import product

import pytest
import reference_rules as blackboard
import torch
from torch import Tensor

from toolkit.draws import ACCEPT, EMIT, Draws
from toolkit.protocols import Draw, Proposal, Rule, Verdict
from toolkit.sampling import BatchSampler, Sampling
from toolkit.tree import TokenTree
from toolkit.verification import (
    Block,
    Coupled,
    Greedy,
    Optimal,
    PointMass,
    Rejection,
    Threshold,
    TopKLenient,
    Traversal,
    Typical,
)

SIZE, VOCABULARY = 7, 7
DRAWS: tuple[Draw, ...] = ("certain", "independent", "distinct")
RULES: dict[str, tuple[Rule, object]] = {
    "rejection": (Rejection(), blackboard.rejection),
    "point mass": (PointMass(), blackboard.sample_and_match),
    "coupled": (Coupled(), blackboard.sample_and_match),
    "block": (Block(), blackboard.block),
    "traversal": (Traversal(), blackboard.traversal),
    "typical": (Typical(0.2, 0.45), lambda row: blackboard.typical(row, 0.2, 0.45)),
    "top-k": (TopKLenient(2), lambda row: blackboard.lenient(row, 2)),
}


def random_trees(rows: int, seed: int, *, chain: bool = False) -> TokenTree:
    """Trees of one to seven nodes, every shape; siblings have different tokens."""
    g = torch.Generator().manual_seed(seed)
    nodes = torch.randint(1, SIZE + 1, (rows, 1), generator=g)
    real = torch.arange(SIZE) < nodes
    parent = torch.arange(-1, SIZE - 1).expand(rows, -1)
    if not chain:
        parent = (torch.rand(rows, SIZE, generator=g) * torch.arange(SIZE)).long().where(torch.arange(SIZE) > 0, -1)
    rank = ((parent[:, :, None] == parent[:, None]).tril(-1)).sum(-1)
    first = torch.randint(0, VOCABULARY, (rows, SIZE), generator=g)
    token = (first.gather(1, parent.clamp(min=0)) + rank) % VOCABULARY
    return TokenTree(token, parent.where(real, -1), real, linear=chain)


def random_proposal(tree: TokenTree, draw: Draw, seed: int) -> tuple[Proposal, Tensor]:
    """A proposal and the target's logits [B, N, V]. Some guesses are likely, some of the sampled ones are certain."""
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(tree.rows, SIZE, VOCABULARY, generator=g, dtype=torch.float64)
    bump = torch.rand(tree.rows, SIZE, generator=g, dtype=torch.float64) * 3
    hot = torch.zeros_like(logits)
    rows = torch.arange(tree.rows)
    for i in range(1, SIZE):
        hot[rows, tree.parent[:, i].clamp(min=0), tree.token[:, i]] += bump[:, i]
    if draw == "certain":
        return Proposal(tree), logits + hot
    q = (torch.randn(logits.shape, generator=g, dtype=torch.float64) + hot / 2).softmax(-1)
    certain = torch.rand(tree.rows, SIZE, generator=g) < 0.1
    return Proposal(tree, q, draw, tree.parent.masked_fill(certain, -1)), logits + hot


def sampler_of(rows: int, temperature: float = 1.0) -> BatchSampler:
    return BatchSampler.of([Sampling(temperature=temperature, seed=b) for b in range(rows)])


def on_the_blackboard(proposal: Proposal, logits: Tensor, rule: object) -> list[tuple[int, int]]:
    tree = proposal.tree
    draws, rows = Draws(torch.arange(tree.rows)), torch.arange(tree.rows)
    depth, rank = torch.meshgrid(torch.arange(1, SIZE + 1), torch.arange(SIZE), indexing="ij")
    depth, rank = (x.flatten().expand(tree.rows, -1) for x in (depth, rank))
    outward = draws.uniform(ACCEPT, depth, rank).view(-1, SIZE, SIZE).tolist()
    leafward = draws.uniform(ACCEPT, depth, (depth << 32) + rank).view(-1, SIZE, SIZE).tolist()
    race = draws.race(VOCABULARY, EMIT, torch.arange(1, SIZE + 2).expand(tree.rows, -1)).tolist()
    probs = logits.softmax(-1).tolist()
    q = proposal.q.tolist() if proposal.q is not None else [None] * tree.rows
    parts = zip(tree.token.tolist(), tree.parent.tolist(), probs, q, proposal.source.tolist(), strict=True)
    out = []
    for b, (token, parent, p, q_, source) in zip(rows.tolist(), parts, strict=True):

        def coin(depth: int, lane: int, b: int = b) -> float:
            return (leafward if lane >> 32 else outward)[b][depth - 1][lane & 0xFFFFFFFF]

        row = blackboard.Row(token, parent, p, q_, source, proposal.draw, coin, lambda d, b=b: race[b][d - 1])
        out.append(rule(row))  # type: ignore[operator]
    return out


def same(a: Verdict, b: Verdict) -> bool:
    return bool((a.tip == b.tip).all() and (a.bonus == b.bonus).all())


@pytest.mark.parametrize("rows", [500, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_its_blackboard_version(name: str, draw: Draw, rows: int) -> None:
    rule, plain = RULES[name]
    proposal, logits = random_proposal(random_trees(rows, 1, chain=name == "block"), draw, 2)
    verdict = rule(proposal, logits, sampler_of(rows))
    found = list(zip(verdict.tip.tolist(), verdict.bonus.tolist(), strict=True))
    assert found == on_the_blackboard(proposal, logits, plain)
    kept = proposal.tree.depth.gather(1, verdict.tip[:, None])
    assert 0.2 < (kept > 0).float().mean() < 0.9, "the comparison is idle unless some guesses are kept and some are not"


@pytest.mark.parametrize("draw", DRAWS)
def test_traversal_of_a_chain_is_block(draw: Draw) -> None:
    proposal, logits = random_proposal(random_trees(2000, 3, chain=True), draw, 4)
    block, traversal = (rule(proposal, logits, sampler_of(2000)) for rule in (Block(), Traversal()))
    assert same(block, traversal)
    torch.testing.assert_close(block.tests.accept, traversal.tests.accept)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", RULES)
def test_rows_do_not_meet(name: str) -> None:
    """Each row of a ragged batch is judged as it would be alone."""
    proposal, logits = random_proposal(random_trees(40, 5, chain=name == "block"), "distinct", 6)
    rule, sampler, tree = RULES[name][0], sampler_of(40), proposal.tree
    together = rule(proposal, logits, sampler)
    assert proposal.q is not None and proposal.q_row is not None
    for b in range(40):
        one = slice(b, b + 1)
        alone = Proposal(
            TokenTree(tree.token[one], tree.parent[one], tree.real[one], linear=tree.linear),
            proposal.q[one],
            proposal.draw,
            proposal.q_row[one],
        )
        verdict = rule(alone, logits[one], BatchSampler.of([Sampling(temperature=1.0, seed=b)]))
        assert (verdict.tip[0], verdict.bonus[0]) == (together.tip[b], together.bonus[b])


@pytest.mark.parametrize("name", [n for n in RULES if n != "block"])
def test_where_q_lies_does_not_matter(name: str) -> None:
    """q given as shuffled rows with an index says the same as q given a row a node."""
    proposal, logits = random_proposal(random_trees(300, 7), "distinct", 8)
    assert proposal.q is not None
    order = torch.randperm(SIZE, generator=torch.Generator().manual_seed(9))
    source = torch.where(proposal.source >= 0, order.argsort()[proposal.source.clamp(min=0)], -1)
    shuffled = Proposal(proposal.tree, proposal.q[:, order], "distinct", source)
    rule = RULES[name][0]
    assert same(rule(proposal, logits, sampler_of(300)), rule(shuffled, logits, sampler_of(300)))


SLOW = pytest.mark.slow  # a second each


@pytest.mark.parametrize(
    ("rule", "draw"),
    [
        (Rejection(), "distinct"),
        (Traversal(), "distinct"),
        (Block(), "distinct"),
        (PointMass(), "certain"),
        (Typical(), "certain"),
        *(
            pytest.param(r, d, marks=SLOW)
            for r, d in product((Rejection(), Traversal(), Block()), ("certain", "independent"))
        ),
        *(pytest.param(r, "independent", marks=SLOW) for r in (PointMass(), Coupled(), TopKLenient(), Threshold())),
    ],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_no_host_sync_and_one_graph(rule: Rule, draw: Draw) -> None:
    proposal, logits = random_proposal(random_trees(4, 11, chain=isinstance(rule, Block)), draw, 12)
    sampler = sampler_of(4)
    torch._dynamo.reset()
    # Made before the graph is: functools.cached_property takes a lock on Python 3.11, and no graph can hold one.
    assert proposal.tree.depth.shape == proposal.tree.ancestors.shape[:2]

    def judge(logits: Tensor) -> tuple[Tensor, Tensor]:
        verdict = rule(proposal, logits, sampler)
        return verdict.tip, verdict.bonus

    tip, bonus = torch.compile(judge, fullgraph=True, backend="eager")(logits)
    eager = rule(proposal, logits, sampler)
    assert tip.equal(eager.tip) and bonus.equal(eager.bonus)


@pytest.mark.parametrize("name", RULES)
def test_temperature_zero_is_greedy(name: str) -> None:
    """All mass on one token is a distribution like any other, and every rule then keeps what greedy decoding keeps."""
    rule, _ = RULES[name]
    proposal, logits = random_proposal(random_trees(3000, 13, chain=name == "block"), "certain", 14)
    wanted = Greedy()(proposal, logits, sampler_of(3000, 0.0))
    assert same(rule(proposal, logits, sampler_of(3000, 0.0)), wanted)
    warm = BatchSampler.of([Sampling(temperature=float(b == 0)) for b in range(3000)])  # one warm row, no short cut
    mixed = rule(proposal, logits, warm)
    assert mixed.tip[1:].equal(wanted.tip[1:]) and mixed.bonus[1:].equal(wanted.bonus[1:])


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges_of_arithmetic(name: str, dtype: torch.dtype) -> None:
    """p equal to q, p all on the guess, p all on another token, q zero at the guess: always a token, never an impossible one."""
    tree = TokenTree.chain(torch.tensor([[0, 1, 1, 1]] * 4))
    flat = torch.full((4, 4, 3), 1 / 3, dtype=dtype)
    p, q = flat.clone(), flat.clone()
    p[1], p[2] = torch.tensor([0.0, 1, 0]), torch.tensor([0.0, 0, 1])
    q[3] = torch.tensor([0.5, 0, 0.5])
    for seed in range(50):
        sampler = BatchSampler.of([Sampling(temperature=1.0, seed=seed)] * 4)
        verdict = RULES[name][0](Proposal(tree, q, "independent"), p.log(), sampler)
        assert verdict.tip[1] == 3, "what the target is sure of is kept"
        assert verdict.tip[2] == 0 and verdict.bonus[2] == 2
        rows = torch.arange(4)
        assert (p[rows, verdict.tip, verdict.bonus] > 0).all()
        if name in ("rejection", "block", "traversal"):
            assert verdict.tip[0] == 3, "p = q refuses nothing"


def test_block_refuses_branches() -> None:
    proposal, logits = random_proposal(random_trees(2, 15), "certain", 16)
    with pytest.raises(ValueError, match="use the rule Traversal"):
        Block()(proposal, logits, sampler_of(2))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Typical(epsilon=1.5), "epsilon in"),
        (lambda: Typical(delta=-1), "delta in"),
        (lambda: TopKLenient(0), "top of at least 1"),
        (lambda: TopKLenient(2, margin=2), "margin in"),
        (lambda: Threshold(7), "least in"),
    ],
)
def test_dials_are_checked(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_rules_say_whether_they_are_lossless() -> None:
    lossy = (Typical, TopKLenient, Threshold)
    exact = (Greedy, Rejection, PointMass, Coupled, Block, Traversal, Optimal)
    assert not any(rule.lossless for rule in lossy) and all(rule.lossless for rule in exact)
    assert [rule for rule in (*lossy, *exact) if "coupled" in rule.draws] == [Coupled]

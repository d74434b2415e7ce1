"""Losslessness by enumeration, and proofs that the proof can fail."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor

from toolkit.drafting.joined import branches
from toolkit.protocols import Draw, Proposal, Rule, Sampler, Verdict
from toolkit.sampling import filters
from toolkit.tree import TokenTree
from toolkit.verification import Block, Coupled, Greedy, Optimal, PointMass, Rejection, Traversal, Typical
from toolkit.verification import block as block_module
from toolkit.verification.enumerate import Truncation
from toolkit.verification.exhibits import BIASED, WASTEFUL, Exhibit
from toolkit.verification.point_mass import follow
from toolkit.verification.proof import TOLERANCE, prove
from toolkit.verification.toys import Drawn, Paths, Table, random_table, sample

P = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
Q = torch.tensor([0.1, 0.2, 0.4, 0.3], dtype=torch.float64)
DRAWS: tuple[Draw, ...] = ("certain", "independent", "distinct")
CHAIN, STAR = (-1, 0, 1), (-1, 0, 0)
TREES = ((-1, 0, 0, 1), (-1, 0, 0, 1, 1), (-1, 0, 1, 0, 3))
LARGE = ((-1, 0, 0, 1, 1, 2), (-1, 0, 0, 0, 1, 1, 4), (-1, 0, 1, 2, 2, 0, 5), (-1, 0, 1, 2, 3, 4, 5))


def top_k(k: int) -> Truncation:
    return lambda logits: filters.top_k(logits, torch.tensor(k), k)


def top_p(p: float) -> Truncation:
    return lambda logits: filters.top_p(logits, torch.tensor(p))


TRUNCATIONS: dict[str, Truncation | None] = {"all": None, "top-k 3": top_k(3), "top-p .8": top_p(0.8)}


ALLOWED = pytest.mark.parametrize(
    ("rule", "draw", "shapes"),
    [
        pytest.param(rule, draw, shapes, id=f"{type(rule).__name__}-{draw}")
        for draw in DRAWS
        for rule, shapes in (
            (Rejection(), (CHAIN, STAR, *TREES)),
            (PointMass(), (CHAIN, STAR, *TREES)),
            (Coupled(), (CHAIN, STAR, *TREES)),
            (Traversal(), (CHAIN, STAR, *TREES)),
            (Block(), (CHAIN, (-1, 0, 1, 2))),
            (Optimal(), (STAR, (-1, 0, 0, 1))),
        )
    ],
)


# The fast part: every rule and draw, three trees in one ragged batch, the joint law of two tokens across steps.


@ALLOWED
@pytest.mark.parametrize("truncation", TRUNCATIONS)
def test_lossless(rule: Rule, draw: Draw, shapes: tuple[tuple[int, ...], ...], truncation: str) -> None:
    few = [s for s in shapes if len(s) <= 4]
    proof = prove(rule, few, draw, vocabulary=4, truncation=TRUNCATIONS[truncation], cases=6, horizon=2)
    assert proof.exact, proof
    assert 0 < proof.accepted < 2


@dataclass(frozen=True)
class Mixed:
    """Three children of the root: two drawn without replacement, and a certain one between them."""

    def __call__(self, table: Table, parent: Tensor, root: Paths, sampler: Sampler) -> Proposal:
        tree, q = sample("distinct", table, parent[:, :3], root, sampler)
        first, second = tree.token[:, 1:2], tree.token[:, 2:]
        token = torch.cat([tree.token[:, :1], first, torch.ones_like(first), second], 1)
        source = torch.tensor([-1, 0, -1, 0]).expand_as(token)
        return Proposal(TokenTree(token, parent, torch.ones_like(token).bool()), q, "distinct", source)


@pytest.mark.parametrize("rule", [Rejection(), Traversal(), PointMass()], ids=lambda r: type(r).__name__)
def test_certain_nodes_among_sampled_ones(rule: Rule) -> None:
    assert prove(rule, (-1, 0, 0, 0), Mixed(), cases=10, horizon=2).exact


@dataclass(frozen=True)
class TwoDrafters:
    """Children of the root from two drafters, each with its own q; `each` of either, in one tree as `Mixture` joins them."""

    draw: Draw
    each: int
    other: Table = field(default_factory=lambda: random_table(4, 77))

    def __call__(self, table: Table, parent: Tensor, root: Paths, sampler: Sampler) -> Proposal:
        own = parent[:, : 1 + self.each]
        return branches([Drawn(self.draw)(t, own, root, sampler.apart(i)) for i, t in enumerate((table, self.other))])


@pytest.mark.parametrize("rule", [Rejection(), Traversal(), PointMass()], ids=lambda r: type(r).__name__)
@pytest.mark.parametrize(("draw", "each"), [("independent", 1), ("independent", 2), ("distinct", 2)])
def test_two_drafters_in_one_tree(rule: Rule, draw: Draw, each: int) -> None:
    cases = 10 if each == 1 else 3
    proof = prove(rule, (-1, *[0] * 2 * each), TwoDrafters(draw, each), vocabulary=4, cases=cases, horizon=3 - each)
    assert proof.exact, proof
    alone = prove(rule, (-1, *[0] * each), draw, vocabulary=4, cases=cases)
    assert proof.accepted > alone.accepted


@pytest.mark.parametrize("exhibit", BIASED, ids=lambda e: e.name)
def test_every_biased_exhibit_is_caught(exhibit: Exhibit) -> None:
    proof = exhibit.prove(cases=60)
    print(proof)
    assert proof.tv > 1e-3
    assert not exhibit.lossless and proof.counterexample is not None and "the target with" in proof.counterexample


@pytest.mark.parametrize("exhibit", WASTEFUL, ids=lambda e: e.name)
def test_every_wasteful_exhibit_is_exact(exhibit: Exhibit) -> None:
    proof = exhibit.prove(cases=60)
    assert exhibit.lossless and proof.exact and proof.counterexample is None
    better = prove(Rejection(), exhibit.shape, "distinct", cases=60)
    assert proof.accepted < better.accepted


@pytest.mark.parametrize(
    ("name", "accepted", "tv"),
    [
        ("replacement claimed", 0.7857, 0.0391),
        ("replacement denied", 0.7050, 0.0350),
        ("siblings sorted", 0.7717, 0.1579),
        ("the better of two", 0.4841, 0.1579),
        ("top tokens with soft q", 0.5000, 0.4000),
        ("samples taken for certain", 0.4302, 0.0),
        ("the better of two, taken for certain", 0.1810, 0.0),
        ("a sample that must be met", 0.2100, 0.0),
    ],
)
def test_exhibits_on_the_toy(name: str, accepted: float, tv: float) -> None:
    exhibit = next(e for e in (*BIASED, *WASTEFUL) if e.name == name)
    proof = exhibit.prove(p=P, q=Q)
    assert (round(proof.accepted, 4), round(proof.tv, 4)) == (accepted, tv)


@pytest.mark.parametrize(
    ("shape", "draw", "accepted"),
    [((-1, 0), "independent", 0.6), (STAR, "independent", 0.72), (STAR, "distinct", 0.7619), (STAR, "certain", 0.3)],
)
def test_rejection_on_the_toy(shape: tuple[int, ...], draw: Draw, accepted: float) -> None:
    proof = prove(Rejection(), shape, draw, p=P, q=Q)
    assert round(proof.accepted, 4) == accepted and proof.exact


def test_blocks_toy_with_two_tokens() -> None:
    """The introduction of Sun et al. 2024: 10/9 accepted guesses become 11/9."""
    p, q = torch.tensor([1, 2]) / 3, torch.tensor([2, 1]) / 3
    token_by_token, block = (prove(rule, CHAIN, "independent", p=p, q=q) for rule in (Rejection(), Block()))
    assert token_by_token.accepted == pytest.approx(10 / 9, abs=1e-6)
    assert block.accepted == pytest.approx(11 / 9, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_acceptance_of_coupled_guesses(seed: int) -> None:
    """The two sums of the docstring of `coupled`: what the enumeration finds is what the formula says."""
    p, q = (x / x.sum() for x in torch.rand(2, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    proof = prove(Coupled(), (-1, 0), "coupled", p=p, q=q)
    formula = sum(float(1 / torch.maximum(p / p[x], q / q[x]).sum()) for x in range(5))
    apart = float((p - q).abs().sum() / 2)
    assert proof.exact and proof.plain
    assert proof.accepted == pytest.approx(formula, abs=1e-12)
    assert (1 - apart) / (1 + apart) < proof.accepted < 1 - apart
    assert float((p * q).sum()) < proof.accepted


def test_coupled_guesses_are_accepted_along_a_chain() -> None:
    proof, apart = (prove(Coupled(), (-1, 0, 1, 2), draw, cases=20) for draw in ("coupled", "independent"))
    assert proof.exact and apart.exact and (proof.accepted_of > apart.accepted_of).all()


@pytest.mark.parametrize(
    ("rule", "plain"), [(PointMass(), True), (Coupled(), True), (Rejection(), False), (Block(), False)]
)
def test_plain_tells_whose_text_it_is(rule: Rule, plain: bool) -> None:
    assert prove(rule, CHAIN, "independent", vocabulary=3, horizon=2).plain is plain


def test_the_counterexample_names_the_context() -> None:
    """A rule that errs after the first token alone, and only where the enumeration says."""
    exhibit = next(e for e in BIASED if e.name == "parameters of the wrong rows")
    proof = exhibit.prove(vocabulary=4)
    first_said, first_wanted = proof.marginal(1)
    assert torch.allclose(first_said, first_wanted, atol=TOLERANCE)
    assert proof.counterexample is not None and proof.counterexample.startswith("after '")
    assert "NOT exact" in str(proof)


# What the enumeration must refuse.


def of_a_cell(proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
    """As one would type it into a cell: a function, no base class, no attributes."""
    tree, probs = proposal.tree, sampler.probs(logits, proposal.tree)
    root = torch.zeros_like(tree.parent[:, 0])
    return Verdict(root, sampler.emit(probs[:, 0], root + 1))


def test_a_function_will_do() -> None:
    proof = prove(of_a_cell, CHAIN, "independent")
    assert proof.exact and str(proof).startswith("of_a_cell on independent guesses: exact")


@dataclass
class Elsewhere:
    """Takes a guess or leaves it, by a number the sampler knows nothing of."""

    source: str
    generator: torch.Generator = field(default_factory=torch.Generator)
    calls: int = 0

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        self.calls += 1
        rows = proposal.tree.rows
        u = {
            "torch": lambda: torch.rand(rows) if self.source == "torch" else None,
            "numpy.random": lambda: torch.from_numpy(np.random.rand(rows)),  # noqa: NPY002
            "random": lambda: torch.tensor([random.random() for _ in range(rows)]),
            "own": lambda: torch.rand(rows, generator=self.generator),
            "count": lambda: torch.full((rows,), self.calls % 2),
        }[self.source]()
        assert u is not None
        probs = sampler.probs(logits, proposal.tree)
        tip = (u < 0.5).long()
        return Verdict(tip, sampler.emit(probs[torch.arange(rows), tip], tip + 1))


@pytest.mark.parametrize("source", ["torch", "numpy.random", "random"])
def test_chance_from_elsewhere_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match=f"takes chance from {source}"):
        prove(Elsewhere(source), (-1, 0), "independent")


@pytest.mark.parametrize("source", ["own", "count"])
def test_chance_from_a_hidden_source_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="when it was run again"):
        prove(Elsewhere(source), (-1, 0), "independent")


def test_rows_that_look_at_one_another_are_refused() -> None:
    def averaged(proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        return of_a_cell(proposal, logits.mean(0, keepdim=True).expand_as(logits), sampler)

    with pytest.raises(ValueError, match="rows look at one another"):
        prove(averaged, (-1, 0), "independent", cases=2)


def test_a_coin_tossed_twice_is_refused() -> None:
    """Two siblings and one lane: with keyed noise the second coin is the first one again."""

    def lanes_forgotten(proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        tree, probs = proposal.tree, sampler.probs(logits, proposal.tree)
        tip = torch.zeros_like(tree.parent[:, 0])
        for i in range(1, tree.size):
            taken, _ = sampler.coin(torch.where(tip == 0, 0.5, 0.0), tree.depth[:, i])
            tip = torch.where(taken, i, tip)
        return Verdict(tip, sampler.emit(probs[:, 0], tree.depth[torch.arange(tree.rows), tip] + 1))

    with pytest.raises(ValueError, match=r"noise of the coin at position 1 again.*its own lane"):
        prove(lanes_forgotten, STAR, "independent")


def test_block_without_depth_in_its_lanes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one step nothing is wrong. In the next, the coin of a refused guess is tossed again."""
    monkeypatch.setattr(block_module, "leafward", lambda depth, rank=0: 0 * depth + rank)
    assert prove(Block(), CHAIN, "independent", horizon=1).exact
    with pytest.raises(ValueError, match="noise of the coin at position 2 again"):
        prove(Block(), CHAIN, "independent", horizon=2)


def test_a_third_draw_from_one_race_is_refused() -> None:
    def thrice(proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        probs, root = sampler.probs(logits, proposal.tree), torch.zeros_like(proposal.tree.parent[:, 0])
        tokens = [sampler.emit(probs[:, 0] ** power, root + 1) for power in (1, 2, 3)]
        return Verdict(root, tokens[-1])

    with pytest.raises(ValueError, match="noise of the emit at position 1 again"):
        prove(thrice, (-1, 0), "independent")


@pytest.mark.parametrize(
    ("tip", "bonus", "words"), [(3, 0, "tip must be a real node"), (0, 9, "bonus must be a token")]
)
def test_verdicts_that_point_nowhere_are_refused(tip: int, bonus: int, words: str) -> None:
    def nowhere(proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        root = torch.zeros_like(proposal.tree.parent[:, 0])
        return Verdict(root + tip, root + bonus)

    with pytest.raises(ValueError, match=words):
        prove(nowhere, (-1, 0), "independent")


def test_nan_is_refused() -> None:
    def broken(proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        return follow(proposal, sampler.probs(logits * torch.nan, proposal.tree), sampler)

    with pytest.raises(ValueError, match="not a number"):
        prove(broken, (-1, 0), "independent")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"shape": (0, 1)}, "a shape lists parents"),
        ({"shape": (-1, 1)}, "a shape lists parents"),
        ({"draw": "coupled"}, "made for"),
        ({"horizon": 0}, "at least 1"),
        ({"cases": 0}, "at least 1"),
    ],
)
def test_bad_questions(arguments: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        prove(Rejection(), **{"shape": (-1, 0), "draw": "independent"} | arguments)


def test_questions_that_coupled_noise_cannot_answer() -> None:
    with pytest.raises(ValueError, match="horizon=1"):
        prove(Coupled(), CHAIN, "coupled", horizon=2)
    with pytest.raises(ValueError, match="a coupled draft is a chain"):
        prove(Coupled(), STAR, "coupled")


def test_rules_refuse_what_they_are_not_made_for() -> None:
    with pytest.raises(ValueError, match="Block verifies chains"):
        prove(Block(), STAR, "independent")
    with pytest.raises(ValueError, match="temperature 0 only"):
        prove(Greedy(), CHAIN, "certain")


def test_lossy_rules_are_seen_to_be() -> None:
    assert not prove(Typical(), CHAIN, "independent", cases=5).exact


# The sweeps.


@pytest.mark.slow
@ALLOWED
def test_lossless_on_sixty_pairs(rule: Rule, draw: Draw, shapes: tuple[tuple[int, ...], ...]) -> None:
    for shape in shapes:
        for name, truncation in TRUNCATIONS.items():
            proof = prove(rule, shape, draw, truncation=truncation, cases=60, seed=1)
            assert proof.exact, (shape, name, str(proof))


@pytest.mark.slow
@pytest.mark.parametrize("shape", LARGE, ids=str)
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("rule", [Rejection(), PointMass(), Traversal()], ids=lambda r: type(r).__name__)
def test_lossless_on_large_trees(rule: Rule, draw: Draw, shape: tuple[int, ...]) -> None:
    """Six and seven nodes: twenty pairs where truncation leaves few drafts, one pair without it."""
    for name, truncation in TRUNCATIONS.items():
        proof = prove(rule, shape, draw, truncation=truncation, cases=20 if truncation else 1, seed=2)
        assert proof.exact, (name, str(proof))


@pytest.mark.slow
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("rule", [Rejection(), PointMass(), Block(), Traversal()], ids=lambda r: type(r).__name__)
def test_lossless_over_three_tokens(rule: Rule, draw: Draw) -> None:
    for shape in (CHAIN,) if isinstance(rule, Block) else (CHAIN, STAR, (-1, 0, 0, 1)):
        proof = prove(rule, shape, draw, cases=4, horizon=3, seed=4)
        assert proof.exact, (shape, str(proof))


THOUSAND = pytest.mark.parametrize("cases", [50, pytest.param(1000, marks=pytest.mark.slow)])


@THOUSAND
def test_block_accepts_no_less_than_token_by_token(cases: int) -> None:
    for shape in (CHAIN, (-1, 0, 1, 2)):
        block, token = (prove(r, shape, "independent", vocabulary=4, cases=cases) for r in (Block(), Rejection()))
        assert (block.accepted_of > token.accepted_of - TOLERANCE).all()
        assert block.accepted > token.accepted + 0.01


@THOUSAND
def test_traversal_accepts_no_less_than_rejection(cases: int) -> None:
    for shape in ((-1, 0, 0, 1), (-1, 0, 0, 1, 2)) if cases > 100 else ((-1, 0, 0, 1, 1),):
        traversal, top_down = (
            prove(r, shape, "distinct", vocabulary=4, cases=cases) for r in (Traversal(), Rejection())
        )
        assert (traversal.accepted_of > top_down.accepted_of - TOLERANCE).all()
        assert traversal.accepted > top_down.accepted + 0.01
        torch.testing.assert_close(traversal.reach[:, 1], top_down.reach[:, 1])  # on the first level they are equals
        assert (traversal.reach > top_down.reach - TOLERANCE).all()


def test_traversal_of_certain_nodes_gains_nothing() -> None:
    for shape in TREES:
        traversal, top_down = (prove(rule, shape, "certain", cases=100) for rule in (Traversal(), Rejection()))
        torch.testing.assert_close(traversal.reach, top_down.reach, rtol=0, atol=TOLERANCE)


@THOUSAND
def test_nothing_beats_the_optimal_transport(cases: int) -> None:
    for draw in DRAWS:
        best, *others = (
            prove(rule, STAR, draw, vocabulary=4, cases=cases)
            for rule in (Optimal(), Rejection(), Traversal(), PointMass())
        )
        assert best.exact
        for other in others:
            assert (best.accepted_of > other.accepted_of - TOLERANCE).all()

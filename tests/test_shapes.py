"""Planned trees and the worth of a chain, against published numbers and exhaustive search."""

from __future__ import annotations

import functools
from itertools import combinations, product

import pytest
from tiny import PROMPTS, greedy, lm, noisy_lm

from toolkit.drafting import DraftModel
from toolkit.drafting.costs import expected_tokens, optimal_gamma, speedup
from toolkit.drafting.planned import expected, from_ranks, optimal
from toolkit.engine import Engine
from toolkit.sampling import Stopping

B = (0.6, 0.15, 0.07, 0.04)


@pytest.mark.parametrize(("alpha", "gamma", "times"), [(0.5, 3, 1.63), (0.7, 6, 2.35), (0.8, 8, 3.09), (0.9, 13, 4.67)])
def test_optimal_gamma(alpha, gamma, times):
    assert optimal_gamma(alpha, 0.05) == gamma
    assert speedup(alpha, gamma, 0.05) == pytest.approx(times, abs=0.005)


def test_drafting_that_cannot_pay_is_not_done():
    assert optimal_gamma(0.3, 0.5) == 0
    assert expected_tokens(0.0, 5) == 1


@pytest.mark.parametrize(("nodes", "tokens"), [(8, 2.636), (16, 3.076), (64, 3.875)])
def test_optimal_trees(nodes, tokens):
    shape = optimal(B, nodes)
    assert len(shape.choices) == nodes - 1
    assert expected(shape, [B] * nodes) == pytest.approx(tokens, abs=0.0005)


@functools.cache
def sequoia(nodes: int) -> float:
    """The dynamic programme, over how the nodes are dealt to the ranks."""
    deals = (d for d in product(range(nodes), repeat=len(B)) if sum(d) == nodes - 1)
    return 1 + max(sum(b * sequoia(n) for b, n in zip(B, d, strict=True) if n) for d in deals)


@pytest.mark.parametrize("nodes", [2, 5, 9])
def test_greedy_equals_the_dynamic_programme(nodes):
    assert expected(optimal(B, nodes), [B] * nodes) == pytest.approx(sequoia(nodes))


def test_from_ranks_is_the_best_of_all_trees():
    a = [[0.3, 0.5], [0.2, 0.6], [0.9]]
    paths = [p for h in (1, 2, 3) for p in product((0, 1), repeat=h) if h < 3 or p[-1] == 0]

    def value(tree):
        total = 1.0
        for path in tree:
            part = 1.0
            for h, r in enumerate(path):
                part *= a[h][r]
            total += part
        return total

    for nodes in (2, 4, 6):
        closed = [t for t in combinations(paths, nodes - 1) if all(len(p) == 1 or p[:-1] in t for p in t)]
        assert expected(from_ranks(a, nodes), a) == pytest.approx(max(map(value, closed)))


def test_a_cost_curve_stops_growth():
    steep = optimal(B, 64, cost=lambda n: 1.0 + n)
    flat = optimal(B, 64, cost=lambda n: 1.0)
    assert len(flat.choices) == 63 and len(steep.choices) < 10


@pytest.mark.parametrize("call", [lambda: optimal(B, 1), lambda: optimal((1.2,), 4), lambda: optimal((0.0,), 4)])
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError, match=r"planned tree|probabilities"):
        call()


def test_planned_trees_change_no_token():
    engine = Engine(lm(), DraftModel(noisy_lm(), optimal(B, 12)))
    lengths = (20, 7, 1, 13)
    session = engine.generate(PROMPTS, stopping=[Stopping(n) for n in lengths])
    assert session.outputs == [g[:n] for g, n in zip(greedy(), lengths, strict=True)]

"""The optimal transport against a linear programme and against the minimal cut."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from toolkit.protocols import Draw
from toolkit.verification import Optimal
from toolkit.verification.flow import maximal_flow
from toolkit.verification.optimal import best_acceptance
from toolkit.verification.proof import prove

CASES = [(seed, k, draw) for seed in range(4) for k in (1, 2, 3) for draw in ("independent", "distinct")]


def pair(seed: int, size: int = 5) -> tuple[list[float], list[float]]:
    p, q = torch.rand(2, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 2
    return (p / p.sum()).tolist(), (q / q.sum()).tolist()


def sequences(q: list[float], k: int, draw: Draw) -> dict[tuple[int, ...], float]:
    """Every sequence of k siblings and its probability, drawn one after another."""
    out = {(): 1.0}
    for _ in range(k):
        out = {
            (*s, x): mass * q[x] / (1 if draw == "independent" else 1 - sum(q[y] for y in s))
            for s, mass in out.items()
            for x in range(len(q))
            if draw == "independent" or x not in s
        }
    return out


@pytest.mark.parametrize(("seed", "k", "draw"), CASES)
def test_value_is_that_of_the_linear_programme(seed: int, k: int, draw: Draw) -> None:
    p, q = pair(seed)
    law = list(sequences(q, k, draw).items())
    pairs = [(i, y) for i, (s, _) in enumerate(law) for y in sorted(set(s))]
    limits = np.zeros((len(law) + len(p), len(pairs)))
    for column, (i, y) in enumerate(pairs):
        limits[i, column] = limits[len(law) + y, column] = 1
    result = linprog(-np.ones(len(pairs)), limits, [mass for _, mass in law] + p)
    assert best_acceptance(p, q, k, draw) == pytest.approx(-result.fun, abs=1e-9)


@pytest.mark.parametrize(("seed", "k", "draw"), CASES)
def test_value_is_that_of_the_minimal_cut(seed: int, k: int, draw: Draw) -> None:
    """Hu et al. 2025: the least of 1 - p(A) + P(a sibling lies in A)."""
    p, q = pair(seed)
    law = sequences(q, k, draw)
    cuts = [
        1 - sum(p[x] for x in a) + sum(mass for s, mass in law.items() if set(s) & set(a))
        for size in range(len(p) + 1)
        for a in combinations(range(len(p)), size)
    ]
    assert best_acceptance(p, q, k, draw) == pytest.approx(min(cuts), abs=1e-14)


@pytest.mark.parametrize(("seed", "k", "draw"), CASES[::3])
def test_the_rule_attains_it(seed: int, k: int, draw: Draw) -> None:
    p, q = pair(seed, 4)
    proof = prove(Optimal(), (-1, *[0] * k), draw, p=torch.tensor(p).double(), q=torch.tensor(q).double())
    assert proof.exact
    assert proof.accepted == pytest.approx(best_acceptance(p, q, k, draw), abs=1e-6)


def test_augmenting_paths_take_back() -> None:
    """The first set must give up the token that the second one needs."""
    flow = maximal_flow([(frozenset({0, 1}), 0.5), (frozenset({0}), 0.5)], [0.5, 0.5])
    assert flow == [[0.0, 0.5], [0.5, 0.0]]


def test_too_many_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 4096"):
        best_acceptance([1 / 40] * 40, [1 / 40] * 40, 4, "distinct")

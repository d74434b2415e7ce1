"""Tests of counts, bounds, sample sizes and the frontier of lossy rules."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from toolkit.protocols import Rule, Verdict
from toolkit.verification import Block, Rejection, Threshold, TopKLenient, Typical
from toolkit.verification.drift import frontier, table
from toolkit.verification.exhibits import BIASED
from toolkit.verification.proof import prove
from toolkit.verification.statistics import chi_square, g_test, samples_needed, tv_bounds
from toolkit.widgets import drift_figure

P8 = torch.tensor([0.30, 0.22, 0.15, 0.12, 0.09, 0.06, 0.04, 0.02], dtype=torch.float64)
Q8 = torch.tensor([0.10, 0.34, 0.05, 0.20, 0.06, 0.10, 0.05, 0.10], dtype=torch.float64)


def counts(law: torch.Tensor, n: int, seed: int = 0) -> torch.Tensor:
    drawn = torch.multinomial(law, n, replacement=True, generator=torch.Generator().manual_seed(seed))
    return torch.bincount(drawn, minlength=len(law))


def test_against_scipy() -> None:
    seen = counts(P8, 5000)
    expected = (P8 * 5000).numpy()
    for ours, name in ((chi_square(seen, P8), "pearson"), (g_test(seen, P8), "log-likelihood")):
        theirs = stats.power_divergence(seen.numpy(), expected, lambda_=name)
        assert ours.statistic == pytest.approx(theirs.statistic) and ours.p_value == pytest.approx(theirs.pvalue)
        assert ours.holds() and ours.cells == 8 and ours.outside == 0


def test_a_fault_is_seen_and_so_is_the_impossible() -> None:
    assert not chi_square(counts(Q8, 500), P8).holds() and not g_test(counts(Q8, 500), P8).holds()
    found = chi_square([10, 10, 1], [0.5, 0.5, 0.0])
    assert found.outside == 1 and not found.holds()


def test_rare_outcomes_are_taken_together() -> None:
    law = [0.9, *[0.02] * 5]
    fit = chi_square([90, 10, 0, 0, 0, 0], law)
    assert fit.cells == 2 and fit.statistic == 0


def test_alarms_are_as_rare_as_they_should_be() -> None:
    p_values = [chi_square(counts(P8, 1000, seed), P8).p_value for seed in range(400)]
    assert stats.kstest(p_values, "uniform").pvalue > 1e-4


def test_bounds_hold_and_tighten() -> None:
    apart = float((P8 - Q8).abs().sum() / 2)
    misses = 0
    for seed in range(200):
        low, high = tv_bounds(counts(Q8, 500, seed), P8, confidence=0.9)
        misses += not low <= apart <= high
    assert misses <= 40
    wide, narrow = (tv_bounds(counts(P8, n), P8) for n in (100, 100_000))
    assert narrow[0] == 0 and narrow[1] < 0.02 < wide[1]


@pytest.mark.parametrize("name", ["residual skipped", "no coin", "greedy draft, soft q", "q before temperature"])
def test_samples_needed_is_where_the_power_is(name: str) -> None:
    """With that many samples of the exhibit the test sees it almost always; with a fifth of them, not."""
    fault = next(e for e in BIASED if e.name == name).prove(p=P8, q=Q8).law[0]
    n = samples_needed(P8, fault, power=0.9)
    seen = [sum(not chi_square(counts(fault, m, s), P8).holds() for s in range(100)) / 100 for m in (n, n // 5)]
    assert seen[0] > 0.75 and seen[1] < 0.5


def test_samples_needed_knows_the_noncentral_law() -> None:
    fault = 0.9 * P8 + 0.1 * Q8
    n = samples_needed(P8, fault, power=0.995, alpha=5e-5)
    per_sample = float(((fault - P8) ** 2 / P8).sum())
    bar = stats.chi2.isf(5e-5, 7)
    assert stats.ncx2.sf(bar, 7, n * per_sample) >= 0.995 > stats.ncx2.sf(bar, 7, (n - 1) * per_sample)


def test_one_impossible_sample_is_enough() -> None:
    law, fault = [0.5, 0.5, 0.0], [0.5, 0.4, 0.1]
    assert samples_needed(law, fault, power=0.995) == math.ceil(math.log(0.005) / math.log(0.9))
    assert samples_needed([1.0, 0.0], [0.0, 1.0]) == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: chi_square([1, 2], [0.5, 0.25, 0.25]), "one entry an outcome"),
        (lambda: chi_square([1, -1], [0.5, 0.5]), "must not be negative"),
        (lambda: g_test([0, 0], [0.5, 0.5]), "must have been counted"),
        (lambda: chi_square([1, 2], [0.5, 0.6]), "sums to 1"),
        (lambda: tv_bounds([1, 2], [0.5, 0.5], confidence=1.0), "between 0 and 1"),
        (lambda: samples_needed([0.5, 0.5], [0.5, 0.5]), "are the same"),
    ],
)
def test_bad_input(call, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_the_frontier_of_lossy_rules() -> None:
    """A lower bar accepts more and drifts further; with every guess accepted the output is the drafter's."""
    dial = (1.0, 0.3, 0.09, 0.03, 0.01, 0.0)
    rules: dict[str, Rule] = {str(e): Typical(epsilon=e, delta=e**0.5) for e in dial}
    points = {p.name: p for p in frontier(rules | {"exact": Rejection(), "block": Block()}, cases=4)}
    accepted = [points[str(e)].accepted for e in dial]
    assert accepted == sorted(accepted) and accepted[-1] == pytest.approx(3)
    assert points["0.0"].tv[1] > points["0.09"].tv[1] > points["exact"].tv[1]
    assert max(points["exact"].tv + points["block"].tv + points["exact"].kl) < 1e-12
    assert points["block"].lossless and not points["0.3"].lossless
    assert points["block"].accepted > points["exact"].accepted


def test_drift_adds_up_to_that_of_the_joint_law() -> None:
    """kl by position sums to kl of the joint laws, and the rule that accepts everything writes the drafter's text."""
    (point,) = frontier({"all": Threshold(0.0)}, (-1, 0, 1), cases=1, p=P8, q=Q8)
    proof = prove(Threshold(0.0), (-1, 0, 1), "independent", p=P8, q=Q8, horizon=2)
    joint = float((proof.law * (proof.law / proof.target).log()).sum())
    assert sum(point.kl) == pytest.approx(joint)
    assert point.tv == pytest.approx([float((P8 - Q8).abs().sum() / 2)] * 2)


def test_what_the_target_never_says_is_infinitely_far() -> None:
    p = torch.tensor([0.5, 0.5, 0.0])

    def parrot(proposal, logits, sampler):
        first = proposal.tree.token[:, 1] * 0 + 1
        return Verdict(first, first * 2)

    (point,) = frontier({"parrot": parrot}, (-1, 0), cases=1, horizon=2, p=p, q=torch.tensor([0.2, 0.2, 0.6]))
    assert point.kl[0] == math.inf and point.tv[0] > 0.5


def test_top_k_lenient_drifts_with_k() -> None:
    points = frontier({f"top {k}": TopKLenient(k) for k in (1, 2, 4)}, cases=5)
    assert [p.name for p in points] == ["top 1", "top 2", "top 4"]


def test_the_frontier_as_a_table_and_a_figure() -> None:
    points = frontier({"exact": Rejection(), "lenient": TopKLenient(2), "all": Threshold(0.0)}, cases=3)
    lines = table(points).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {p.name}" for p in points]
    assert f"| {points[0].accepted:.3f} | " in lines[2]
    figure = drift_figure(points)
    drawn = {(t.xaxis, name): (x, y) for t in figure.data for name, x, y in zip(t.text, t.x, t.y, strict=True)}
    for p in points:
        assert drawn["x", p.name] == (sum(p.tv) / len(p.tv), p.accepted)
        assert drawn["x2", p.name] == (sum(p.kl) / len(p.kl), p.accepted)
    assert {t.name for t in figure.data if "exact" in t.text} == {"lossless"}
    with pytest.raises(ValueError, match="nothing to draw"):
        drift_figure([])

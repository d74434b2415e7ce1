"""Rank acceptance, calibration and cost of drafting, on records whose answers are known."""

from __future__ import annotations

import copy
from math import isnan

import pytest
from scipy.stats import binomtest
from tiny import PROMPTS, Parrot, lm, noisy_lm

from toolkit.drafting import DraftModel, Dynamic, Nothing
from toolkit.drafting.planned import from_ranks
from toolkit.engine import Engine
from toolkit.models.hf import HFModel
from toolkit.sampling import Sampling, Stopping
from toolkit.trace import RowRecord, StepRecord
from toolkit.trace.measures import Rate, calibration_error, draft_ms_per_guess, rank_acceptance, reliability


def row(parent: list[int], tip: int, confidence: list[float]) -> RowRecord:
    n = len(parent)
    one = (1.0,) * n
    return RowRecord(0, tuple(range(n)), tuple(parent), tip, 9, (9,), (0,) * n, one, one, one, one, tuple(confidence))


def steps(*rows: RowRecord, draft: float = 6.0) -> list[StepRecord]:
    return [StepRecord(i, (r,), "d", "r", len(r.token), {"draft": draft, "target": 1.0}) for i, r in enumerate(rows)]


def test_ranks_follow_confidence_and_count_below_kept_nodes_alone():
    # Node 2 is surer than 1; 2 is kept, and of its children 4 and 5 the less sure 5; 3 hangs on a refused node.
    found = rank_acceptance(steps(row([-1, 0, 0, 1, 2, 2], 5, [1, 0.2, 0.7, 0.9, 0.6, 0.3])))
    assert found == [[Rate(1, 1), Rate(1, 0)], [Rate(1, 0), Rate(1, 1)]]
    twice = rank_acceptance(steps(row([-1, 0, 0], 0, [1, 0.5, 0.5]), row([-1, 0, 0], 2, [1, 0.5, 0.5])))
    assert twice == [[Rate(2, 0), Rate(2, 1)]]


def test_calibration_by_hand():
    some = steps(row([-1, 0], 1, [1, 0.95]), row([-1, 0], 0, [1, 0.95]), row([-1, 0, 0], 0, [1, 0.42, 0.05]))
    bins = reliability(some)
    assert [(b.low, b.outcome.reached, b.outcome.accepted) for b in bins] == [(0.0, 1, 0), (0.4, 1, 0), (0.9, 2, 1)]
    assert calibration_error(some) == pytest.approx((0.05 + 0.42 + 2 * abs(0.95 - 0.5)) / 4)
    with pytest.raises(ValueError, match="bin"):
        reliability(some, bins=0)


def test_cost_is_shared_by_all_guesses():
    assert draft_ms_per_guess(steps(row([-1, 0, 0], 0, [1, 0.5, 0.5]), row([-1, 0], 1, [1, 0.5]))) == pytest.approx(4.0)


def test_without_guesses_there_is_nothing_to_say():
    plain = Engine(lm(0), Nothing(), stopping=Stopping(4)).generate(PROMPTS).trace.steps
    assert rank_acceptance(plain) == [] and isnan(calibration_error(plain)) and isnan(draft_ms_per_guess(plain))
    parrot = Engine(lm(0), Parrot(), stopping=Stopping(4)).generate(PROMPTS).trace.steps
    assert reliability(parrot) == [] and rank_acceptance(parrot)


@pytest.mark.parametrize(("reached", "accepted"), [(10, 3), (50, 50), (7, 0)])
def test_intervals_are_wilsons(reached, accepted):
    low, high = Rate(reached, accepted).interval()
    theirs = binomtest(accepted, reached).proportion_ci(method="wilson")
    assert low == pytest.approx(theirs.low, abs=1e-4) and high == pytest.approx(theirs.high, abs=1e-4)
    assert Rate(0, 0).interval() == (0.0, 1.0)


def test_a_drafter_that_is_the_target_is_calibrated_and_a_louder_one_is_not():
    """Sampling at temperature 1, guesses are right as often as the target's own probability says."""
    prompts, sampling = PROMPTS * 12, [Sampling(1.0, seed=s) for s in range(48)]

    def error(model: HFModel) -> float:
        engine = Engine(lm(0), DraftModel(model, Dynamic(3, 3, 9)), stopping=Stopping(40))
        return calibration_error(engine.generate(prompts, sampling=sampling).trace.steps)

    assert error(HFModel(lm(0).model)) < 0.03
    loud = copy.deepcopy(lm(0).model)
    loud.lm_head.weight.data *= 4
    assert error(HFModel(loud)) > 0.05


def test_measured_ranks_plan_a_tree():
    engine = Engine(lm(0), DraftModel(noisy_lm(), Dynamic(3, 3, 12)), stopping=Stopping(40))
    found = rank_acceptance(engine.generate(PROMPTS).trace.steps)
    shape = from_ranks([[r.rate for r in depth] for depth in found], 8)
    assert 1 <= len(shape.choices) <= 7
    engine.drafter = DraftModel(noisy_lm(), shape)
    assert engine.generate(PROMPTS).outputs == Engine(lm(0), stopping=Stopping(40)).generate(PROMPTS).outputs

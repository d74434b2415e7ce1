"""Shapes chosen by the number of running rows and by measured cost."""

from __future__ import annotations

import pytest
from tiny import PROMPTS, greedy, lm, noisy_lm

from toolkit.drafting import ByBatch, ByCost, Chain, DraftModel, Dynamic, Eagle, EarlyExit, Medusa
from toolkit.drafting.costs import optimal_gamma
from toolkit.engine import Engine
from toolkit.heads import EagleHead, MedusaHead
from toolkit.models.early_exit import first_layers
from toolkit.sampling import Stopping
from toolkit.trace import RowRecord, StepRecord
from toolkit.trace.measures import cost_curve

LENGTHS = (40, 8, 12, 20)
WRAPS = {
    "model": lambda shape: DraftModel(noisy_lm(), shape),
    "early exit": lambda shape: EarlyExit(first_layers(lm(0), 1), shape),
    "eagle": lambda shape: Eagle(EagleHead.of(lm(0)), shape),
    "medusa": lambda shape: Medusa(MedusaHead.of(lm(0)), shape),
}


@pytest.mark.parametrize("name", WRAPS)
def test_fewer_running_rows_get_longer_drafts(name):
    table = {1: Chain(3), 3: Dynamic(2, 2, 4)}  # four rows: nothing
    engine = Engine(lm(0), WRAPS[name](ByBatch(table)))
    session = engine.start(PROMPTS, stopping=[Stopping(n) for n in LENGTHS])
    seen: dict[int, set[int]] = {}
    while not session.done:
        running = sum(room > 0 for room in session.context().room)
        seen.setdefault(running, set()).add(engine.step(session).nodes)
    assert session.outputs == [g[:n] for g, n in zip(greedy(), LENGTHS, strict=True)]
    assert seen[4] == {1} and seen[1] - {1, 2, 3} == {4}
    assert max(seen[3] | seen.get(2, set())) == 5


@pytest.mark.parametrize(("alpha", "c"), [(0.5, 0.05), (0.8, 0.05), (0.9, 0.05), (0.3, 0.5)])
def test_a_flat_cost_gives_leviathans_gamma(alpha, c):
    assert ByCost(alpha, lambda nodes: 10.0, 10.0 * c).length(7) == optimal_gamma(alpha, c, 16)


def test_rows_share_the_pass_so_many_of_them_draft_less():
    shape = ByCost(0.8, lambda nodes: max(10.0, 0.5 * nodes), 0.5)  # arithmetic is the limit from 20 nodes on
    lengths = [shape.length(rows) for rows in (1, 2, 4, 8, 64)]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] >= 6 and lengths[-1] == 0


def test_chosen_by_cost_it_changes_no_token():
    shape = ByCost(0.7, lambda nodes: 1.0 + 0.02 * nodes, 0.05)
    session = Engine(lm(0), DraftModel(noisy_lm(), shape), stopping=Stopping(30)).generate(PROMPTS)
    assert session.outputs == [g[:30] for g in greedy()]
    assert {s.nodes for s in session.trace.steps} >= {1 + shape.length(4)}


def test_a_shape_typed_into_a_cell():
    class Alternating:
        def __init__(self) -> None:
            self.calls = 0

        def pick(self, context):
            self.calls += 1
            return Chain(3) if self.calls % 2 else None

    session = Engine(lm(0), DraftModel(noisy_lm(), Alternating()), stopping=Stopping(12)).generate(PROMPTS)
    assert session.outputs == [g[:12] for g in greedy()]
    assert {s.nodes for s in session.trace.steps[:4]} == {1, 4}


def steps(*pairs: tuple[int, float]) -> list[StepRecord]:
    row = RowRecord(0, (1,), (-1,), 0, 1, (1,), (0,), (1.0,), (1.0,), (1.0,), (1.0,))
    return [StepRecord(i, (row, row, None), "d", "r", nodes, {"target": ms}) for i, (nodes, ms) in enumerate(pairs)]


def test_the_cost_curve_is_made_of_medians_and_straight_lines():
    cost = cost_curve(steps((1, 10.0), (1, 12.0), (1, 90.0), (5, 20.0), (10, 40.0)))  # two running rows
    assert [cost(n) for n in (1, 2, 6, 10, 20, 30)] == [12.0, 12.0, 16.0, 20.0, 40.0, 60.0]
    assert cost_curve(steps((3, 7.0)))(100) == 7.0
    with pytest.raises(ValueError, match="needs steps"):
        cost_curve([])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ByBatch({}), "ByBatch needs"),
        (lambda: ByBatch({0: Chain()}), "ByBatch needs"),
        (lambda: ByCost(1.0, float, 0.1), "alpha"),
        (lambda: ByCost(0.5, float, -0.1), "at least 0"),
        (lambda: ByCost(0.5, float, 0.1, most=0), "length of at least 1"),
    ],
)
def test_nonsense_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()

"""A chain length that finds itself, in worlds whose cost and acceptance are known."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from tiny import PROMPTS, greedy, lm, noisy_lm

from toolkit.drafting import ByMeasure, DraftModel
from toolkit.drafting.costs import expected_tokens
from toolkit.engine import Engine
from toolkit.protocols import Context
from toolkit.sampling import BatchSampler, Sampling, Stopping


@dataclass
class World:
    """Guesses come true with probability alpha; a step takes a + b * nodes + c * guesses seconds."""

    alpha: float
    rows: int
    cost: tuple[float, float, float]
    now: float = 0.0
    lengths: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.lengths = np.ones(self.rows, np.int64)
        self.chance = np.random.default_rng(0)

    def seconds(self, guesses: int) -> float:
        return self.cost[0] + self.cost[1] * self.rows * (guesses + 1) + self.cost[2] * guesses

    def best(self, most: int) -> int:
        return max(range(most + 1), key=lambda n: expected_tokens(self.alpha, n) / self.seconds(n))

    def run(self, shape: ByMeasure, steps: int) -> list[int]:
        chosen = []
        for _ in range(steps):
            lengths = tuple(self.lengths.tolist())
            length = torch.tensor(lengths)
            sampler = BatchSampler.of([Sampling()] * self.rows).at(length)
            host = np.zeros((self.rows, 1), np.int64)
            made = shape.pick(Context(length[:, None], length, host, lengths, (99,) * self.rows, sampler))
            chosen.append(made.depth if made else 0)
            self.now += self.seconds(chosen[-1]) * self.chance.uniform(0.95, 1.05)
            right = (self.chance.random((self.rows, 32)) < self.alpha).cumprod(1).sum(1)
            self.lengths += 1 + np.minimum(right, chosen[-1])
        return chosen


@pytest.mark.parametrize("alpha", [0.2, 0.6, 0.9])
@pytest.mark.parametrize("rows", [1, 8, 64])
def test_it_finds_the_length_that_pays(alpha, rows):
    world = World(alpha, rows, (0.02, 0.0004, 0.002))
    shape = ByMeasure(clock=lambda: world.now)
    chosen = world.run(shape, 400)[200:]
    rate = lambda n: expected_tokens(alpha, n) / world.seconds(n)  # noqa: E731
    reached = sum(expected_tokens(alpha, n) for n in chosen) / sum(map(world.seconds, chosen))
    assert reached > 0.92 * rate(world.best(8)), (chosen, world.best(8))
    assert abs(shape.alpha - alpha) < 0.15 or max(chosen) <= 1


def test_it_follows_a_change_of_load_and_of_text():
    world = World(0.9, 1, (0.02, 0.0004, 0.0005))
    shape = ByMeasure(clock=lambda: world.now)
    assert np.median(world.run(shape, 200)[100:]) >= 6
    world.alpha = 0.05
    assert np.median(world.run(shape, 400)[300:]) <= 1
    world.alpha = 0.9
    assert np.median(world.run(shape, 600)[500:]) >= 6, "the looks aside have told it"
    world.cost = (0.02, 0.05, 0.0005)
    assert abs(np.median(world.run(shape, 400)[300:]) - world.best(8)) <= 1 and world.best(8) < 4


def test_no_token_changes():
    engine = Engine(lm(0), DraftModel(noisy_lm(0), ByMeasure(4)), stopping=Stopping(30))
    session = engine.generate(PROMPTS)
    assert session.outputs == [g[:30] for g in greedy()]
    assert len({s.nodes for s in session.trace.steps}) > 2


def test_numbers_out_of_range_are_refused():
    for options, says in (({"most": 0}, "at least 1"), ({"every": 1}, "at least 2"), ({"fade": 0}, "above 0")):
        with pytest.raises(ValueError, match=says):
            ByMeasure(**options)

"""When the adaptive drafter guesses and when it holds its tongue, in a world whose clock the test turns."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from test_cache import context
from tiny import Scripted

from toolkit.drafting import Adaptive


@dataclass
class World:
    """One row that grows by `kept + 1` tokens in a step with guesses, which takes `cost`; a plain step takes 1."""

    kept: float
    cost: float
    now: float = 0.0
    owed: float = 0.0

    def drafter(self, **options: float) -> Adaptive:
        return Adaptive(Scripted(lambda c, b: [[1, 2, 3]]), clock=lambda: self.now, **options)

    def live(self, drafter: Adaptive, steps: int, text: list[int] | None = None) -> list[bool]:
        """In which of the steps it guessed."""
        text = [5] if text is None else text
        guessed = []
        for _ in range(steps):
            guessed.append(drafter.propose(context([text])).tree.size > 1)
            self.owed += 1 + self.kept * guessed[-1]
            text += [7] * int(self.owed)
            self.owed %= 1
            self.now += self.cost if guessed[-1] else 1.0
        return guessed


def test_it_stops_when_guesses_cost_more_than_they_bring():
    world = World(kept=0.2, cost=1.6)
    guessed = world.live(world.drafter(), 600)
    assert all(guessed[:4]) and sum(guessed[300:]) <= 12, "looks should become rare"
    assert world.now < 600 + 40  # all the looks together cost little


def test_it_guesses_on_when_that_pays():
    world = World(kept=2.0, cost=1.3)
    guessed = world.live(world.drafter(), 600)
    assert sum(guessed) >= 560


@pytest.mark.parametrize("then", [World(2.0, 1.3), World(0.0, 1.5)])
def test_it_notices_when_the_text_changes(then: World):
    before = World(0.0, 1.5) if then.kept else World(2.0, 1.3)
    drafter, text = before.drafter(), [5]
    before.live(drafter, 100, text)
    assert drafter.drafting == bool(before.kept)
    then.now = before.now
    drafter.clock = lambda: then.now
    then.live(drafter, 400, text)
    assert drafter.drafting == bool(then.kept)


def test_steps_after_a_rewind_or_another_text_are_not_counted():
    world = World(kept=1.0, cost=1.0)
    drafter = world.drafter()
    world.live(drafter, 3, text := [5])
    seen = drafter.with_guesses.steps
    world.now += 1000
    drafter.propose(context([text[:2]]))  # rewound
    world.now += 1000
    drafter.propose(context([[9, 9, 9, 9, 9]]))  # another text
    world.now += 1000
    drafter.propose(context([[9, 9, 9, 9, 9, 1], [4, 4]]))  # another batch
    assert drafter.with_guesses.steps == seen and drafter.with_guesses.seconds < 10


def test_a_drafter_that_finds_nothing_is_not_blamed():
    world = World(kept=0.0, cost=1.0)
    drafter = Adaptive(Scripted(lambda c, b: []), clock=lambda: world.now)
    world.live(drafter, 50)
    assert drafter.with_guesses.steps == 0 and drafter.without.steps == 49


@pytest.mark.parametrize(
    ("options", "words"), [({"probe": 0}, "probe"), ({"patience": 0}, "patience"), ({"fade": 1.5}, "fade")]
)
def test_nonsense_is_refused(options: dict, words: str):
    with pytest.raises(ValueError, match=words):
        World(0, 1).drafter(**options)

"""All that can happen when code is run on draws that come out in every way.

The code is run again and again: a run ends at its first new draw, every row is split into the ways this draw can come
out, each with its exact probability, and the next run gets one draw further. A run that comes to its end has all there is.

Only draws that go through the sampler can be split. Code that takes chance elsewhere, or whose rows look at one another,
answers two runs differently and is refused.

Letters: B rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from toolkit.verification.enumerate import Branches, Fork

T = TypeVar("T")
_MOST = 4_000_000  # outcomes held at once


@dataclass(frozen=True, slots=True)
class Outcomes(Generic[T]):
    """All that can happen, one row each. `origin` is the row of the input it came from."""

    weight: Tensor  # [B] probabilities
    origin: Tensor  # [B]
    branches: Branches
    result: T


def every_outcome(run: Callable[[Tensor, Branches], T], branches: Branches, weight: Tensor) -> Outcomes[T]:
    """Run until no draw is left undecided. `run` gets the rows of the input to work on, [B], and the sampler.

    weight [B]: the probabilities of the input rows. Raises ValueError for code that takes chance from elsewhere.
    """
    origin = torch.arange(len(weight))
    while True:
        branches.cursor = 0
        try:
            with no_other_chance():
                result = run(origin, branches)
        except Fork as fork:
            rows, choice = (fork.law > 0).nonzero(as_tuple=True)
            weight, origin = weight[rows] * fork.law[rows, choice], origin[rows]
            branches = branches.take(rows)
            branches.calls.append(replace(fork.call.take(rows), choice=choice))
            if len(rows) > _MOST:
                raise ValueError(
                    f"more than {_MOST} things can happen, too many to look at each: take fewer nodes, cases, a smaller "
                    f"vocabulary or a truncation"
                ) from None
            continue
        if branches.cursor < len(branches.calls):
            raise ValueError(
                "given the same draws, the rule asked for fewer of them when it was run again: it keeps state"
            )
        return Outcomes(weight, origin, branches, result)


@contextmanager
def no_other_chance() -> Generator[None, None, None]:
    """Raise ValueError when the code inside moves the random numbers of torch, numpy or Python."""
    before = _other_chance()
    try:
        yield
    finally:
        for name, state in _other_chance().items():
            if state != before[name]:
                raise ValueError(
                    f"the rule takes chance from {name}: all of it must come from the sampler (coin, emit), or it can "
                    f"neither be repeated nor proved"
                )


def _other_chance() -> dict[str, object]:
    legacy = np.random.get_state(legacy=False)  # noqa: NPY002 - the state that a careless np.random.rand moves
    assert isinstance(legacy, dict)
    inner = legacy["state"]
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy.random": (inner["key"].tobytes(), inner["pos"]),
        "random": random.getstate(),
    }

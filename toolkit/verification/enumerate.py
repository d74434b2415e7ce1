"""A sampler whose draws come out in every way at once: the source of chance of the proofs.

Rows of the batch are branches of what may happen. What was decided in earlier runs is answered as before; the first draw
that is new ends the run, for `every_outcome` to split the rows and run again. So a rule is tried as it stands, in one
batch, without a line written for the proof.

Noise is keyed, and a key gives the same noise again. A second coin with a key, or a third draw from one race, is refused:
what follows it would not be independent. The second draw from a race is given its exact law (`second_winner`).

Letters: B rows, M nodes, V vocabulary, K ways a draw may come out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from toolkit.draws import ACCEPT, DRAFT, EMIT, mix
from toolkit.tree import TokenTree
from toolkit.verification.races import second_winner

Truncation = Callable[[Tensor], Tensor]
"""Logits [..., V] to logits [..., V], -inf for dropped tokens."""

_NAMES = {DRAFT: "guess", ACCEPT: "coin", EMIT: "emit"}
_REMEDY = {
    ACCEPT: "give each coin of a position its own lane (siblings their rank, and leaf to root the depth as well)",
    EMIT: "draw along the kept path alone, once a position",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One draw that has been decided."""

    stream: int
    key: Tensor  # [B] names the noise; its high bits are the absolute position of the token it is about
    law: Tensor  # [B, K] what was asked for
    choice: Tensor  # [B]

    @property
    def position(self) -> Tensor:
        """[B]"""
        return self.key >> 40

    @property
    def split(self) -> Tensor:
        """[B] bool: it could have come out otherwise, so the noise was used."""
        return (self.law > 0).sum(-1) > 1

    def take(self, rows: Tensor) -> Call:
        return Call(self.stream, self.key[rows], self.law[rows], self.choice[rows])


class Fork(Exception):
    """A draw that is not decided yet; `law` [B, K] is that of the outcomes, given all that was decided before."""

    def __init__(self, call: Call, law: Tensor) -> None:
        self.call, self.law = call, law


@dataclass(slots=True)
class Branches:
    """Answers the `Sampler` socket. Rows are branches.

    position  [B] of the trees' roots in the text
    past      [B, P] keys of noise used in earlier steps, 0 for none
    before    draws decided by other code in this step, before the code under test
    """

    position: Tensor
    past: Tensor
    truncation: Truncation | None = None
    before: list[Call] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    cursor: int = 0

    @property
    def greedy(self) -> bool:
        return False

    def probs(self, logits: Tensor, tree: TokenTree, start: int = 0) -> Tensor:
        return (self.truncation(logits) if self.truncation else logits).softmax(-1)

    def processed(self, logits: Tensor, tree: TokenTree, start: int = 0) -> Tensor:
        return logits

    def best(self, logits: Tensor, tree: TokenTree) -> Tensor:
        return logits.argmax(-1)

    def coin(self, prob: Tensor, depth: Tensor, lane: Tensor | int = 0) -> tuple[Tensor, Tensor]:
        """The uniform number is NaN: a rule must decide by the coin."""
        prob = prob.double().clamp(0, 1)
        side = self._draw(ACCEPT, depth, lane, torch.stack([1 - prob, prob], -1))
        return side == 1, torch.full_like(prob, torch.nan)

    def emit(self, probs: Tensor, depth: Tensor) -> Tensor:
        return self._draw(EMIT, depth, 0, _law(probs))

    def guess(self, probs: Tensor, depth: int, lanes: int = 1) -> Tensor:
        """Draft noise is fresh at every call: its key holds position, depth and lane."""
        out = [[self._draw(DRAFT, depth, 0, law) for _ in range(lanes)] for law in _law(probs).unbind(1)]
        return torch.stack([torch.stack(lane, -1) for lane in out], 1)

    def apart(self, salt: int) -> Branches:
        """Draft noise is fresh anyway."""
        return self

    def guess_coupled(self, probs: Tensor, depth: int) -> Tensor:
        return torch.stack([self._draw(EMIT, depth, 0, law) for law in _law(probs).unbind(1)], 1)

    def _draw(self, stream: int, depth: Tensor | int, lane: Tensor | int, law: Tensor) -> Tensor:
        if self.cursor < len(self.calls):
            call = self.calls[self.cursor]
            self.cursor += 1
            if call.stream != stream or call.law.shape != law.shape or not torch.allclose(call.law, law, 0, 1e-9):
                raise ValueError(
                    f"given the same draws, draw {self.cursor} of the rule ({_NAMES[call.stream]}) was another one when it "
                    f"was run again: it takes chance from elsewhere than the sampler, keeps state, or its rows look at "
                    f"one another"
                )
            return call.choice
        if law.isnan().any():
            raise ValueError(
                f"draw {self.cursor + 1} of the rule ({_NAMES[stream]}) has a probability that is not a number"
            )
        position = (self.position + depth).expand(len(law))
        name = mix(mix(position + 1) + lane) + stream
        call = Call(stream, (position << 40) + (name & ((1 << 40) - 1)), law, law.argmax(-1))
        given = self._given(call)
        if ((given > 0).sum(-1) > 1).any():
            raise Fork(call, given)
        self.calls.append(replace(call, choice=given.argmax(-1)))
        self.cursor += 1
        return self.calls[-1].choice

    def _given(self, call: Call) -> Tensor:
        """[B, K] the law of a draw given earlier draws with the same noise. Raises ValueError where there is none."""
        law, uses = call.law, 2 * (self.past == call.key[:, None]).any(1).long()
        if call.stream == DRAFT:  # the key of a guess holds position, depth and lane, so its noise is always fresh
            return law
        for old in [*self.before, *self.calls]:
            if old.stream == call.stream and (same := (old.key == call.key) & old.split & call.split).any():
                uses += same
                if call.stream == EMIT:  # two draws from one race: the coupled guess and the target's own draw
                    law = torch.where(same[:, None], second_winner(old.law, old.choice, call.law), law)
        again = call.split & (uses > (call.stream == EMIT))
        if again.any():
            raise ValueError(
                f"the rule uses the noise of the {_NAMES[call.stream]} at position {int(call.position[again][0])} again, and "
                f"keyed noise comes out the same again: {_REMEDY[call.stream]}"
            )
        return law

    def take(self, rows: Tensor) -> Branches:
        """These rows [R], ready for another run."""
        before, calls = [c.take(rows) for c in self.before], [c.take(rows) for c in self.calls]
        return Branches(self.position[rows], self.past[rows], self.truncation, before, calls)

    def go_on(self) -> Branches:
        """For the code that comes next: what was decided so far stays decided."""
        return Branches(self.position, self.past, self.truncation, [*self.before, *self.calls])

    def used(self, beyond: Tensor) -> Tensor:
        """[B, P] keys of the noise of coins and emits used so far at positions past `beyond` [B], rising, 0 for none."""
        calls = [c for c in [*self.before, *self.calls] if c.stream != DRAFT]
        keys = torch.stack([*(c.key * c.split for c in calls), *self.past.unbind(1), torch.zeros_like(beyond)], 1)
        keys = (keys * (keys >> 40 > beyond[:, None])).sort(1).values
        return keys[:, int((keys == 0).all(0).sum()) :]


def _law(weights: Tensor) -> Tensor:
    """[..., V] float64 as a keyed draw takes them: negative ones never win; when all are zero the first token does."""
    weights = weights.double().clamp(min=0)
    mass = weights.sum(-1, keepdim=True)
    first = torch.zeros_like(weights)
    first[..., 0] = 1
    return torch.where(mass > 0, weights / mass.where(mass > 0, 1), first.where(~mass.isnan(), torch.nan))

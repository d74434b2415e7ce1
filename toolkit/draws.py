"""All chance of the product comes through here, keyed instead of consumed.

A draw is a pure function of (request seed, stream, absolute position, lane): the same seed gives the same accept and
emit draws whatever the drafter, the draft length, the batch or what was drawn before. Rewinding needs no state.

The generator is counter based: SplitMix64's finaliser (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
generators", section 2) applied to the key, on int64 tensors whose overflow wraps, so it runs on any device without a
host sync.

Letters: B rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.argmax import argmax

DRAFT, ACCEPT, EMIT = 0, 1, 2  # streams

_DEAR = 8  # noise costs more than finding the tokens that need it, where they are fewer than one in so many
_GAMMA = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


def mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64: a bijection whose output bits each depend on every input bit."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _MIX1
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _MIX2
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def unit(bits: Tensor) -> Tensor:
    """int64 bits to float64 in the open interval (0, 1): the middle of one of 2**52 equal cells."""
    return (((bits >> 12) & ((1 << 52) - 1)).double() + 0.5) * 2.0**-52


@dataclass(frozen=True, slots=True)
class Draws:
    """The keyed source for one batch. `seed` is [B] int64; positions are absolute indices in each row's text.

    token [V] names the tokens where a vocabulary was cut down to some of them, so that each keeps its own noise."""

    seed: Tensor  # [B]
    token: Tensor | None = None

    def key(self, stream: int, position: Tensor, lane: Tensor | int = 0) -> Tensor:
        """[B, ...] keys: position and lane are [B, ...] (or a number)."""
        seed = mix(mix(self.seed) + stream).view(-1, *[1] * (position.ndim - 1))
        return mix(mix(seed + (position + 1) * _GAMMA) + lane)

    def uniform(self, stream: int, position: Tensor, lane: Tensor | int = 0) -> Tensor:
        """[B, ...] float64 in (0, 1), one a key."""
        return unit(mix(self.key(stream, position, lane) + _GAMMA))

    def race(self, size: int, stream: int, position: Tensor, lane: Tensor | int = 0) -> Tensor:
        """[B, ..., V] float64 exponential variates. `argmax(probs / race)` has exactly the law `probs`, and the token
        with the `probs` of another model under the same race is the coupled draw (Gumbel-max in other words)."""
        runner = torch.arange(1, size + 1, device=position.device) if self.token is None else self.token + 1
        return self._racing(runner, stream, position, lane)

    def _racing(self, runner: Tensor, stream: int, position: Tensor, lane: Tensor | int) -> Tensor:
        """The noise of the tokens `runner` - 1 alone, [R] or [B, ..., R]."""
        return -unit(mix(self.key(stream, position, lane)[..., None] + runner * _GAMMA)).log()

    def coin(self, prob: Tensor, position: Tensor, lane: Tensor | int = 0) -> tuple[Tensor, Tensor]:
        """Accept tests: [B, ...] bool, True with probability `prob` (1 always, 0 never), and the u [B, ...] it used."""
        u = self.uniform(ACCEPT, position, lane)
        return u < prob, u

    def pick(self, probs: Tensor, stream: int, position: Tensor, lane: Tensor | int = 0) -> Tensor:
        """[B, ...] tokens, one from each row of probs [B, ..., V]; rows need not be normalised, zeros are never drawn.

        Where few tokens are left, noise is made for them alone: the same tokens win."""
        graph = probs.device.type != "cpu" or torch.compiler.is_compiling()  # where to count would be a host sync
        few = probs.shape[-1] if graph else max(1, int(probs.count_nonzero(-1).amax()))
        if few * _DEAR > probs.shape[-1]:
            return argmax(probs / self.race(probs.shape[-1], stream, position, lane))
        some, token = probs.topk(few, -1)
        named = token if self.token is None else self.token[token]
        noise = self._racing(named + 1, stream, position, lane)
        best = argmax(some / noise)
        return token.expand(*best.shape, -1).gather(-1, best[..., None])[..., 0]

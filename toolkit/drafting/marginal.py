"""Drafting from predictions that were all made at once: Medusa's heads, and block drafters.

A node's guess depends on how deep it stands, and at most on the token before it; so a whole tree costs one pass, and shapes
choose freely from it (best-first over marginals is DDTree, 2026).

Letters: B rows, S slots, D guesses, J places of a block, H hidden size, F tapped features, N nodes, M nodes of the last level,
R Markov rank, V vocabulary, W tokens that the head says.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from toolkit.cache import fill
from toolkit.drafting.growth import features_at, grow, levels, no_guess, shape_for, without_features
from toolkit.drafting.shapes import Dynamic
from toolkit.heads.block import BlockHead
from toolkit.heads.cached import CachedAttend, HeadCache
from toolkit.protocols import Context, KVCache, Proposal, Reading, Shape, ShapeChoice, Tap
from toolkit.tree import TokenTree


class MarginalHead(Protocol):
    """What Medusa-like heads must have; any module of yours with these will do."""

    taps: tuple[Tap, ...]
    horizon: int  # guesses it makes

    def __call__(self, state: Tensor) -> Tensor:
        """[B, horizon, V] from the features [B, F] of the last token before the pending one."""
        ...


@dataclass(slots=True)
class Medusa:
    """Guesses of heads that each look one place further (Cai et al. 2024), in any tree shape, at any temperature.

    A shape deeper than the heads reach stops where they do. A row whose prompt is a single token has no feature yet and
    gets no guess in its first step.
    """

    head: MarginalHead
    shape: Shape | ShapeChoice = field(default_factory=Dynamic)

    @property
    def taps(self) -> tuple[Tap, ...]:
        return self.head.taps

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        shape, feature = shape_for(self.head, self.shape, context), context.feature
        if shape is None or feature is None:
            return no_guess(context)
        slot = (context.length - 2).clamp(min=0)
        rows = torch.arange(context.rows, device=slot.device)
        logits = self.head(_typed(feature[rows, slot], self.head))
        proposal = grow(levels(logits), shape, context, logits[:, :1], horizon=self.head.horizon)
        return without_features(proposal, context)


@dataclass(slots=True)
class Block:
    """Guesses of a `BlockHead`: one pass for a block of places (DFlash, Chen et al. 2026), then any tree shape.

    The head's cache holds what the features of committed tokens leave behind; the block itself leaves nothing.
    """

    head: BlockHead
    shape: Shape | ShapeChoice = field(default_factory=Dynamic)
    kept: HeadCache = field(default_factory=HeadCache, repr=False)

    @property
    def taps(self) -> tuple[Tap, ...]:
        return self.head.taps

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        shape, feature = shape_for(self.head, self.shape, context), context.feature
        if shape is None or feature is None:
            return no_guess(context)
        weight = self.head.fc.weight
        cache, _ = self.kept.fit(context, self.head.config, weight, places=self.head.block)
        fill(_Rememberer(self.head, feature), cache, context)
        place = context.length[:, None] - 1 + torch.arange(self.head.block, device=context.token.device)
        attend = CachedAttend.block(cache, self.head.block, weight.dtype)
        said = BlockLevels(self.head, context.pending, self.head.states(context.pending, place, attend))
        proposal = grow(said, shape, context, said.first, horizon=self.head.horizon)
        return without_features(proposal, context)

    def release(self, who: Hashable) -> None:
        self.kept.release(who)


class BlockLevels:
    """Answers `growth.Read` from the states of a block [B, J, H]: one of its guessing places a level, to which a Markov head
    adds what it makes of the tokens on a node's path."""

    def __init__(self, head: BlockHead, pending: Tensor, states: Tensor) -> None:
        self.head, self.level = head, 0
        self.states = states[:, -head.horizon :]  # [B, D, H]
        self.said = head.said(self.states)  # [B, D, W]
        self.memory = head.memory(pending, states)  # [B, N, R] after the nodes read so far
        self.first, self.memory = self._say(pending, self.memory)  # [B, 1, V] after the pending token

    def __call__(self, tree: TokenTree, start: int) -> Tensor:
        self.level += 1
        above = tree.parent[:, start:, None].clamp(min=0)
        before = self.memory.gather(1, above.expand(-1, -1, self.memory.shape[-1]))
        logits, after = self._say(tree.token[:, start:], before)
        self.memory = torch.cat([self.memory, after], 1)
        return logits

    def _say(self, token: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, M, V] after tokens [B, M] of one level, and the memory [B, M, R] after each."""
        said, markov = self.said[:, self.level, None].expand(-1, token.shape[1], -1), self.head.markov_head
        if markov is None:
            return self.head.widen(said), memory
        state = self.states[:, self.level, None].expand(-1, token.shape[1], -1)
        added, memory = markov.step(token, state, memory)
        return self.head.widen(said + added), memory


class _Rememberer:
    """Lets `fill` bring a block head's cache up to date."""

    def __init__(self, head: BlockHead, feature: Tensor) -> None:
        self.head, self.feature = head, feature

    def read(
        self, tree: TokenTree, cache: KVCache, start: int = 0, *, taps: Sequence[Tap] = (), last: int | None = None
    ) -> Reading:
        slot, feature = features_at(self.feature, cache, tree.size)
        feature = feature.to(self.head.fc.weight.dtype)
        self.head.remember(feature, slot, lambda layer, k, v: cache.write(layer, 0, k, v))
        return Reading(feature[..., :0])


def _typed(x: Tensor, head: MarginalHead) -> Tensor:
    return x.to(next(head.parameters()).dtype) if isinstance(head, nn.Module) else x

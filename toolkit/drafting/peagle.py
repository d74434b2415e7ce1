"""Drafting with a head over pairs whose further guesses stand in open pairs: P-EAGLE, whose network is in `heads`.

One pass reads the pairs of all newly committed tokens, with true features, and the open pairs behind them. Then any tree
shape may be grown from what they say, for no guess knows another.

Letters: B rows, N nodes, M true pairs, D guesses, H hidden size.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from toolkit.drafting.eagle import PairHead, PairReader, pairs_of
from toolkit.drafting.growth import catch_up, grow, levels, no_guess, shape_for, without_features
from toolkit.drafting.shapes import Dynamic
from toolkit.heads.cached import HeadCache
from toolkit.protocols import Context, KVCache, Proposal, Reading, Shape, ShapeChoice, Tap
from toolkit.tree import TokenTree


class OpenPairHead(PairHead, Protocol):
    """A head over pairs that also says what an open pair holds; any module of yours with these will do."""

    horizon: int  # guesses it makes in one pass
    mask: int  # the token of an open pair

    def open_state(self) -> Tensor:
        """[1, 1, H] what stands in the fused feature's place."""
        ...


@dataclass(slots=True)
class PEagle:
    """Guesses of an `OpenPairHead`, in any tree shape, at any temperature.

    first   position of the first pair; None for the one the head was trained with

    A row whose prompt is a single token has no pair yet and gets no guess in its first step.
    """

    head: OpenPairHead
    shape: Shape | ShapeChoice = field(default_factory=Dynamic)
    first: int | None = None
    kept: HeadCache = field(default_factory=HeadCache, repr=False)

    @property
    def taps(self) -> tuple[Tap, ...]:
        return self.head.taps

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        shape, feature = shape_for(self.head, self.shape, context), context.feature
        if shape is None or feature is None:
            return no_guess(context)
        pairs = pairs_of(context, self.head.config.vocab)
        reader = OpenReader(self.head, feature, self.first)
        cache, _ = self.kept.fit(context, self.head.config, reader.open_state, places=self.head.horizon)
        reading, newest = catch_up(reader, cache, pairs)
        logits = self.head.logits(reader.guessing(reading, newest))  # [B, D, V]
        proposal = grow(levels(logits), shape, context, logits[:, :1], horizon=self.head.horizon)
        return without_features(proposal, context)

    def release(self, who: Hashable) -> None:
        self.kept.release(who)


class OpenReader:
    """Reads true pairs as an `LM` reads tokens, with open pairs behind those whose states are asked for."""

    def __init__(self, head: OpenPairHead, feature: Tensor, first: int | None) -> None:
        self.head, self.feature, self.first = head, feature, first
        self.open_state = head.open_state()

    def read(
        self, tree: TokenTree, cache: KVCache, start: int = 0, *, taps: Sequence[Tap] = (), last: int | None = None
    ) -> Reading:
        """A chain of true pairs. Its states stand where logits would, for the caller to ask for those it wants."""
        pairs = PairReader(self.head, cache, self.feature, self.first)
        if last == 0:  # settled for later steps, and nobody asks what follows
            return pairs.read(tree, cache)
        more = self.head.horizon - 1
        true = tree.real.sum(1, keepdim=True)  # [B, 1] how many true pairs a row reads
        place = torch.arange(tree.size + more, device=true.device)
        opened = (place >= true) & (place < true + more)  # [B, N]
        token = pad(tree.token, (0, more)).masked_fill(opened, self.head.mask)
        state = torch.where(opened[..., None], self.open_state, pad(pairs.fused(tree), (0, 0, 0, more)))
        return Reading(pairs.step(TokenTree.chain(token, place < true + more), state, 0))

    def guessing(self, reading: Reading, newest: Tensor) -> Tensor:
        """[B, D, H]: the states of the newest pair, at `newest` [B], and of the open ones behind it."""
        place = newest[:, None] + torch.arange(self.head.horizon, device=newest.device)
        return reading.logits.gather(1, place[..., None].expand(-1, -1, reading.logits.shape[-1]))

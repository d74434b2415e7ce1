"""Drafting with a head over pairs: EAGLE-1, EAGLE-2, EAGLE-3 and multi-token prediction, whose networks are in `heads`.

Pair i is the target's feature of token i with token i + 1. The newest pair holds the pending token and the true feature of
the one before it, so one pass over the pairs of all newly committed tokens, with true features, leaves the head's cache as
if it had read the whole text that way, and gives the first guess. Further guesses stand on the head's own states.

Letters: B rows, S slots, N nodes, M nodes just read, H hidden size, F tapped features.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from toolkit.drafting.growth import at, catch_up, features_at, grow, no_guess, shape_for, without_features
from toolkit.drafting.shapes import Chain
from toolkit.heads.cached import CachedAttend, HeadCache
from toolkit.heads.config import HeadConfig
from toolkit.heads.parts import Attend
from toolkit.models.masks import positions
from toolkit.protocols import Context, KVCache, Proposal, Reading, Shape, ShapeChoice, Tap
from toolkit.tree import TokenTree


class PairHead(Protocol):
    """What a head over pairs must have; any module of yours with these will do."""

    config: HeadConfig
    taps: tuple[Tap, ...]

    def fuse(self, feature: Tensor) -> Tensor:
        """True features [B, M, F] to what stands in the head's own state's place [B, M, H]."""
        ...

    def __call__(self, token: Tensor, state: Tensor, position: Tensor, attend: Attend) -> Tensor:
        """States [B, M, H] after pairs of `token` [B, M] and the state before it, at `position` [B, M]."""
        ...

    def logits(self, state: Tensor) -> Tensor:
        """[B, M, V], -inf for tokens it cannot say."""
        ...

    def parameters(self) -> object: ...


@dataclass(slots=True)
class Eagle:
    """Guesses of a `PairHead`, with any tree shape, at any temperature.

    stale   do as engines do that never read true features again: accepted guesses keep the keys made from the head's own
            states. Only to show what that costs; output is exact either way
    first   position of the first pair: 0 in the published code, 1 in heads trained that way (vLLM's speculators); None
            for what the head's own `config.first` says

    A row whose prompt is a single token has no pair yet and gets no guess in its first step.
    """

    head: PairHead
    shape: Shape | ShapeChoice = field(default_factory=Chain)
    stale: bool = False
    first: int | None = None
    kept: HeadCache = field(default_factory=HeadCache, repr=False)
    _guessed: tuple[TokenTree, tuple[Hashable, ...]] | None = field(
        default=None, init=False, repr=False
    )  # and for whom

    @property
    def taps(self) -> tuple[Tap, ...]:
        return self.head.taps

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        shape, feature = shape_for(self.head, self.shape, context), context.feature
        if shape is None or feature is None:
            return no_guess(context)
        pairs = pairs_of(context, self.head.config.vocab)
        cache, fresh = self.kept.fit(context, self.head.config, _like(self.head))
        if self.stale and self._guessed is not None and not fresh and self._guessed[1] == context.who:
            keep_own(cache, self._guessed[0], pairs)
        reader = PairReader(self.head, cache, feature, self.first)
        _, pending = catch_up(reader, cache, pairs)
        reader.states = at(reader.states, pending)
        proposal = grow(reader.grown, shape, context, self.head.logits(reader.states))
        self._guessed = (reader.tree, context.who) if reader.tree is not None else None
        return without_features(proposal, context)

    def release(self, who: Hashable) -> None:
        self.kept.release(who)


class PairReader:
    """Reads pairs as an `LM` reads tokens. The nodes of its caches are pairs; chains stand on true features, the nodes of
    a growing tree on the states of their parents."""

    def __init__(self, head: PairHead, cache: KVCache, feature: Tensor, first: int | None) -> None:
        self.head, self.cache, self.feature = head, cache, feature
        self.first = head.config.first if first is None else first
        self.states: Tensor = feature[:, :0]  # [B, N, H] after the nodes read last, and of a tree all its nodes
        self.tree: TokenTree | None = None

    def read(
        self, tree: TokenTree, cache: KVCache, start: int = 0, *, taps: Sequence[Tap] = (), last: int | None = None
    ) -> Reading:
        """A chain of pairs whose features are true. Its logits are for the caller to ask for, where they are wanted."""
        self.states = self.step(tree, self.fused(tree), 0)
        return Reading(self.states)

    def fused(self, tree: TokenTree) -> Tensor:
        """[B, N, H] what the true features of a chain's pairs put in the state's place."""
        _, feature = features_at(self.feature, self.cache, tree.size)
        return self.head.fuse(feature.to(_like(self.head).dtype))

    def grown(self, tree: TokenTree, start: int) -> Tensor:
        """Answers `growth.Read`."""
        above = tree.parent[:, start:, None].clamp(min=0)
        states = self.step(tree, self.states.gather(1, above.expand(-1, -1, self.states.shape[-1])), start)
        self.states, self.tree = torch.cat([self.states, states], 1), tree
        return self.head.logits(states)

    def step(self, tree: TokenTree, state: Tensor, start: int) -> Tensor:
        """States [B, M, H] after the pairs from `start` on, with `state` [B, M, H] in them; their keys go to the cache's
        provisional slots."""
        place = positions(tree, self.cache)[:, start:] + self.first
        attend = CachedAttend.tree(self.cache, tree, start, state.dtype)
        return self.head(tree.token[:, start:], state, place, attend)


def pairs_of(context: Context, vocab: int) -> Context:
    """The context as pairs: entry i holds token i + 1, and its name on the host tells tokens i and i + 1, so that a cache
    of pairs agrees with it just as far as all tokens of its pairs are the same."""
    length = (context.length - 1).clamp(min=1)
    names = context.host[:, :-1] * vocab + context.host[:, 1:]
    lengths = tuple(max(1, n - 1) for n in context.lengths)
    return replace(context, token=context.token[:, 1:], length=length, host=names, lengths=lengths)


def keep_own(cache: KVCache, guessed: TokenTree, pairs: Context) -> None:
    """Settle the guesses that were accepted, as the head read them; none after a rewind or on another text, where they no
    longer stand behind what is settled."""
    before = cache.filled
    cache.agree(pairs)
    if not np.array_equal(before, cache.filled):
        return
    here = cache.length[:, None] + guessed.depth  # the pair slot each node would stand in
    inside = here < pairs.length[:, None] - 1
    right = inside & guessed.real & (pairs.token.gather(1, here.clamp(max=pairs.token.shape[1] - 1)) == guessed.token)
    path = (right[:, None] | ~guessed.ancestors).all(-1) & guessed.real  # all nodes above are right, too
    settled = np.minimum(cache.filled + path.sum(1).cpu().numpy(), np.array(pairs.lengths) - 1)
    cache.keep(guessed, path)
    cache.trust(pairs.host, settled)


def _like(head: PairHead) -> Tensor:
    """A parameter of the head, for its device and dtype."""
    return next(iter(head.parameters()))  # type: ignore[call-overload]

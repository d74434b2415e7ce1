"""How every model-based drafter works: bring its cache up to what is committed, then grow a tree by a shape.

Letters: B rows, N nodes, M nodes of the last level, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toolkit.cache import fill
from toolkit.protocols import LM, Context, KVCache, Proposal, Reader, Reading, Shape, ShapeChoice
from toolkit.tree import TokenTree

LAG = 16  # committed tokens that may be read in one pass with the pending one, logits and all

Read = Callable[[TokenTree, int], Tensor]
"""(tree, start) to logits [B, M, V] after the nodes from `start` on, the earlier ones having been read before."""


def shape_of(shape: Shape | ShapeChoice, context: Context) -> Shape | None:
    """The shape of this step; None to guess nothing."""
    given: Any = shape
    return given.pick(context) if hasattr(given, "pick") else given


def shape_for(head: object, shape: Shape | ShapeChoice, context: Context) -> Shape | None:
    """`shape_of` for a head on target features; None too where no row has any yet. Raises ValueError where a head that
    names the width of its features is given others."""
    if context.feature is None or context.longest < 2:
        return None
    given = context.feature.shape[-1]
    if (wanted := getattr(head, "width", given)) != given:
        raise ValueError(
            f"{type(head).__name__} reads features of width {wanted}, and this target's taps give {given}: use a head made for it"
        )
    return shape_of(shape, context)


def features_at(feature: Tensor, cache: KVCache, places: int) -> tuple[Tensor, Tensor]:
    """The next `places` slots of a head's cache [B, M], and of feature [B, S, F] what belongs there [B, M, F]."""
    slot = cache.length[:, None] + torch.arange(places, device=feature.device)
    inside = slot.clamp(max=feature.shape[1] - 1)[..., None]
    return slot, feature.gather(1, inside.expand(-1, -1, feature.shape[-1]))


def cache_for(model: LM, cache: KVCache | None, context: Context) -> KVCache:
    """The drafter's cache from the last step, if it can follow this batch, or a new one."""
    if cache is not None and (context.who or len(cache.filled) == context.rows):
        return cache
    return model.open(context.rows, context.token.shape[1], context.paging)


def no_guess(context: Context) -> Proposal:
    return Proposal(TokenTree.chain(context.pending))


def catch_up(model: Reader, cache: KVCache, context: Context) -> tuple[Reading, Tensor]:
    """Read what is committed and not yet in the cache. Returns the last pass's reading and the place [B] of the pending
    token in it, whose own key is left in the first provisional slot."""
    fill(model, cache, context, leave=min(LAG, context.chunk - 1))
    behind = torch.from_numpy(np.array(context.lengths) - cache.filled).to(cache.length.device)  # [B] >= 1
    n = int((np.array(context.lengths) - cache.filled).max())
    step = torch.arange(n, device=behind.device)
    slot = (cache.length[:, None] + step).clamp(max=context.token.shape[1] - 1)
    tree = TokenTree.chain(context.token.gather(1, slot), step < behind[:, None])
    reading = model.read(tree, cache)
    cache.keep(tree, step < behind[:, None] - 1)
    cache.trust(context.host, np.array(context.lengths) - 1)
    return reading, behind - 1


def at(states: Tensor, place: Tensor) -> Tensor:
    """[B, 1, X]: the entry `place` [B] of each row of [B, N, X]."""
    return states[torch.arange(len(place), device=place.device), place, None]


def grow(read: Read, shape: Shape, context: Context, logits: Tensor, *, horizon: int | None = None) -> Proposal:
    """Grow a tree level by level from the pending token's logits [B, 1, V], to `horizon` levels at most."""
    sampler = context.sampler
    levels = min(shape.depth, max(context.room), shape.depth if horizon is None else horizon)
    sampled = shape.draw != "certain" and not sampler.greedy  # at temperature 0 a draw is a certain thing
    tree = seen = TokenTree.chain(context.pending)  # all guesses, and those that the drafter itself has read
    front = torch.zeros_like(tree.token)  # [B, M] the nodes of `tree` read last
    score = torch.zeros_like(tree.token, dtype=torch.float64)  # [B, N] log-probability of the path to a node
    alive = torch.ones_like(tree.real)
    confidence, source, q, drawn = torch.ones_like(score), front - 1, [], 0
    for depth in range(1, levels + 1):
        start = seen.size - front.shape[1]
        wide = logits if logits.dtype == torch.float64 else logits.float()
        # What is guessed follows the request's penalties and constraints too, for the target's choice will. Where a
        # drafter can say nothing that they allow, its probabilities are no numbers, and it says nothing.
        soft = sampler.processed(wide, seen, start).softmax(-1).nan_to_num(0)  # [B, M, V] before temperature
        probs = sampler.probs(logits, seen, start).nan_to_num(0) if sampled else soft
        grown = shape.level(depth, score.gather(1, front), probs, sampler)
        if grown is None:
            break
        slot, token = grown  # [B, W] among the nodes read last
        row = torch.arange(tree.rows, device=slot.device)[:, None]
        # A shape may ask for more tokens than have any probability. To look at the law a token was drawn from is fair;
        # at any other law it would not be: a drawn guess must not be dropped for its value.
        said = (token >= 0) & (probs[row, slot, token.clamp(min=0)] > 0) & alive.gather(1, front.gather(1, slot))
        token = token.clamp(min=0)
        rate = soft[row, slot, token].double().where(said, 0)
        fresh = score.gather(1, front.gather(1, slot)) + rate.log()
        tree = tree.grow(front.gather(1, slot), token, linear=slot.shape[1] == 1)
        score, confidence, alive = (
            torch.cat([score, fresh], 1),
            torch.cat([confidence, rate], 1),
            torch.cat([alive, said], 1),
        )
        if sampled:
            q, source, drawn = [*q, probs], torch.cat([source, drawn + slot], 1), drawn + probs.shape[1]
        if depth == levels:
            break
        chosen = shape.expand(depth, fresh)  # [B, M] of the W new nodes
        inner = seen.size - front.shape[1] + slot.gather(1, chosen)
        seen = seen.grow(inner, token.gather(1, chosen), linear=chosen.shape[1] == 1)
        front = tree.size - slot.shape[1] + chosen
        logits = read(seen, seen.size - chosen.shape[1])
    tree = TokenTree(tree.token, tree.parent.where(alive, -1), alive, linear=tree.linear)
    draw = shape.draw if q else "certain"
    rows_of_q = torch.cat(q, 1) if q else None
    kept = shape.keep(score)
    if kept is None:
        return Proposal(tree, rows_of_q, draw, source if q else None, confidence)
    picked = source.gather(1, kept) if q else None
    return Proposal(tree.prune(kept), rows_of_q, draw, picked, confidence.gather(1, kept))


def levels(logits: Tensor) -> Read:
    """Answers `Read` from logits [B, D, V] that were all made at once, one entry a level."""
    level = 0

    def read(tree: TokenTree, start: int) -> Tensor:
        nonlocal level
        level += 1
        return logits[:, level, None].expand(-1, tree.size - start, -1)

    return read


def without_features(proposal: Proposal, context: Context) -> Proposal:
    """The proposal without the guesses of rows that have no target feature yet: those of a single token."""
    if min(context.lengths) > 1:
        return proposal
    deep = torch.tensor([n > 1 for n in context.lengths], device=context.token.device) * proposal.tree.size
    tree = proposal.tree.limit(deep)
    return Proposal(tree, proposal.q, proposal.draw, proposal.q_row, proposal.confidence)

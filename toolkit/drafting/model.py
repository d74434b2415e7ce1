"""A smaller language model as the drafter, growing its tree by a shape.

Letters: B rows, N nodes, M nodes of the last level, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from toolkit.cache import fill
from toolkit.drafting.shapes import Chain
from toolkit.protocols import LM, Context, KVCache, Proposal, Shape
from toolkit.tree import TokenTree

LAG = 16  # committed tokens that may be read in one pass with the pending one, logits and all


@dataclass(slots=True)
class DraftModel:
    """Leviathan et al. 2023 with any tree shape. The model must share the target's vocabulary.

    Draws and probabilities follow each row's own sampling parameters, so q is what the tokens were really drawn from.
    """

    model: LM
    shape: Shape = field(default_factory=Chain)
    cache: KVCache | None = field(default=None, repr=False)

    def propose(self, context: Context) -> Proposal:
        if self.cache is None or len(self.cache.filled) != context.rows:
            self.cache = self.model.open(context.rows, context.token.shape[1])
        return grow(self.model, self.cache, self.shape, context, catch_up(self.model, self.cache, context))


def catch_up(model: LM, cache: KVCache, context: Context) -> Tensor:
    """Read what is committed and not yet in the cache. Returns logits [B, 1, V] at the pending token, whose own key is
    left in the first provisional slot."""
    fill(model, cache, context, leave=LAG)
    behind = torch.from_numpy(np.array(context.lengths) - cache.filled).to(cache.length.device)  # [B] >= 1
    n = int((np.array(context.lengths) - cache.filled).max())
    step = torch.arange(n, device=behind.device)
    slot = (cache.length[:, None] + step).clamp(max=context.token.shape[1] - 1)
    tree = TokenTree.chain(context.token.gather(1, slot), step < behind[:, None])
    logits = model.read(tree, cache).logits
    cache.keep(tree, step < behind[:, None] - 1)
    cache.trust(context.host, np.array(context.lengths) - 1)
    return logits[torch.arange(len(behind), device=behind.device), behind - 1, None]


def grow(model: LM, cache: KVCache, shape: Shape, context: Context, logits: Tensor) -> Proposal:
    """Grow a tree level by level from the pending token's logits [B, 1, V]."""
    sampler, levels = context.sampler, min(shape.depth, max(context.room))
    sampled = shape.draw != "certain" and not sampler.greedy  # at temperature 0 a draw is a certain thing
    tree = read = TokenTree.chain(context.pending)  # all guesses, and those that the drafter itself has read
    front = torch.zeros_like(tree.token)  # [B, M] the nodes of `tree` read last
    score = torch.zeros_like(tree.token, dtype=torch.float64)  # [B, N] log-probability of the path to a node
    confidence, source, q, drawn = torch.ones_like(score), front - 1, [], 0
    for depth in range(1, levels + 1):
        start = read.size - front.shape[1]
        wide = logits if logits.dtype == torch.float64 else logits.float()
        # What is guessed follows the request's penalties and constraints too, for the target's choice will.
        soft = sampler.processed(wide, read, start).softmax(-1)  # [B, M, V] before temperature and truncation
        probs = sampler.probs(logits, read, start) if sampled else soft
        grown = shape.level(depth, score.gather(1, front), probs, sampler)
        if grown is None:
            break
        slot, token = grown  # [B, W] among the nodes read last
        row = torch.arange(tree.rows, device=slot.device)[:, None]
        rate = soft[row, slot, token].double()
        fresh = score.gather(1, front.gather(1, slot)) + rate.log()
        tree = tree.grow(front.gather(1, slot), token, linear=slot.shape[1] == 1)
        score, confidence = torch.cat([score, fresh], 1), torch.cat([confidence, rate], 1)
        if sampled:
            q, source, drawn = [*q, probs], torch.cat([source, drawn + slot], 1), drawn + probs.shape[1]
        if depth == levels:
            break
        chosen = shape.expand(depth, fresh)  # [B, M] of the W new nodes
        inner = read.size - front.shape[1] + slot.gather(1, chosen)
        read = read.grow(inner, token.gather(1, chosen), linear=chosen.shape[1] == 1)
        front = tree.size - slot.shape[1] + chosen
        logits = model.read(read, cache, read.size - chosen.shape[1]).logits
    # A guess of probability 0 was drawn from nothing: there were fewer tokens left than the shape asked for.
    some = score > -torch.inf
    tree = TokenTree(tree.token, tree.parent.where(some, -1), tree.real & some, linear=tree.linear)
    draw = shape.draw if q else "certain"
    rows_of_q = torch.cat(q, 1) if q else None
    kept = shape.keep(score)
    if kept is None:
        return Proposal(tree, rows_of_q, draw, source if q else None, confidence)
    picked = source.gather(1, kept) if q else None
    return Proposal(tree.prune(kept), rows_of_q, draw, picked, confidence.gather(1, kept))

"""Traversal verification of a tree: from the leaves to the root, so that no good leaf dies with a doubtful parent.

Weng et al. 2025, "Traversal Verification for Speculative Tree Decoding" (arXiv 2505.12398): block verification on trees.
Every node has a weight w, the probability that the walk ends at it or below it, and a distribution r of the token after
it. The root has w = 1, and r = p everywhere at first. Children come one after another, in draw order:

    w_x = min(1, w r(x) / q(x))                               weight of child x
    r <- norm(max(w r - q, 0)),   w <- S / (S + 1 - w)        after x is refused with all below it; S is the sum that
                                                              norm divides by

Walk in post-order: all below a child before the child, the child before its next sibling. Keep a node with the weight it
has by then; the first success ends the walk, and the token after the kept node is drawn from its r.

Why it is exact. Claim: with probability w the walk ends at the node or below, and then the token after it has the law r.
Without further children it holds, by the coin and by the draw. A child x ~ q keeps the claim with weight w_x, so it takes
q(x) w_x = min(w r(x), q(x)) of what is owed, w r(x). It fails with probability 1 - sum min(w r, q) = S + 1 - w, and
max(w r - q, 0) is owed still: that is r and w as updated above. Whatever the refused token was, so the next sibling may
come from a q that depends on it. Hence `certain`, `independent` and `distinct` nodes are all allowed, in any mixture.

On a chain the formulas are those of `Block`. The first level of a tree is reached as often as with `Rejection`, deeper
ones at least as often in all trees tried; with certain nodes there is no difference.

No weight depends on a coin. So weights are worked out from the root down, each node once, and only then coins are tossed
from the leaves up. As with `Block`, no noise may come twice. Cost: N passes over [B, V] and a copy of [B, N, V].

Letters: B rows, N nodes, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toolkit.protocols import Draw, Proposal, Sampler, Tests, Verdict
from toolkit.tree import TokenTree
from toolkit.verification.block import leafward, survival
from toolkit.verification.drawn import drawn_from, normalised, ratio


@dataclass(frozen=True, slots=True)
class Traversal:
    """Lossless at every temperature, for chains and trees and for every way of drawing but `coupled`."""

    lossless: ClassVar[bool] = True
    draws: ClassVar[frozenset[Draw]] = frozenset(("certain", "independent", "distinct"))

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        tree = proposal.tree
        probs = sampler.probs(logits, tree)  # [B, N, V]
        rows = torch.arange(tree.rows, device=probs.device)
        left = probs.clone()  # [B, N, V] r of each node
        weight = torch.ones_like(probs[..., 0])  # [B, N]
        drawn = torch.ones_like(weight)  # [B, N] q of each node's own token
        for i in range(1, tree.size):  # parents come first and siblings in draw order
            x, real, above = tree.token[:, i, None], tree.real[:, i], tree.parent[:, i].clamp(min=0)
            q, r, w = drawn_from(proposal, i, probs[:, i]), left[rows, above], weight[rows, above]
            drawn[:, i] = q.gather(1, x)[:, 0]
            weight[:, i] = (w * ratio(r.gather(1, x)[:, 0], drawn[:, i])).clamp(max=1) * real
            rest = (w[:, None] * r - q).clamp(min=0)
            left[rows, above] = torch.where(real[:, None], normalised(rest, r), r)
            weight[rows, above] = torch.where(real, survival(w, rest.sum(-1)), w)

        order = post_order(tree)  # [B, N]
        level = (tree.depth[:, :, None] == tree.depth[:, None]) & tree.real[:, None]  # [B, N, N] of the same depth
        rank = level.tril(-1).sum(-1)  # [B, N]
        tip = torch.zeros_like(order[:, 0])
        outcome, noise = torch.zeros_like(order), torch.zeros_like(weight, dtype=torch.float64)
        for i in order.unbind(1):  # [B], another node in every row
            asked = tree.real[rows, i] & (i > 0) & (tip == 0)
            depth = tree.depth[rows, i]
            taken, noise[rows, i] = sampler.coin(weight[rows, i] * asked, depth, leafward(depth, rank[rows, i]))
            outcome[rows, i] = asked.long() + (asked & ~taken).long()
            tip = torch.where(taken, i, tip)

        p = probs[rows[:, None], tree.parent.clamp(min=0), tree.token]
        bonus = sampler.emit(left[rows, tip], tree.depth[rows, tip] + 1)
        return Verdict(tip, bonus, Tests(outcome, p, drawn, weight, noise))


def post_order(tree: TokenTree) -> Tensor:
    """[B, N] nodes in the order in which a depth-first walk leaves them, siblings by index; padding comes last.

    A walk enters a node after its ancestors and all that hangs on earlier siblings of the path, and leaves it when all
    below it is done: sums over the ancestor matrix, no walk.
    """
    below = tree.ancestors.sum(1)  # [B, N] size of each node's subtree
    sibling = (tree.parent[:, :, None] == tree.parent[:, None]) & tree.real[:, None]  # [B, N, N]
    before = (sibling.tril(-1) * below[:, None]).sum(-1)  # [B, N] nodes hanging on earlier siblings
    left_at = (tree.ancestors * before[:, None]).sum(-1) + below - 1
    return (left_at + (~tree.real) * tree.size).argsort(dim=1, stable=True)

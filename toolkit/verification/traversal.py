"""Traversal verification of a tree: from the leaves to the root, so that no promising leaf dies with a doubtful parent.

Weng et al. 2025, "Traversal Verification for Speculative Tree Decoding" (arXiv 2505.12398): block verification on trees.
Every node has a weight w, the chance that it or something below it is kept, given the tokens down to it; the root's
is 1. Its children come one after another, in draw order, with r = p and w as they stand when a child's turn comes:

    w_x = min(1, w r(x) / q(x))                                the child's own weight, and then all below it
    r <- norm(max(w r - q, 0)),   w <- S / (S + 1 - w)         what is left when all of that was refused,
                                                               S the sum that norm divides by

Walk in post-order, a child's whole subtree before its next sibling and all children before their parent, and keep a node
with the weight it has by then; the first success ends the walk. The token after it comes from its r.

Why it is exact: let what lies below child x be kept, x included, with chance w_x for every x. Then a first child drawn
from q takes min(w r(x), q(x)) of the mass w r(x) that the tip's law is owed, max(w r - q, 0) remains, and given the
refusal that is r and w as above for the next sibling, whatever the refused token was. A node without further children
keeps itself with w and pays from r what it owes. By induction from the leaves every node has the chance w_x it promised.
The argument asks of a child nothing but that it came from the q given for it, hence any draw but `coupled` is allowed.
On a chain the formulas are those of `Block`; the first level of a tree is accepted as often as by `Rejection`.

None of these numbers looks at a coin. So they are worked out from the root down, each node once, and only then coins are
tossed from the leaves up. As with `Block`, no noise may come twice. Cost: N passes over [B, V] and a copy of [B, N, V].

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

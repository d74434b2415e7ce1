"""What a node was really drawn from: the q of every ratio and every residual.

The rules speak of one distribution a node and never of how it came about, because the ways of drawing differ in
nothing else: a certain node was drawn from all mass on its own token, an independent sibling from its parent's row of
q, and a sibling without replacement from that row less the tokens of the siblings before it.

Letters: B rows, N nodes, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from toolkit.protocols import Proposal


def drawn_from(proposal: Proposal, i: int, like: Tensor) -> Tensor:
    """[B, V] the distribution that node i of each row was drawn from, given the siblings before it.

    `like` [B, V] gives dtype and vocabulary. Cost: one row of q, and a pass over the earlier nodes for `distinct`.
    """
    tree, source = proposal.tree, proposal.source[:, i, None]  # [B, 1]
    point = torch.zeros_like(like).scatter(1, tree.token[:, i, None], 1)
    if proposal.q is None:
        return point
    rows = torch.arange(tree.rows, device=like.device)
    q = proposal.q[rows, source[:, 0].clamp(min=0)].to(like.dtype)
    if proposal.draw == "distinct":
        sibling = (
            (proposal.source[:, :i] == source) & (tree.parent[:, :i] == tree.parent[:, i, None]) & tree.real[:, :i]
        )
        gone = torch.zeros_like(q).scatter_reduce(1, tree.token[:, :i], sibling.to(q.dtype), "amax")
        q = normalised(q * (1 - gone), q)
    return torch.where(source >= 0, q, point)


def normalised(x: Tensor, otherwise: Tensor) -> Tensor:
    """x [..., V] scaled to sum 1; `otherwise` where nothing is left, which happens by rounding alone."""
    mass = x.sum(-1, keepdim=True)
    return torch.where(mass > 0, x / mass.clamp(min=torch.finfo(x.dtype).tiny), otherwise)


def ratio(p: Tensor, q: Tensor) -> Tensor:
    """p / q of the same token, [...]; 0 where p is 0, whatever q: what the target never says is never accepted."""
    return p / q.clamp(min=torch.finfo(p.dtype).tiny)

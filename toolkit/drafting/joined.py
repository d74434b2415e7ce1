"""Proposals put together: side by side in one batch, or as branches of one tree.

Letters: B rows, N nodes, Q rows of q, V vocabulary, D drafters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from toolkit.protocols import Draw, Proposal
from toolkit.tree import TokenTree


def common_draw(proposals: Sequence[Proposal]) -> Draw:
    """How the nodes of all were drawn, the certain ones left out. Raises ValueError for two ways in one step, which no
    proposal can tell apart."""
    ways = sorted({p.draw for p in proposals} - {"certain"})
    if len(ways) > 1:
        raise ValueError(
            f"drafters whose guesses are {' and '.join(ways)} cannot share a step: give them shapes that draw alike"
        )
    return ways[0] if ways else "certain"


def beside(proposals: Sequence[Proposal], choice: Sequence[int]) -> Proposal:
    """Row b of the result is row b of `proposals[choice[b]]`."""
    size = max(p.tree.size for p in proposals)
    wide = [_padded(p, size) for p in proposals]
    q, sources = _joined_q(proposals, wide)
    device = wide[0].tree.token.device
    rows, which = torch.arange(len(choice), device=device), torch.tensor(list(choice), device=device)

    def take(parts: list[Tensor]) -> Tensor:
        return torch.stack(parts, 1)[rows, which]

    tree = TokenTree(
        take([p.tree.token for p in wide]),
        take([p.tree.parent for p in wide]),
        take([p.tree.real for p in wide]),
        linear=all(p.tree.linear for p in wide),
    )
    confidence = None
    if any(p.confidence is not None for p in wide):
        confidence = take([_confidence(p) for p in wide])
    return Proposal(tree, q, common_draw(proposals), None if q is None else take(sources), confidence)


def branches(proposals: Sequence[Proposal]) -> Proposal:
    """All guesses under one root. Certain guesses that say the same after the same are one node."""
    trees = [p.tree for p in proposals]
    q, sources = _joined_q(proposals, proposals)
    token, real, parent, source, confidence, start = [trees[0].token[:, :1]], [trees[0].real[:, :1]], [], [], [], 0
    parent, source = [trees[0].parent[:, :1]], [sources[0][:, :1]]
    confidence = [_confidence(proposals[0])[:, :1]]
    for p, origin in zip(proposals, sources, strict=True):
        above = p.tree.parent[:, 1:]
        parent.append(torch.where(above > 0, above + start, above))
        token.append(p.tree.token[:, 1:])
        real.append(p.tree.real[:, 1:])
        source.append(origin[:, 1:])
        confidence.append(_confidence(p)[:, 1:])
        start += p.tree.size - 1
    tree = TokenTree(torch.cat(token, 1), torch.cat(parent, 1), torch.cat(real, 1))
    known = any(p.confidence is not None for p in proposals)
    joined = Proposal(
        tree,
        q,
        common_draw(proposals),
        None if q is None else torch.cat(source, 1),
        torch.cat(confidence, 1) if known else None,
    )
    return _merged(joined)


def _merged(proposal: Proposal) -> Proposal:
    """The proposal with every certain node that repeats an earlier certain sibling turned into padding, its children
    hung on that sibling. One level at a time, for children become siblings when their parents are merged."""
    tree, certain = proposal.tree, proposal.source < 0
    parent, real = tree.parent, tree.real
    for _ in range(tree.size - 1):
        alike = (tree.token[:, :, None] == tree.token[:, None]) & (parent[:, :, None] == parent[:, None])
        alike &= (real & certain)[:, :, None] & (real & certain)[:, None]  # [B, N, N]
        alike[:, 0] = alike[:, :, 0] = False
        first = torch.where(alike.any(-1), alike.int().argmax(-1), torch.arange(tree.size, device=parent.device))
        again = first != torch.arange(tree.size, device=parent.device)  # [B, N]
        if not again.any():
            break
        parent = torch.where(parent >= 0, first.gather(1, parent.clamp(min=0)), -1).where(~again, -1)
        real = real & ~again
    merged = TokenTree(tree.token, parent, real)
    return Proposal(merged, proposal.q, proposal.draw, proposal.q_row, proposal.confidence)


def _padded(p: Proposal, size: int) -> Proposal:
    """The same with padding nodes up to `size`."""
    more = size - p.tree.size
    if not more:
        return p
    tree = TokenTree(
        pad(p.tree.token, (0, more)),
        pad(p.tree.parent, (0, more), value=-1),
        pad(p.tree.real, (0, more)),
        p.tree.linear,
    )
    confidence = None if p.confidence is None else pad(p.confidence, (0, more))
    return Proposal(tree, p.q, p.draw, None if p.q is None else pad(p.source, (0, more), value=-1), confidence)


def _joined_q(proposals: Sequence[Proposal], wide: Sequence[Proposal]) -> tuple[Tensor | None, list[Tensor]]:
    """All rows of q one after another [B, Q, V], and which of them each node of each proposal was drawn from [B, N]."""
    rows, sources, start = [], [], 0
    for p, w in zip(proposals, wide, strict=True):
        source = w.source
        sources.append(torch.where(source >= 0, source + start, source))
        if p.q is not None:
            rows.append(p.q)
            start += p.q.shape[1]
    return (torch.cat(rows, 1) if rows else None), sources


def _confidence(p: Proposal) -> Tensor:
    """[B, N], one where the drafter names none."""
    return torch.ones_like(p.tree.token, dtype=torch.float64) if p.confidence is None else p.confidence.double()

"""Rejection sampling down the tree: what comes out has the target's distribution, whatever was guessed.

Standing on a node, its children are tested one by one in draw order against what is left of the target's distribution:

    accept child x with probability min(1, r(x) / q(x)),   r = p at first,
    on rejection r <- norm(max(r - q, 0)), and for siblings drawn without replacement q <- norm(q without x).

When all children are rejected the correction comes from r; when none is left the bonus comes from p at the tip.

- chain: Leviathan, Kalman, Matias 2023 (section 2.3); Chen et al. 2023 (algorithm 2)
- `independent` siblings: SpecInfer, Miao et al. 2023 (multi-step speculative sampling, section 4.3)
- `distinct` siblings: Jeon et al. 2024 (recursive rejection sampling without replacement); Sequoia, Chen et al. 2024
- `certain` nodes are the case q = all on x: accept with probability r(x), on rejection x leaves r

Exact when every token was really drawn from the q row given for it and siblings stand in draw order.
Siblings of one q row must not be parted by siblings of another row (certain ones may stand between them).
Cost: N passes over [B, V].

Letters: B rows, N nodes, Q rows of q, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toolkit.protocols import Draw, Proposal, Sampler, Tests, Verdict
from toolkit.verification.greedy import greedy


@dataclass(frozen=True, slots=True)
class Rejection:
    """Lossless at every temperature and for every way of drawing."""

    lossless: ClassVar[bool] = True
    draws: ClassVar[frozenset[Draw]] = frozenset(("certain", "independent", "distinct"))

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        probs = sampler.probs(logits, proposal.tree)  # [B, N, V]
        if sampler.greedy:  # all on one token: the walk below would find the same, test by test, only slower
            return greedy(proposal, probs.argmax(-1))
        return _walk(proposal, probs, sampler)


def _walk(proposal: Proposal, probs: Tensor, sampler: Sampler) -> Verdict:
    tree, q, source = proposal.tree, proposal.q, proposal.source
    rows = torch.arange(tree.rows, device=probs.device)
    p_node = probs[rows[:, None], tree.parent.clamp(min=0), tree.token]  # [B, N] p(x | path)
    here = torch.zeros_like(rows)  # the node each row stands on
    lane = torch.zeros_like(rows)  # how many children of it were tested
    left = probs[:, 0]  # [B, V] what is left of the target's distribution here
    held = torch.full_like(rows, -1)  # the row of q in hand
    hand = left if q is None else q[:, 0]  # [B, V] that row, without rejected siblings where they are distinct
    outcome, accept, drawn, noise = [torch.zeros_like(rows)], [p_node[:, 0]], [p_node[:, 0]], [p_node[:, 0]]
    for i in range(1, tree.size):  # parents come first and siblings in draw order, so one pass is enough
        asked = tree.real[:, i] & (tree.parent[:, i] == here)
        x = tree.token[:, i, None]  # [B, 1]
        rx, qx = left.gather(1, x)[:, 0], torch.ones_like(left[:, 0])
        sampled = source[:, i] >= 0
        if q is not None:
            turn = asked & sampled & (source[:, i] != held)
            hand = torch.where(turn[:, None], q[rows, source[:, i].clamp(min=0)], hand)
            held = torch.where(turn, source[:, i], held)
            qx = torch.where(sampled, hand.gather(1, x)[:, 0], qx)
        a = torch.where(asked, (rx / qx.clamp(min=torch.finfo(rx.dtype).tiny)).clamp(max=1), 0)
        taken, u = sampler.coin(a, tree.depth[:, i], lane)
        refused = asked & ~taken

        without = left.scatter(1, x, 0)
        rest = without
        if q is not None:
            rest = torch.where(sampled[:, None], (left - hand).clamp(min=0), without)
            if proposal.draw == "distinct":
                hand = torch.where((refused & sampled)[:, None], _norm(hand.scatter(1, x, 0), hand), hand)
        left = torch.where(refused[:, None], _norm(rest, left), left)
        left = torch.where(taken[:, None], probs[:, i], left)
        here, held = torch.where(taken, i, here), held.masked_fill(taken, -1)
        lane = torch.where(taken, 0, lane + asked)

        outcome.append(asked.long() + refused.long())
        accept.append(a)
        drawn.append(qx)
        noise.append(u)
    tests = Tests(torch.stack(outcome, 1), p_node, *(torch.stack(v, 1) for v in (drawn, accept, noise)))
    depth = tree.depth.gather(1, here[:, None])[:, 0] + 1
    return Verdict(here, sampler.emit(left, depth), tests)


def _norm(x: Tensor, otherwise: Tensor) -> Tensor:
    """x [B, V] scaled to sum 1; `otherwise` where nothing is left, which happens by rounding alone."""
    mass = x.sum(-1, keepdim=True)
    return torch.where(mass > 0, x / mass.clamp(min=torch.finfo(x.dtype).tiny), otherwise)

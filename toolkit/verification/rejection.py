"""Rejection sampling down the tree: what comes out has the target's distribution, whatever was guessed.

Standing on a node, its children are tested one by one in draw order against what is left of the target's distribution:

    accept child x with probability min(1, r(x) / q(x)),   r = p at first,
    on rejection r <- norm(max(r - q, 0)).

When all children are rejected the correction comes from r; when none is left the bonus comes from p at the tip. The q
of a child is what it was really drawn from (see `drawn_from`), and that makes one rule of four:

- chain: Leviathan, Kalman, Matias 2023 (section 2.3); Chen et al. 2023 (algorithm 2)
- `independent` siblings: SpecInfer, Miao et al. 2023 (multi-step speculative sampling, section 4.3)
- `distinct` siblings: Jeon et al. 2024 (recursive rejection sampling without replacement); Sequoia, Chen et al. 2024
- `certain` nodes: q is all on x, so x is accepted with probability r(x) and on rejection leaves r

Exact when every token was really drawn from the q given for it and siblings stand in draw order.
Cost: N passes over [B, V].

Letters: B rows, N nodes, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toolkit.protocols import Draw, Proposal, Sampler, Tests, Verdict
from toolkit.verification.drawn import drawn_from, normalised, ratio
from toolkit.verification.greedy import greedy


@dataclass(frozen=True, slots=True)
class Rejection:
    """Lossless at every temperature and for every way of drawing but `coupled`."""

    lossless: ClassVar[bool] = True
    draws: ClassVar[frozenset[Draw]] = frozenset(("certain", "independent", "distinct"))

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        if sampler.greedy:  # all on one token: the walk below would find the same, test by test, only slower
            return greedy(proposal, sampler.best(logits, proposal.tree))
        return _walk(proposal, sampler.probs(logits, proposal.tree), sampler)


def _walk(proposal: Proposal, probs: Tensor, sampler: Sampler) -> Verdict:
    tree = proposal.tree
    rows = torch.arange(tree.rows, device=probs.device)
    here = torch.zeros_like(rows)  # the node each row stands on
    lane = torch.zeros_like(rows)  # how many children of it were tested
    left = probs[:, 0]  # [B, V] what is left of the target's distribution there
    outcome, accept, drawn, noise = [here], [left[:, 0]], [left[:, 0]], [left[:, 0]]  # the root is not tested
    for i in range(1, tree.size):  # parents come first and siblings in draw order, so one pass is enough
        asked = tree.real[:, i] & (tree.parent[:, i] == here)
        x = tree.token[:, i, None]  # [B, 1]
        q = drawn_from(proposal, i, left)
        qx = q.gather(1, x)[:, 0]
        a = torch.where(asked, ratio(left.gather(1, x)[:, 0], qx).clamp(max=1), 0)
        taken, u = sampler.coin(a, tree.depth[:, i], lane)
        refused = asked & ~taken

        left = torch.where(refused[:, None], normalised((left - q).clamp(min=0), left), left)
        left = torch.where(taken[:, None], probs[:, i], left)
        here = torch.where(taken, i, here)
        lane = torch.where(taken, 0, lane + asked)

        outcome.append(asked.long() + refused.long())
        accept.append(a)
        drawn.append(qx)
        noise.append(u)
    p = probs[rows[:, None], tree.parent.clamp(min=0), tree.token]  # [B, N]
    tests = Tests(torch.stack(outcome, 1), p, *(torch.stack(v, 1) for v in (drawn, accept, noise)))
    depth = tree.depth.gather(1, here[:, None])[:, 0] + 1
    return Verdict(here, sampler.emit(left, depth), tests)

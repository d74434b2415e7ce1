"""Greedy verification: keep the deepest path on which every token is the target's arg-max.

Stern, Shazeer, Uszkoreit 2018 ("Blockwise Parallel Decoding", section 3) for chains; on trees SpecInfer (Miao et al.
2023, section 4.2). Output equals the target's own greedy decoding for every proposal, whatever its draw. Cost: one
arg-max over [B, N, V].

Letters: B rows, N nodes, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toolkit.protocols import Draw, Proposal, Sampler, Tests, Verdict


@dataclass(frozen=True, slots=True)
class Greedy:
    """Lossless at temperature 0; refuses rows above it."""

    lossless: ClassVar[bool] = True
    draws: ClassVar[frozenset[Draw]] = frozenset(("certain", "independent", "distinct"))

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        if not sampler.greedy:
            raise ValueError("Greedy verifies at temperature 0 only: set temperature=0 or use the rule Rejection")
        return greedy(proposal, sampler.best(logits, proposal.tree))


def greedy(proposal: Proposal, best: Tensor) -> Verdict:
    """The verdict when the target's choice at every node is `best` [B, N]."""
    tree = proposal.tree
    if tree.size == 1:  # plain decoding: nothing was guessed, nothing is tested
        return Verdict(torch.zeros_like(best[:, 0]), best[:, 0])
    right = (tree.token == best.gather(1, tree.parent.clamp(min=0))) & tree.real
    right[:, 0] = True
    alive = ~(tree.ancestors & ~right[:, None]).any(-1)  # [B, N] the whole path is right
    # Of two siblings with the same token the first counts, as it would in a walk; argmax takes the first deepest one.
    tip = ((tree.depth + 1) * alive).argmax(1)
    bonus = best.gather(1, tip[:, None])[:, 0]

    path = tree.path(tip)
    reached = path.gather(1, tree.parent.clamp(min=0)) & tree.real  # the parent was kept, so the node was tested
    reached[:, 0] = False
    outcome = torch.where(path, 1, 2) * reached
    p = right.to(torch.float64)
    return Verdict(tip, bonus, Tests(outcome, p, torch.ones_like(p), p, torch.full_like(p, torch.nan)))

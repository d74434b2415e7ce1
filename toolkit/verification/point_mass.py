"""Sample and match: the target draws its own next token, and the walk follows the child that equals it.

    y ~ p(. | path);  if a child of this node is y, step onto it and draw again;  otherwise y is the correction.

Every emitted token is the target's own draw, so the output is exact whatever was guessed and however: there is nothing
to prove. This is rejection sampling with q all on the guess (Leviathan et al. 2023, section 2.3, with a deterministic
drafter): the children x1..xk of a node are accepted with probability p(x1) + ... + p(xk), in any order.

For certain nodes (n-grams, top-k, EAGLE-2, Medusa, DDTree) nothing accepts more. For a sampled draft it is exact and
wasteful: it meets the draft with probability sum p q, where rejection sampling reaches sum min(p, q).

Since a position's draw depends on seed and position alone, the text is also the same, token for token, as plain
sampling with that seed. Cost: N draws from [B, V].

Letters: B rows, N nodes, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toolkit.protocols import Draw, Proposal, Sampler, Tests, Verdict


@dataclass(frozen=True, slots=True)
class PointMass:
    """Lossless at every temperature; made for certain nodes, exact for all that were drawn without the target's noise."""

    lossless: ClassVar[bool] = True
    draws: ClassVar[frozenset[Draw]] = frozenset(("certain", "independent", "distinct"))

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        return follow(proposal, sampler.probs(logits, proposal.tree), sampler)


def follow(proposal: Proposal, probs: Tensor, sampler: Sampler) -> Verdict:
    """Walk where the target's own draws from probs [B, N, V] lead, as far as the tree goes."""
    tree = proposal.tree
    rows = torch.arange(tree.rows, device=probs.device)
    here = torch.zeros_like(rows)  # the node each row stands on
    drawn = sampler.emit(probs[:, 0], here + 1)  # [B] the target's token after it
    outcome, accept = [here], [torch.zeros_like(probs[:, 0, 0])]
    for i in range(1, tree.size):
        asked = tree.real[:, i] & (tree.parent[:, i] == here)
        taken = asked & (tree.token[:, i] == drawn)
        here = torch.where(taken, i, here)
        # A row that did not move asks for the token it has: one draw a position, never two.
        again = torch.zeros_like(probs[:, i]).scatter(1, drawn[:, None], 1)
        drawn = sampler.emit(torch.where(taken[:, None], probs[:, i], again), tree.depth[:, i] + 1)

        outcome.append(asked.long() * torch.where(taken, 1, 2))
        accept.append(taken.to(probs.dtype))  # given the draw nothing is left to chance
    p = probs[rows[:, None], tree.parent.clamp(min=0), tree.token]  # [B, N]
    certain = torch.ones_like(p)
    tests = Tests(torch.stack(outcome, 1), p, certain, torch.stack(accept, 1), torch.full_like(p, torch.nan))
    return Verdict(here, drawn, tests)

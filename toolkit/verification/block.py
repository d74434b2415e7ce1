"""Block verification of a chain: judge the whole draft at once instead of token by token.

A prefix of the draft has a weight, and the weight may win back at a later token what it lost at an earlier one:

    w_0 = 1,   w_i = min(1, w_{i-1} p(x_i) / q(x_i))                   weight of the first i guesses
    S_i = sum_x max(w_i p(x | x_1..x_i) - q(x | x_1..x_i), 0)          what p is still owed if the next guess is refused
    h_i = S_i / (S_i + 1 - w_i),   h_n = w_n after the last guess

From the last guess to the first, keep i guesses with probability h_i; the first success ends it. Then the target adds a
token from norm(max(w_i p - q, 0)), and from p after the last guess, which is the same formula with q = 0.

h_i solves w_i = h_i + (1 - h_i) E[w_{i+1}]: of the drafts that begin with x_1..x_i a share of w_i keeps at least those.
Token by token the share is the product of the min(1, p / q), which is never more. Sun et al. 2024, "Block Verification
Accelerates Speculative Decoding" (algorithm 2), who prove that no exact rule for one draft keeps more on average.

Exact when every guess was drawn from the q given for it and no noise comes twice: a guess beyond the kept ones has been
looked at, so its noise is no longer fresh, and neither is that of its coin (`leafward`).
Cost: a few passes over [B, N, V], none of them in sequence.

Letters: B rows, N nodes, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toolkit.protocols import Draw, Proposal, Sampler, Tests, Verdict
from toolkit.verification.drawn import drawn_from, normalised, ratio


@dataclass(frozen=True, slots=True)
class Block:
    """Lossless at every temperature. Verifies chains only: raises ValueError for a tree that may have branches."""

    lossless: ClassVar[bool] = True
    draws: ClassVar[frozenset[Draw]] = frozenset(("certain", "independent", "distinct"))

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        tree = proposal.tree
        if not tree.linear:
            raise ValueError("Block verifies chains, and this tree may have branches: use the rule Traversal")
        probs = sampler.probs(logits, tree)  # [B, N, V]
        p, q = torch.ones_like(probs[..., 0]), torch.ones_like(probs[..., 0])  # [B, N] of each node's own token
        ahead = torch.zeros_like(probs)  # [B, N, V] what the node after this one was drawn from; 0 after the last
        weight = [p[:, 0]]
        for i in range(1, tree.size):
            x, real = tree.token[:, i, None], tree.real[:, i]
            drawn = drawn_from(proposal, i, probs[:, i])
            ahead[:, i - 1] = drawn * real[:, None]
            p[:, i], q[:, i] = probs[:, i - 1].gather(1, x)[:, 0], drawn.gather(1, x)[:, 0]
            weight.append((weight[-1] * ratio(p[:, i], q[:, i])).clamp(max=1) * real)

        w = torch.stack(weight, 1)  # [B, N]
        rest = (w[..., None] * probs - ahead).clamp(min=0)  # [B, N, V]
        keep = survival(w, rest.sum(-1))
        tip = torch.zeros_like(tree.parent[:, 0])
        outcome, noise = torch.zeros_like(tree.parent), torch.zeros_like(w, dtype=torch.float64)
        for i in reversed(range(1, tree.size)):
            asked = tree.real[:, i] & (tip == 0)
            taken, noise[:, i] = sampler.coin(
                torch.where(asked, keep[:, i], 0), tree.depth[:, i], leafward(tree.depth[:, i])
            )
            tip = torch.where(taken, i, tip)
            outcome[:, i] = asked.long() + (asked & ~taken).long()

        rows = torch.arange(tree.rows, device=tip.device)
        bonus = sampler.emit(normalised(rest[rows, tip], probs[rows, tip]), tree.depth[rows, tip] + 1)
        return Verdict(tip, bonus, Tests(outcome, p, q, keep, noise))


def survival(weight: Tensor, rest: Tensor) -> Tensor:
    """S / (S + 1 - w), of any shape; 1 where both vanish: then no guess that follows is ever refused."""
    total = rest + 1 - weight
    return torch.where(total > 0, rest / total.clamp(min=torch.finfo(rest.dtype).tiny), 1)


def leafward(depth: Tensor, rank: Tensor | int = 0) -> Tensor:
    """Lanes [B] for coins tossed from the leaves inward, at nodes of this depth and rank among the nodes of that depth.

    The position of a refused guess is guessed again in the next step, at a smaller depth. With the depth in its lane no
    coin is tossed twice; coins tossed from the root outward never come to that.
    """
    return (depth << 32) + rank

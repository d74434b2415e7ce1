"""Is a rule lossless at a recorded step: its first guesses drawn anew in every way.

Letters: U tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.protocols import Proposal, Rule, Sampler
from toolkit.sampling import Sampling
from toolkit.trace import RowRecord
from toolkit.tree import TokenTree
from toolkit.verification.proof import Proof, prove
from toolkit.verification.toys import Drawn, Paths, Table
from toolkit.whatif.case import Case
from toolkit.whatif.chances import uncoupled
from toolkit.whatif.prefix import Prefix

_DRAFTS = 200_000  # ways in which the first guesses and the token after them may come out


def proof(
    record: RowRecord,
    rule: Rule | str | None = None,
    *,
    sampling: Sampling | None = None,
    siblings: int | None = None,
) -> Proof:
    """Is the rule lossless at this step's root: the first level's guesses drawn anew from their q in every way, or as they
    are where they were certain, and the law of the first emitted token against the target's.

    Raises ValueError as `again` does, for coupled guesses, where the first level was not all drawn from one q, and where
    there is too much to look at.
    """
    case = uncoupled(Case.of(record, rule, sampling, None, Prefix(levels=1, siblings=siblings)))
    p = case.problem
    children, source = p.proposal.tree.token[0, 1:], set(p.proposal.source[0, 1:].tolist())
    if len(source) > 1:
        raise ValueError(
            f"the first guesses came from {len(source)} sources and cannot be drawn anew together: give siblings=1"
        )
    tokens, target = len(p.token), p.probs[0]
    drawn = bool(source) and source != {-1}
    if drawn and tokens ** (len(children) + 1) > _DRAFTS:
        raise ValueError(
            f"{len(children)} guesses out of {tokens} tokens come out in too many ways to look at each: give siblings=1, or "
            f"take a truncation, for instance top_k=20"
        )
    shape = [-1, *[0] * len(children)]
    if drawn and p.proposal.q is not None:
        q, draft = p.proposal.q[0, source.pop()], Drawn(p.proposal.draw)
        return prove(case.rule, shape, draft, p=target[None], q=(q / q.sum())[None])
    return prove(case.rule, shape, _Told(children), p=target[None])


@dataclass(frozen=True, slots=True)
class _Told:
    """A drafter of certain guesses that were made before."""

    children: Tensor

    def __call__(self, table: Table, parent: Tensor, root: Paths, sampler: Sampler) -> Proposal:
        token = torch.cat([root.last[:, None], self.children.expand(len(parent), -1)], 1)
        return Proposal(TokenTree(token, parent, torch.ones_like(parent, dtype=torch.bool), linear=parent.shape[1] < 3))

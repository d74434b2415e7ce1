"""A recorded step as a rule sees it: a proposal, logits, and a sampler, over the few tokens that matter.

The vocabulary holds the tokens that the target may still say somewhere in the tree, the tokens of the tree, and one token
more, REST, for all others together. Sampling parameters are applied here, so the logits are logarithms of what they leave.
Where they leave recorded tokens alone, REST is never said, and a rule of ratios and residuals finds the true problem: the
drafter's probability of REST then lies on tokens of which the target's share is zero.

Letters: B rows, N nodes, U tokens, R rows of q.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from toolkit.protocols import Draw, Proposal
from toolkit.sampling import BatchSampler, Sampling
from toolkit.trace import RowRecord
from toolkit.tree import TokenTree
from toolkit.whatif.known import Known, evidence_of, known
from toolkit.whatif.shaped import Left, shaped

REST = -1
"""The id of the token that stands for all that were not recorded."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One row. Tokens are numbered by their place in `token`."""

    proposal: Proposal
    logits: Tensor  # [1, N, U] logarithms of the distributions after the sampling parameters
    token: Tensor  # [U] ids, rising, then REST
    nodes: tuple[int, ...]  # which recorded nodes they are
    lumped: tuple[float, ...]  # [N] the probability of REST after each node
    sure: tuple[bool, ...]  # [N] no rank among tokens that were not recorded was guessed there
    lumped_q: float  # the largest probability of REST in any row of q
    position: int

    @property
    def probs(self) -> Tensor:
        """[N, U]"""
        return self.logits[0].exp()

    def rows(self, count: int) -> tuple[Proposal, Tensor]:
        """The same problem in many rows, without copies."""
        p = self.proposal
        token, parent, real = (x.expand(count, -1) for x in (p.tree.token, p.tree.parent, p.tree.real))
        tree = TokenTree(token, parent, real, linear=p.tree.linear)
        q = None if p.q is None else p.q.expand(count, -1, -1)
        return Proposal(tree, q, p.draw, None if p.q_row is None else p.q_row.expand(count, -1)), self.logits.expand(
            count, -1, -1
        )

    def sampler(self, seeds: Sequence[int], *, greedy: bool) -> BatchSampler:
        """The product's own sampler, a row a seed, where each token has the noise of its id."""
        heat = 0.0 if greedy else 1.0
        made = _Alike.of([Sampling(temperature=heat, seed=s) for s in seeds])
        named = replace(made.draws, token=self.token)
        return replace(made, draws=named).at(torch.full((len(seeds),), self.position + 1))


class _Alike(BatchSampler):
    """The sampling parameters are in the logits already, and all rows are the same."""

    def probs(self, logits: Tensor, tree: TokenTree, start: int = 0) -> Tensor:
        return logits[:1].softmax(-1).expand_as(logits)


def problem(record: RowRecord, sampling: Sampling, nodes: Sequence[int]) -> Problem:
    """The step with these of its nodes, under these sampling parameters; of them temperature and filters count, for
    penalties and constraints are in what was recorded. Raises ValueError where no evidence was recorded."""
    e, k = evidence_of(record), known(record)
    some = torch.tensor(list(nodes))
    every, place = torch.cat([k.token.flatten(), k.q_token.flatten()]).unique(return_inverse=True)  # rising
    at = place[: k.token.numel()].view_as(k.token)[some]
    logits = torch.full((len(some), len(every)), -math.inf, dtype=torch.float64).scatter(1, at, k.logit[some])
    inside = torch.zeros_like(logits, dtype=torch.bool).scatter(1, at, torch.ones_like(at, dtype=torch.bool))
    left = Left((e.vocab - inside.sum(1)), k.most[some], k.tail[some], k.warm[some], e.temperature or 1.0)
    found = shaped(logits, left, sampling)

    tree_token = torch.searchsorted(every, torch.tensor([record.token[i] for i in nodes]))
    kept = (found.probs > 0).any(0)
    kept[tree_token] = True
    number = kept.cumsum(0) - 1  # of every token in the small vocabulary
    probs = torch.cat([found.probs[:, kept], found.rest[:, None]], 1)
    parent = {i: n for n, i in enumerate(nodes)} | {-1: -1}
    parents = [parent[record.parent[i]] for i in nodes]
    tree = TokenTree(
        number[tree_token][None],
        torch.tensor([parents]),
        torch.ones(1, len(some), dtype=torch.bool),
        linear=parents == list(range(-1, len(some) - 1)),
    )
    source = [e.source[i] for i in nodes]
    q, lumped_q = None, 0.0
    if max(source) >= 0:
        dense = _guesses(k, every)
        some_q, total = dense[:, :-1][:, kept], dense.sum(-1)
        q = torch.cat([some_q, (total - some_q.sum(-1)).clamp(min=0)[:, None]], 1)
        lumped_q = float(q[[s for s in source if s >= 0], -1].max())
    proposal = Proposal(tree) if q is None else Proposal(tree, q[None], cast("Draw", e.draw), torch.tensor([source]))
    return Problem(
        proposal,
        probs.log()[None],
        torch.cat([every[kept], torch.tensor([REST])]),
        tuple(nodes),
        tuple(found.rest.tolist()),
        tuple(found.sure.tolist()),
        lumped_q,
        record.position,
    )


def _guesses(k: Known, every: Tensor) -> Tensor:
    """[R, tokens + 1] the rows of q over all recorded tokens, and what is left out."""
    q = torch.zeros(len(k.q), len(every), dtype=torch.float64)
    q = q.scatter(1, torch.searchsorted(every, k.q_token), k.q)
    tail = k.q_tail.clone()
    for row, ids, values in k.along:
        at = torch.searchsorted(every, ids)
        fresh = q[row, at] == 0  # else it was known before, and is not in the tail
        tail[row] -= values[fresh].sum()
        q[row, at] = torch.where(fresh, values, q[row, at])
    return torch.cat([q, tail.clamp(min=0)[:, None]], 1)

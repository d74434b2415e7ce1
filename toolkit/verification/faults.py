"""Parts that go wrong in the ways the field has gone wrong: drafters that misreport, rules that misjudge.

None of this is for use. `exhibits` puts them together, each with its story, and the proofs must catch every one.

Letters: B rows, N nodes, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from toolkit.protocols import Draw, Proposal, Rule, Sampler, Verdict
from toolkit.tree import TokenTree
from toolkit.verification.drawn import drawn_from, normalised, ratio
from toolkit.verification.rejection import Rejection
from toolkit.verification.toys import Paths, Table, along, sample

Change = Callable[[Tensor], Tensor]
"""Logits [..., V] to logits [..., V]."""


def unchanged(logits: Tensor) -> Tensor:
    return logits


@dataclass(frozen=True, slots=True)
class Mislabelled:
    """Draws in one way and reports another, q as it is. `drawn` and `said` change the logits of the draw and of the
    reported q; with `raw` the reported q also lacks the sampler's truncation."""

    really: Draw
    told: Draw
    drawn: Change = unchanged
    said: Change = unchanged
    raw: bool = False

    def __call__(self, table: Table, parent: Tensor, root: Paths, sampler: Sampler) -> Proposal:
        tree, _ = sample(self.really, lambda paths: self.drawn(table(paths)), parent, root, sampler)
        logits = self.said(table(along(tree, root)))
        q = logits.softmax(-1) if self.raw else sampler.probs(logits, tree)
        return Proposal(tree, None if self.told == "certain" else q, self.told)


@dataclass(frozen=True, slots=True)
class Resorted:
    """Draws children of the root without replacement and sends them with the likeliest first."""

    def __call__(self, table: Table, parent: Tensor, root: Paths, sampler: Sampler) -> Proposal:
        tree, q = sample("distinct", table, parent, root, sampler)
        order = q[:, 0].gather(1, tree.token[:, 1:]).argsort(1, descending=True)
        token = torch.cat([tree.token[:, :1], tree.token[:, 1:].gather(1, order)], 1)
        return Proposal(TokenTree(token, tree.parent, tree.real), q, "distinct")


@dataclass(frozen=True, slots=True)
class BetterOfTwo:
    """Draws two tokens without replacement and sends only the likelier of them."""

    told: Draw

    def __call__(self, table: Table, parent: Tensor, root: Paths, sampler: Sampler) -> Proposal:
        two = torch.tensor([-1, 0, 0]).expand(len(parent), 3)
        tree, q = sample("distinct", table, two, root, sampler)
        best = q[:, 0].gather(1, tree.token[:, 1:]).argmax(1, keepdim=True) + 1
        chain = TokenTree.chain(torch.cat([tree.token[:, :1], tree.token.gather(1, best)], 1))
        return Proposal(chain, None if self.told == "certain" else q[:, :2], self.told)


def coin_by_ratio(p: Tensor, q: Tensor) -> Tensor:
    return ratio(p, q).clamp(max=1)


def by_comparison(p: Tensor, q: Tensor) -> Tensor:
    return (p >= q).to(p.dtype)


def what_is_left(left: Tensor, q: Tensor, p: Tensor) -> Tensor:
    return (left - q).clamp(min=0)


def all_of_p(left: Tensor, q: Tensor, p: Tensor) -> Tensor:
    return p


def wrong_way_round(left: Tensor, q: Tensor, p: Tensor) -> Tensor:
    return (q - left).clamp(min=0)


def forgetful(left: Tensor, q: Tensor, p: Tensor) -> Tensor:
    """The last residual alone: what earlier siblings were refused is forgotten."""
    return (p - q).clamp(min=0)


@dataclass(frozen=True, slots=True)
class Walk:
    """Rejection sampling with exchangeable parts.

    test      probability of accepting a child, from r(x) and q(x)
    residual  [B, V] what the correction is drawn from after a refusal, from r, q and p
    later     whether later siblings are tested against that residual too, or against p
    parent    take the bonus from the tip's parent
    """

    lossless: ClassVar[bool] = False

    test: Callable[[Tensor, Tensor], Tensor] = coin_by_ratio
    residual: Callable[[Tensor, Tensor, Tensor], Tensor] = what_is_left
    later: bool = True
    parent: bool = False

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        tree, probs = proposal.tree, sampler.probs(logits, proposal.tree)
        rows = torch.arange(tree.rows, device=probs.device)
        here = lane = torch.zeros_like(rows)
        left = correction = probs[:, 0]
        for i in range(1, tree.size):
            asked, x = tree.real[:, i] & (tree.parent[:, i] == here), tree.token[:, i, None]
            q = drawn_from(proposal, i, left)
            a = self.test(left.gather(1, x)[:, 0], q.gather(1, x)[:, 0]) * asked
            taken, _ = sampler.coin(a, tree.depth[:, i], lane)
            refused = (asked & ~taken)[:, None]
            rest = normalised(self.residual(left, q, probs[rows, here]), left)
            correction = torch.where(refused, rest, correction)
            left = torch.where(refused, rest, left) if self.later else left
            left = torch.where(taken[:, None], probs[:, i], left)
            fresh = probs[rows, tree.parent[:, i].clamp(min=0)] if self.parent else probs[:, i]
            correction = torch.where(taken[:, None], fresh, correction)
            here, lane = torch.where(taken, i, here), torch.where(taken, 0, lane + asked)
        return Verdict(here, sampler.emit(correction, tree.depth[rows, here] + 1))


@dataclass(frozen=True, slots=True)
class Redraw:
    """Sample and match, but after a mismatch the target draws again: the first draw is thrown away because it missed."""

    lossless: ClassVar[bool] = False

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        tree, probs = proposal.tree, sampler.probs(logits, proposal.tree)
        here = torch.zeros_like(tree.parent[:, 0])
        for i in range(1, tree.size):
            asked, x = tree.real[:, i] & (tree.parent[:, i] == here), tree.token[:, i, None]
            met, _ = sampler.coin(probs[:, 0].gather(1, x)[:, 0] * asked, tree.depth[:, i], i)
            here = torch.where(met, i, here)
        rows = torch.arange(tree.rows, device=here.device)
        return Verdict(here, sampler.emit(probs[rows, here], tree.depth[rows, here] + 1))


@dataclass(frozen=True, slots=True)
class Reshaped:
    """A rule that judges other logits than the sampler was given: `change` [B, N, V] to [B, N, V]."""

    lossless: ClassVar[bool] = False

    change: Change
    rule: Rule = field(default_factory=Rejection)

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        return self.rule(proposal, self.change(logits), sampler)


def certain_below_the_root(logits: Tensor) -> Tensor:
    """Every node but the root gets its arg-max alone, as where the parameters of a batch reach only its first rows."""
    best = torch.full_like(logits, -torch.inf).scatter(-1, logits.argmax(-1, keepdim=True), 0)
    return torch.cat([logits[:, :1], best[:, 1:]], 1)


def draft_vocabulary_only(logits: Tensor) -> Tensor:
    """The target is cut to the tokens that the drafter knows: here all but the last one."""
    return torch.cat([logits[..., :-1], torch.full_like(logits[..., -1:], -torch.inf)], -1)

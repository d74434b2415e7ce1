"""Rows of one batch with drafters and rules of their own: each group drafts and judges for itself, the target reads all.

Letters: B rows, N nodes, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from toolkit.engine.entry import Entry
from toolkit.engine.leaves import leaves, shares
from toolkit.protocols import Context, Drafter, Proposal, Rule, Tests, Verdict
from toolkit.trace.clock import Clock
from toolkit.tree import TokenTree
from toolkit.verification.check import check_draw

if TYPE_CHECKING:
    from toolkit.engine.session import Session


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that share a drafter and a rule."""

    rows: tuple[int, ...]
    drafter: Drafter
    rule: Rule


@dataclass(frozen=True, slots=True)
class Part:
    """A group's guesses in one step."""

    group: Group
    context: Context
    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Draft:
    """The guesses of all groups, and the trees of all rows side by side."""

    parts: tuple[Part, ...]
    tree: TokenTree
    confidence: Tensor | None  # [B, N] where any drafter names one
    clock: Clock
    began: float  # when the step began

    @classmethod
    def of(cls, parts: Sequence[Part], clock: Clock, began: float) -> Draft:
        if len(parts) == 1:
            p = parts[0].proposal
            return cls(tuple(parts), p.tree, p.confidence, clock, began)
        size = max(p.proposal.tree.size for p in parts)
        trees = [_padded(p.proposal.tree, size) for p in parts]
        order = seats(parts, trees[0].token.device)
        tree = TokenTree(
            torch.cat([t.token for t in trees])[order],
            torch.cat([t.parent for t in trees])[order],
            torch.cat([t.real for t in trees])[order],
            linear=all(t.linear for t in trees),
        )
        confidence = None
        if any(p.proposal.confidence is not None for p in parts):
            confidence = torch.cat([_confidence(p.proposal, size) for p in parts])[order]
        return cls(tuple(parts), tree, confidence, clock, began)

    def cut(self, nodes: int) -> Draft:
        """The first nodes of every tree alone. Which are dropped does not depend on what they say, so nothing is biased."""
        parts = []
        for part in self.parts:
            p = part.proposal
            keep = torch.arange(min(nodes, p.tree.size), device=p.tree.token.device).expand(p.tree.rows, -1)
            confidence = None if p.confidence is None else p.confidence[:, : keep.shape[1]]
            source = None if p.q is None else p.source[:, : keep.shape[1]]
            parts.append(replace(part, proposal=Proposal(p.tree.prune(keep), p.q, p.draw, source, confidence)))
        return Draft.of(parts, self.clock, self.began)


def grouped(entries: Sequence[Entry], drafter: Drafter, rule: Rule) -> list[Group]:
    """Which rows go together; `drafter` and `rule` are for those without their own."""
    found: dict[tuple[int, int], tuple[list[int], Drafter, Rule]] = {}
    for b, e in enumerate(entries):
        d, r = e.drafter or drafter, e.rule or rule
        found.setdefault((id(d), id(r)), ([], d, r))[0].append(b)
    return [Group(tuple(rows), d, r) for rows, d, r in found.values()]


def guess(session: Session, group: Group, *, alone: bool) -> Part:
    """A group's guesses; `alone` says that it is the whole batch. Raises ValueError for a proposal of another batch, or one
    that the rule is not made for."""
    context = session.context(None if alone else group.rows)
    if not alone and shares(leaves([group.drafter]), session.lm):
        session.cache.agree(context)  # the drafter reads through the target's cache, and has these rows alone
    session.ask(group.rows, "drafter")
    proposal = group.drafter.propose(context)
    tree, rows = proposal.tree, context.rows
    if tree.rows != rows:
        name = type(group.drafter).__name__
        raise ValueError(f"{name} proposed trees for {tree.rows} rows, and the batch has {rows}")
    check_draw(group.rule, proposal)
    session.asked = ()
    if tree.size > 1:  # what could not be committed any more is padding
        tree = tree.limit(torch.tensor(context.room, device=tree.token.device))
        proposal = Proposal(tree, proposal.q, proposal.draw, proposal.source, proposal.confidence)
    return Part(group, context, proposal)


def judge(session: Session, draft: Draft, logits: Tensor) -> list[Verdict]:
    """Every group's rule on its own rows of logits [B, N, V]."""
    verdicts = []
    for p in draft.parts:
        session.ask(p.group.rows, "rule")
        verdicts.append(p.group.rule(p.proposal, own(p, draft, logits), p.context.sampler))
    session.asked = ()
    return verdicts


def joined(verdicts: Sequence[Verdict], draft: Draft) -> Verdict:
    """The groups' verdicts as one of the whole batch."""
    if len(verdicts) == 1:
        return verdicts[0]
    order = seats(draft.parts, verdicts[0].tip.device)
    every = [_tests(v, p.proposal.tree, draft.tree.size) for v, p in zip(verdicts, draft.parts, strict=True)]

    def rows(name: str) -> Tensor:
        return torch.cat([getattr(t, name).double() for t in every])[order]

    tests = Tests(rows("outcome").long(), rows("p"), rows("q"), rows("accept"), rows("u"))
    return Verdict(torch.cat([v.tip for v in verdicts])[order], torch.cat([v.bonus for v in verdicts])[order], tests)


def own(part: Part, draft: Draft, logits: Tensor) -> Tensor:
    """What logits [B, N, V] say of a part's rows and nodes."""
    if len(draft.parts) == 1:
        return logits
    rows = torch.tensor(part.group.rows, device=logits.device)
    return logits[rows, : part.proposal.tree.size]


def seats(parts: Sequence[Part], device: torch.device) -> Tensor:
    """[B] where each row of the batch stands when the groups stand one after another."""
    return torch.tensor([b for p in parts for b in p.group.rows], device=device).argsort()


def _padded(tree: TokenTree, size: int) -> TokenTree:
    more = (0, size - tree.size)
    return TokenTree(pad(tree.token, more), pad(tree.parent, more, value=-1), pad(tree.real, more), tree.linear)


def _confidence(p: Proposal, size: int) -> Tensor:
    """[B, N], one where the drafter names none."""
    known = torch.ones_like(p.tree.token, dtype=torch.float64) if p.confidence is None else p.confidence.double()
    return pad(known, (0, size - p.tree.size))


def _tests(verdict: Verdict, tree: TokenTree, size: int) -> Tests:
    """A group's tests with as many nodes as the widest group has; none where its rule records none."""
    none = torch.zeros_like(tree.token, dtype=torch.float64)
    t = verdict.tests or Tests(tree.token * 0, none, none, none, none)
    more = (0, size - tree.size)
    return Tests(pad(t.outcome, more), pad(t.p, more), pad(t.q, more), pad(t.accept, more), pad(t.u, more))

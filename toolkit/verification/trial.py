"""Steps of speculative decoding on trial: from the states a run can be in to all states it can be in afterwards.

Letters: S states, R outcomes, N nodes, V vocabulary, C cases, H horizon, D depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.draws import EMIT, mix
from toolkit.protocols import Proposal, Rule, Verdict
from toolkit.tree import TokenTree, path_first
from toolkit.verification.check import check_draw
from toolkit.verification.enumerate import Branches, Truncation
from toolkit.verification.outcomes import Outcomes, every_outcome
from toolkit.verification.toys import Draft, Paths, Table, along

_CHUNK = 20_000  # drafts judged in one batch: enough to fill it, few enough for memory
_AGAIN = 256  # outcomes judged a second time, in other company


@dataclass(frozen=True, slots=True)
class States:
    """Where runs can stand between two steps."""

    weight: Tensor  # [S] probabilities; those of one case sum to 1
    case: Tensor  # [S]
    count: Tensor  # [S] tokens emitted, at most H
    emitted: Tensor  # [S, H] int64, 0 where nothing is emitted yet
    past: Tensor  # [S, P] keys of noise that must not come again

    @classmethod
    def start(cls, cases: int, horizon: int) -> States:
        case = torch.arange(cases)
        return cls(
            case.new_ones(cases).double(), case, case * 0, case.new_zeros(cases, horizon), case.new_zeros(cases, 0)
        )

    def take(self, rows: Tensor) -> States:
        return States(self.weight[rows], self.case[rows], self.count[rows], self.emitted[rows], self.past[rows])

    def full(self, yes: bool) -> States:
        """Those that have reached the horizon, or those that have not."""
        return self.take(((self.count == self.emitted.shape[1]) == yes).nonzero()[:, 0])

    @property
    def paths(self) -> Paths:
        """[S]"""
        path = Paths.start(self.case)
        for t, token in enumerate(self.emitted.unbind(1)):
            on, then = t < self.count, path.then(token)
            path = Paths(path.case, torch.where(on, then.name, path.name), torch.where(on, token, path.last))
        return path

    def law(self, cases: int, vocabulary: int) -> Tensor:
        """[C, V ** H] of the emitted tokens, the first one counting most."""
        out = self.weight.new_zeros(cases, vocabulary ** self.emitted.shape[1])
        return out.index_put_((self.case, _number(self.emitted, vocabulary)), self.weight, accumulate=True)


def merge(parts: list[States], vocabulary: int) -> States:
    """One state for all that nothing to come can tell apart."""
    wide = max(p.past.shape[1] for p in parts)
    past = torch.cat([torch.nn.functional.pad(p.past, (wide - p.past.shape[1], 0)) for p in parts])
    weight, case, count, emitted = (
        torch.cat([getattr(p, n) for p in parts]) for n in ("weight", "case", "count", "emitted")
    )
    horizon = emitted.shape[1]
    code = (case * (horizon + 1) + count) * vocabulary**horizon + _number(emitted, vocabulary)
    for key in past.unbind(1):
        code = mix(code + key)
    found, place = code.unique(return_inverse=True)
    one = place.new_zeros(len(found)).scatter(0, place, torch.arange(len(place)))  # any of those that are alike
    total = weight.new_zeros(len(found)).index_add(0, place, weight)
    return States(total, case[one], count[one], emitted[one], past[one])


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did. `reach` [C, D + 1] is the probability that it kept at least d guesses."""

    states: States
    reach: Tensor
    plain: bool  # every emitted token was the target's own draw at its position
    outcomes: int


@dataclass(frozen=True, slots=True)
class Trial:
    """A drafter and a rule in toy languages."""

    rule: Rule
    draft: Draft
    target: Table
    drafter: Table
    parents: Tensor  # [K, N] shapes, dealt to the cases in turn
    truncation: Truncation | None
    vocabulary: int

    def step(self, states: States, cases: int) -> Step:
        """Draft, judge and commit in every way that is possible from the states [S]."""
        paths, shape = states.paths, self.parents[states.case % len(self.parents)]

        def guess(rows: Tensor, source: Branches) -> Proposal:
            root = Paths(paths.case[rows], paths.name[rows], paths.last[rows])
            return self.draft(self.drafter, shape[rows], root, source)

        drafted = every_outcome(guess, Branches(states.count, states.past, self.truncation), states.weight)
        check_draw(self.rule, drafted.result)
        parts, plain, seen = [], True, 0
        reach = states.weight.new_zeros(cases, self.parents.shape[1])
        for rows in torch.arange(len(drafted.weight)).split(_CHUNK):
            judged, logits = self._judge(drafted, rows, paths)
            origin = drafted.origin[rows][judged.origin]
            proposal = take(drafted.result, rows[judged.origin])
            kept, token = emitted(proposal.tree, judged.result)
            parts.append(_commit(states.take(origin), judged, kept, token))
            plain = plain and _plain(judged.branches, judged.result, proposal.tree, logits[judged.origin], kept, token)
            reach.index_put_((states.case[origin], kept), judged.weight, accumulate=True)
            seen += len(origin)
        deep = reach.flip(1).cumsum(1).flip(1)
        return Step(merge(parts, self.vocabulary), deep[:, : int(deep.sum(0).count_nonzero())], plain, seen)

    def _judge(self, drafted: Outcomes[Proposal], rows: Tensor, paths: Paths) -> tuple[Outcomes[Verdict], Tensor]:
        """All verdicts on the drafts `rows` [R], and the target's logits [R, N, V] on them."""
        proposal, origin = take(drafted.result, rows), drafted.origin[rows]
        root = Paths(paths.case[origin], paths.name[origin], paths.last[origin])
        logits = self.target(along(proposal.tree, root))

        def rule(rows: Tensor, source: Branches) -> Verdict:
            return self.rule(take(proposal, rows), logits[rows], source)

        judged = every_outcome(rule, drafted.branches.take(rows).go_on(), drafted.weight[rows])
        self._check(judged, proposal.tree)
        some = torch.arange(len(judged.weight)).flip(0)[: min(_AGAIN, 1 + len(judged.weight) // 3)]
        again = rule(judged.origin[some], judged.branches.take(some))
        if not (again.tip.equal(judged.result.tip[some]) and again.bonus.equal(judged.result.bonus[some])):
            raise ValueError(
                "given the same draws, the rule decided otherwise when it was run again: it takes chance from elsewhere than "
                "the sampler, keeps state, or its rows look at one another"
            )
        return judged, logits

    def _check(self, judged: Outcomes[Verdict], tree: TokenTree) -> None:
        tip, bonus = judged.result.tip, judged.result.bonus
        inside = (tip >= 0) & (tip < tree.size)
        if not (inside & tree.real[judged.origin, tip.clamp(0, tree.size - 1)]).all():
            raise ValueError(
                f"the rule's tip must be a real node of the tree, 0 to {tree.size - 1}; got {tip.unique().tolist()}"
            )
        if not ((bonus >= 0) & (bonus < self.vocabulary)).all():
            raise ValueError(
                f"the rule's bonus must be a token, 0 to {self.vocabulary - 1}; got {bonus.unique().tolist()}"
            )


def take(proposal: Proposal, rows: Tensor) -> Proposal:
    """Rows [R] of a proposal."""
    tree = proposal.tree
    some = TokenTree(tree.token[rows], tree.parent[rows], tree.real[rows], linear=tree.linear)
    q, q_row = (None if x is None else x[rows] for x in (proposal.q, proposal.q_row))
    return Proposal(some, q, proposal.draw, q_row)


def emitted(tree: TokenTree, verdict: Verdict) -> tuple[Tensor, Tensor]:
    """How many guesses are kept [R], and the emitted tokens [R, N]: those guesses, the bonus, then junk."""
    path = tree.path(verdict.tip)
    kept = path.sum(1) - 1
    token = tree.token.gather(1, path_first(path)).roll(-1, 1)
    return kept, token.scatter(1, kept[:, None], verdict.bonus[:, None])


def _commit(states: States, judged: Outcomes[Verdict], kept: Tensor, token: Tensor) -> States:
    """The states [R] with the tokens [R, N] added, `kept` [R] guesses and a bonus, as far as the horizon goes."""
    horizon = states.emitted.shape[1]
    place = torch.arange(horizon) - states.count[:, None]  # [R, H] which of the new tokens stands there
    fresh = token.gather(1, place.clamp(0, token.shape[1] - 1))
    now = torch.where((place >= 0) & (place <= kept[:, None]), fresh, states.emitted)
    count = (states.count + kept + 1).clamp(max=horizon)
    past = judged.branches.used(states.count + kept + 1) * (count < horizon)[:, None]
    return States(judged.weight, states.case, count, now, past)


def _plain(branches: Branches, verdict: Verdict, tree: TokenTree, logits: Tensor, kept: Tensor, token: Tensor) -> bool:
    """Was every emitted token drawn by `emit`, at its position, from the target's distribution after its path."""
    rows, order = torch.arange(len(kept)), path_first(tree.path(verdict.tip))
    probs = branches.probs(logits, tree)
    for t in range(int(kept.max()) + 1):
        law, own = probs[rows, order[:, t]], kept < t
        for call in branches.calls:
            if call.stream == EMIT:
                same = (call.position == branches.position + t + 1) & (call.choice == token[:, t])
                own = own | (same & ((call.law - law).abs().amax(-1) < 1e-9))
        if not own.all():
            return False
    return True


def _number(digits: Tensor, base: int) -> Tensor:
    """[R] the numbers whose digits [R, H] are given, the first one counting most."""
    out = digits.new_zeros(len(digits))
    for digit in digits.unbind(1):
        out = out * base + digit
    return out

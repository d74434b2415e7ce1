"""A recorded step judged under every seed: by trying many, and by working out what can happen.

Letters: B seeds or outcomes, N nodes, U tokens.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.protocols import Rule, Verdict
from toolkit.sampling import Sampling
from toolkit.trace import RowRecord
from toolkit.verification.enumerate import Branches
from toolkit.verification.outcomes import every_outcome
from toolkit.verification.trial import emitted
from toolkit.whatif.again import verdict_of
from toolkit.whatif.case import Case
from toolkit.whatif.prefix import Prefix

_CELLS = 1 << 24  # numbers of the largest array, rows times nodes times tokens
_MOST = 1 << 22  # and of a law, with outcomes for rows: a second or two


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many guesses were kept, over many seeds. The guesses stay as they were drawn: coins and draws of the rule change.

    counts  [depth of the tree + 1] seeds that kept 0, 1, 2, ... guesses
    ms      milliseconds that it took
    """

    counts: tuple[int, ...]
    exact: bool
    lumped: float
    notes: tuple[str, ...]
    ms: float

    @property
    def seeds(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Accepted guesses, the bonus not counted."""
        return sum(n * c for n, c in enumerate(self.counts)) / self.seeds

    @property
    def mean_with_bonus(self) -> float:
        """Tokens that a step gives: the acceptance length."""
        return self.mean + 1


@dataclass(frozen=True, slots=True)
class Law:
    """Exact probabilities of what the rule makes of these guesses.

    accepted  [depth of the tree + 1] of keeping 0, 1, 2, ... guesses
    emitted   of all that may be emitted, the likeliest first; REST (-1) is any token that was not recorded
    target    of the first token, as the target has it. Given certain guesses a lossless rule has the same. Guesses that were
              drawn are looked at as given here, and only on average over the drawing do lossless rules keep it: see `proof`
    outcomes  branches looked at
    """

    accepted: tuple[float, ...]
    emitted: tuple[tuple[tuple[int, ...], float], ...]
    target: dict[int, float]
    exact: bool
    lumped: float
    notes: tuple[str, ...]
    outcomes: int

    @property
    def first(self) -> dict[int, float]:
        """Of the first emitted token."""
        found: defaultdict[int, float] = defaultdict(float)
        for tokens, mass in self.emitted:
            found[tokens[0]] += mass
        return dict(found)

    @property
    def mean(self) -> float:
        """Expected number of accepted guesses, the bonus not counted."""
        return sum(n * mass for n, mass in enumerate(self.accepted))


def distribution(
    record: RowRecord,
    rule: Rule | str | None = None,
    *,
    sampling: Sampling | None = None,
    shape: Prefix | None = None,
    seeds: int | Sequence[int] = 1000,
) -> Lengths:
    """Judge the step under many seeds at once: 0, 1, 2, ... or those that are given.

    Raises ValueError as `again` does, for coupled guesses, and without any seed.
    """
    began = time.perf_counter()
    every = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not every:
        raise ValueError("there is no seed to judge the step under: give at least one")
    case = uncoupled(Case.of(record, rule, sampling, None, shape))
    tree = case.problem.proposal.tree
    counts = torch.zeros(1 + int(tree.depth.max()), dtype=torch.long)
    size = max(1, _CELLS // case.problem.logits[0].numel())
    for at in range(0, len(every), size):
        kept = tree.depth[0, verdict_of(case, every[at : at + size]).tip]
        counts += torch.bincount(kept, minlength=len(counts))
    ms = 1e3 * (time.perf_counter() - began)
    return Lengths(tuple(counts.tolist()), case.exact(case.every), case.lumped(case.every), case.notes(case.every), ms)


def law(
    record: RowRecord,
    rule: Rule | str | None = None,
    *,
    sampling: Sampling | None = None,
    shape: Prefix | None = None,
) -> Law:
    """Work out everything that the rule can make of the step, with exact probabilities.

    Raises ValueError as `again` does, for coupled guesses, and where there is too much to look at.
    """
    case = uncoupled(Case.of(record, rule, sampling, None, shape))
    if case.greedy:
        return _summed(case, verdict_of(case, [case.sampling.seed]), torch.ones(1, dtype=torch.float64))

    def judge(rows: Tensor, source: Branches) -> Verdict:
        proposal, logits = case.problem.rows(len(rows))
        if logits.numel() > _MOST:
            raise ValueError(
                f"more than {len(rows)} things can happen to {logits.shape[1]} nodes with {logits.shape[2]} tokens each, too much "
                f"to look at: take a truncation, for instance top_k=20, or a smaller shape"
            )
        return case.rule(proposal, logits, source)

    start = Branches(torch.tensor([case.record.position]), torch.zeros(1, 0, dtype=torch.long))
    found = every_outcome(judge, start, torch.ones(1, dtype=torch.float64))
    return _summed(case, found.result, found.weight)


def uncoupled(case: Case) -> Case:
    """The same. Raises ValueError for coupled guesses."""
    if case.problem.proposal.draw == "coupled":
        raise ValueError(
            "coupled guesses were made with the noise of their seed, so under other seeds they would be others: ask `again`"
        )
    return case


def _summed(case: Case, verdict: Verdict, weight: Tensor) -> Law:
    p = case.problem
    kept, token = emitted(p.rows(len(weight))[0].tree, verdict)
    accepted = torch.zeros(1 + int(p.proposal.tree.depth.max()), dtype=torch.float64).index_add(0, kept, weight)
    found: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for n, ids, mass in zip(kept.tolist(), p.token[token].tolist(), weight.tolist(), strict=True):
        found[tuple(ids[: n + 1])] += mass
    ranked = sorted(found.items(), key=lambda item: -item[1])
    target = {int(t): float(m) for t, m in zip(p.token, p.probs[0], strict=True) if m > 0}
    return Law(
        tuple(accepted.tolist()),
        tuple(ranked),
        target,
        case.exact(case.every),
        case.lumped(case.every),
        case.notes(case.every),
        outcomes=len(weight),
    )

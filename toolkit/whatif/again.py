"""One verdict more on a recorded step, to stand beside the one that was."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.protocols import Rule, Tests, Verdict
from toolkit.sampling import Sampling
from toolkit.trace import RowRecord
from toolkit.whatif.case import Case
from toolkit.whatif.prefix import Prefix
from toolkit.whatif.rules import lossless


@dataclass(frozen=True, slots=True)
class Answer:
    """record    the step as it would have been: its tree, its tests, and in `emitted` the whole verdict, whatever ends the
                 request. A bonus of REST (-1) is some token that was not recorded.
    original     the step as it was
    lossless     as the rule says of itself
    exact        the same as with the whole vocabulary and the model's own logits
    lumped       the largest probability, after a node that the verdict depends on, of the tokens that were not recorded; 0 where
                 `exact`
    notes        what has to be said, a sentence each
    """

    record: RowRecord
    original: RowRecord
    rule: str
    lossless: bool | None
    exact: bool
    lumped: float
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """The same guesses are kept, and the same token comes after them."""
        return _said(self.record) == _said(self.original)


def again(
    record: RowRecord,
    rule: Rule | str | None = None,
    *,
    sampling: Sampling | None = None,
    seed: int | None = None,
    shape: Prefix | None = None,
) -> Answer:
    """Judge the step again. What is None is as it was recorded; `seed` counts more than the one in `sampling`.

    Raises ValueError without evidence, for a rule that does not judge such guesses, and for guesses that were coupled to
    another seed.
    """
    case = Case.of(record, rule, sampling, seed, shape)
    other = case.sampling.seed != case.evidence.seed
    if case.problem.proposal.draw == "coupled" and other:
        raise ValueError(
            f"these guesses were made with the noise of seed {case.evidence.seed}, and with that of {case.sampling.seed} "
            f"they would be others: keep the seed"
        )
    made = judged(case, verdict_of(case, [case.sampling.seed]))
    nodes = case.used(made.path)
    notes = case.notes(nodes)
    if _said(made) != _said(record):
        notes += ("From here on the text would be another one, so this tells of this step alone.",)
    return Answer(made, record, case.name, lossless(case.rule), case.exact(nodes), case.lumped(nodes), notes)


def verdict_of(case: Case, seeds: list[int]) -> Verdict:
    """One row a seed."""
    proposal, logits = case.problem.rows(len(seeds))
    return case.rule(proposal, logits, case.problem.sampler(seeds, greedy=case.greedy))


def judged(case: Case, verdict: Verdict) -> RowRecord:
    """The first row of a verdict as a record."""
    p, old = case.problem, case.record
    parent = tuple(p.proposal.tree.parent[0].tolist())
    tip, bonus = int(verdict.tip[0]), int(p.token[verdict.bonus[0]])
    none = torch.zeros(1, len(parent), dtype=torch.float64)
    tests = verdict.tests or Tests(none.long(), none, none, none, none)
    token, path, at = [old.token[i] for i in p.nodes], [], tip
    while at > 0:
        path.append(token[at])
        at = parent[at]

    def floats(x: Tensor) -> tuple[float, ...]:
        return tuple(x[0].double().tolist())

    return RowRecord(
        position=old.position,
        token=tuple(token),
        parent=parent,
        tip=tip,
        bonus=bonus,
        emitted=(*reversed(path), bonus),
        outcome=tuple(tests.outcome[0].tolist()),
        p=floats(tests.p),
        q=floats(tests.q),
        accept=floats(tests.accept),
        u=floats(tests.u),
        confidence=tuple(old.confidence[i] for i in p.nodes) if old.confidence else (),
        prob=tuple(old.prob[i] for i in p.nodes) if old.prob else (),
        top=tuple(old.top[i] for i in p.nodes) if old.top else (),
    )


def _said(r: RowRecord) -> tuple[int, ...]:
    return (*(r.token[i] for i in r.path), r.bonus)

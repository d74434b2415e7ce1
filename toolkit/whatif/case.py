"""What is asked, with everything that was left out taken from the record."""

from __future__ import annotations

from dataclasses import dataclass, replace

from toolkit.protocols import Rule
from toolkit.sampling import Sampling
from toolkit.trace import RowRecord
from toolkit.trace.evidence import Evidence
from toolkit.verification import Optimal
from toolkit.verification.check import check_draw
from toolkit.whatif.known import evidence_of
from toolkit.whatif.prefix import Prefix
from toolkit.whatif.problem import Problem, problem
from toolkit.whatif.rules import lossless, rule_of

_DUST = 1e-6  # of q: its float32 numbers do not sum to one more exactly


@dataclass(frozen=True, slots=True)
class Case:
    record: RowRecord
    evidence: Evidence
    rule: Rule
    sampling: Sampling
    problem: Problem

    @classmethod
    def of(
        cls,
        record: RowRecord,
        rule: Rule | str | None,
        sampling: Sampling | None,
        seed: int | None,
        shape: Prefix | None,
    ) -> Case:
        """Raises ValueError without evidence, and for a rule that is unknown or not made for the guesses."""
        e = evidence_of(record)
        chosen = rule_of(rule, e.rule)
        asked = sampling or recorded(e)
        if seed is not None:
            asked = replace(asked, seed=seed)
        nodes = (shape or Prefix()).nodes(record)
        case = cls(record, e, chosen, asked, problem(record, asked, nodes))
        check_draw(chosen, case.problem.proposal)
        return case

    @property
    def name(self) -> str:
        return type(self.rule).__name__

    @property
    def greedy(self) -> bool:
        return self.sampling.heat == 0

    @property
    def exact(self) -> bool:
        """The answer is that of the whole vocabulary."""
        p = self.problem
        whole = not isinstance(self.rule, Optimal) or p.lumped_q < _DUST  # it looks at every set of guesses
        return p.sure and p.lumped == 0 and whole

    @property
    def smaller(self) -> bool:
        """Guesses of the recorded tree are left out."""
        return len(self.problem.nodes) < len(self.record.token)

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be said of any answer, a sentence each."""
        said = []
        p, e = self.problem, self.evidence
        if not self.exact:
            share = max(p.lumped, p.lumped_q) if isinstance(self.rule, Optimal) else p.lumped
            said.append(
                f"Not exact: up to {share:.2%} of the probability after a node lies on tokens that were not recorded, and "
                f"counts as one token."
            )
        if p.proposal.q is not None and _filters(self.sampling) != _filters(recorded(e)):
            said.append(
                f"The guesses stay those that were drawn under temperature {e.temperature:g} and its filters: the rule uses "
                f"the q they were drawn from, so it is valid, but a drafter under other parameters guesses otherwise."
            )
        if self.smaller:
            said.append(
                "As an estimate of what the smaller shape would do this is biased: the tree that ran decided which texts were "
                "drafted from, and the smaller one would have come to others."
            )
        if lossless(self.rule) is False and not self.greedy:
            said.append(f"{self.name} is lossy: it does not keep the target's distribution.")
        return tuple(said)


def recorded(e: Evidence) -> Sampling:
    """The sampling parameters of the request, without penalties and constraints."""
    return Sampling(e.temperature, e.top_k, e.top_p, e.min_p, e.seed, e.typical_p)


def _filters(s: Sampling) -> tuple[float, ...]:
    return s.heat, s.top_k, s.top_p, s.min_p, s.typical_p

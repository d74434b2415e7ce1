"""What is asked, with everything that was left out taken from the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from toolkit.protocols import Rule
from toolkit.sampling import Sampling
from toolkit.trace import RowRecord
from toolkit.trace.evidence import Evidence
from toolkit.verification import Coupled, Greedy, Optimal, PointMass, Rejection
from toolkit.verification.check import check_draw
from toolkit.whatif.known import evidence_of
from toolkit.whatif.prefix import Prefix
from toolkit.whatif.problem import Problem, problem
from toolkit.whatif.rules import lossless, rule_of

_WALKS = (Rejection, PointMass, Coupled, Greedy)
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

    def used(self, path: Sequence[int]) -> list[int]:
        """The nodes whose distributions a verdict with this path depends on: those of the path where the rule goes down node
        by node, all nodes otherwise."""
        return list(path) if isinstance(self.rule, _WALKS) else self.every

    @property
    def every(self) -> list[int]:
        """All nodes of the problem."""
        return list(range(len(self.problem.nodes)))

    def lumped(self, nodes: Sequence[int]) -> float:
        """The largest probability after any of these nodes that lies on tokens that were not recorded."""
        p = self.problem
        unknown = p.lumped_q if isinstance(self.rule, Optimal) and p.lumped_q > _DUST else 0.0  # looks at all of q
        return max(unknown, *(p.lumped[i] for i in nodes))

    def exact(self, nodes: Sequence[int]) -> bool:
        """What depends on these nodes alone is as with the whole vocabulary."""
        return self.lumped(nodes) == 0 and all(self.problem.sure[i] for i in nodes)

    @property
    def smaller(self) -> bool:
        """Guesses of the recorded tree are left out."""
        return len(self.problem.nodes) < len(self.record.token)

    def notes(self, nodes: Sequence[int]) -> tuple[str, ...]:
        """What has to be said of an answer that depends on these nodes, a sentence each."""
        said = []
        p, e = self.problem, self.evidence
        if share := self.lumped(nodes):
            said.append(
                f"Not exact: up to {share:.2%} of the probability after a node lies on tokens that were not recorded, and "
                f"counts as one token."
            )
        elif not self.exact(nodes):
            said.append("Not exact: where the truncation cuts depends on tokens that were not recorded.")
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

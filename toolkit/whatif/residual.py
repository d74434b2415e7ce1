"""What is left of the target's distribution after refusals: where a correction comes from."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.trace import RowRecord
from toolkit.trace.records import REJECTED
from toolkit.verification.drawn import drawn_from, normalised
from toolkit.whatif.case import recorded
from toolkit.whatif.known import evidence_of
from toolkit.whatif.problem import REST, problem


@dataclass(frozen=True, slots=True)
class Residual:
    """top: the likeliest tokens with their probabilities; rest: the mass of all others, `unknown` of it on tokens that were
    not recorded. refused: the children whose q was taken away, in that order; without any it is p itself."""

    top: tuple[tuple[int, float], ...]
    rest: float
    unknown: float
    refused: tuple[int, ...]


def residual(record: RowRecord, node: int, top: int = 5) -> Residual:
    """norm(max(r - q, 0)) for each refused child of a node in turn, r = p at first: what `Rejection` draws from after them.

    Raises ValueError without evidence, and for a node that the tree has not.
    """
    if not 0 <= node < len(record.token):
        raise ValueError(f"the tree has nodes 0 to {len(record.token) - 1}; got {node}")
    p = problem(record, recorded(evidence_of(record)), range(len(record.token)))
    left = p.probs[None, node]
    refused = [i for i, above in enumerate(record.parent) if above == node and record.outcome[i] == REJECTED]
    for i in refused:
        left = normalised((left - drawn_from(p.proposal, i, left)).clamp(min=0), left)
    ids, mass = p.token.tolist(), left[0].tolist()
    ranked = sorted(((t, m) for t, m in zip(ids, mass, strict=True) if m > 0 and t != REST), key=lambda x: -x[1])
    shown = tuple(ranked[:top])
    return Residual(shown, max(0.0, 1 - sum(m for _, m in shown)), mass[-1], tuple(refused))

"""A step's verification as a teacher tells it: one test after another, in the order in which the rule made them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolkit.trace import RowRecord
from toolkit.trace.labels import visible
from toolkit.trace.records import ACCEPTED, NOT_TESTED


@dataclass(frozen=True, slots=True)
class Stop:
    """One sentence, about a node. The node after the last is the token that the target added."""

    node: int
    text: str


def walk(record: RowRecord, decode: Callable[[Sequence[int]], str]) -> list[Stop]:
    """From the pending token down the kept path, siblings in draw order, to the bonus or correction."""

    def word(token: int) -> str:
        return f"“{visible(decode([token]))}”"

    stops = [Stop(0, f"The pending token {word(record.token[0])}: it is in the text already, and guesses follow it.")]
    for at in record.path:
        children = [i for i, p in enumerate(record.parent) if p == at and record.outcome[i] != NOT_TESTED]
        stops += [Stop(i, f"Guess {word(record.token[i])}: {_test(record, i)}") for i in children]
    if record.corrected:
        why = "all guesses tested here were rejected, so the target puts its own token: a correction"
    elif any(p == record.tip for p in record.parent):
        why = "no guess was tested here, so the target puts its own token: a bonus"
    else:
        why = "the guesses end here, all accepted, and the target adds one token for free: the bonus"
    return [*stops, Stop(len(record.token), f"{word(record.bonus)}: {why}.")]


def _test(record: RowRecord, i: int) -> str:
    accepted = record.outcome[i] == ACCEPTED
    ending = "accepted" if accepted else "rejected"
    if math.isnan(record.u[i]):
        return f"nothing is left to chance (accept with {record.accept[i]:.2f}): {ending}."
    if record.q[i] == 1:
        drawn = f"the drafter was certain, the target gives it p = {record.p[i]:.3f}"
    else:
        drawn = f"drawn with q = {record.q[i]:.3f}, the target gives it p = {record.p[i]:.3f}"
    sign = "<" if accepted else "≥"
    return (
        f"{drawn}. Accept with {record.accept[i]:.3f}; u = {record.u[i]:.3f} {sign} {record.accept[i]:.3f}: {ending}."
    )

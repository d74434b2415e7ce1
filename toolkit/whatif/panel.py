"""A question and its answer in plain values, for a panel with menus and sliders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from toolkit.protocols import Rule
from toolkit.sampling import Sampling
from toolkit.trace import RowRecord
from toolkit.whatif.again import again
from toolkit.whatif.case import recorded
from toolkit.whatif.chances import Lengths, distribution, law
from toolkit.whatif.known import evidence_of
from toolkit.whatif.prefix import Prefix
from toolkit.whatif.rules import RULES, lossless, rule_of

SEEDS = 1000


@dataclass(frozen=True, slots=True)
class Question:
    """rule: its name. levels, siblings, budget: 0 keeps all."""

    rule: str
    temperature: float
    top_k: int
    top_p: float
    seed: int
    levels: int = 0
    siblings: int = 0
    budget: int = 0

    @classmethod
    def of(cls, record: RowRecord, rules: Mapping[str, Rule] = RULES) -> Question:
        """What was the case. Raises ValueError without evidence."""
        e = evidence_of(record)
        name = next((n for n, rule in rules.items() if repr(rule) == e.rule), next(iter(rules)))
        return cls(name, e.temperature, e.top_k, e.top_p, e.seed)


@dataclass(frozen=True, slots=True)
class Chances:
    """How many guesses are kept: over many seeds, and exactly where that could be worked out."""

    seen: Lengths
    law: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """record: the step as it would have been. before: as it was judged, None where the rule is not at hand; after: as asked."""

    record: RowRecord
    rule: str
    before: Chances | None
    after: Chances | None
    exact: bool
    notes: tuple[str, ...]


def compare(record: RowRecord, question: Question, rules: Mapping[str, Rule] = RULES) -> Comparison:
    """Raises ValueError, in a sentence, where there is no answer."""
    e = evidence_of(record)
    rule = rules[question.rule]
    old = recorded(e)
    asked = Sampling(question.temperature, question.top_k, question.top_p, old.min_p, question.seed, old.typical_p)
    shape = Prefix(question.levels or None, question.siblings or None, question.budget or None)
    answer = again(record, rule, sampling=asked, shape=shape)
    notes = list(answer.notes)
    after = _chances(record, rule, asked, shape, notes)
    before = None
    try:
        was = next((r for r in rules.values() if repr(r) == e.rule), None) or rule_of(None, e.rule)
        unasked = was is rule and replace(asked, seed=old.seed) == old and shape == Prefix()
        before = after if unasked else _chances(record, was, old, Prefix(), [])
    except ValueError as error:
        notes.append(f"{error}.")
    return Comparison(answer.record, answer.rule, before, after, answer.exact, tuple(dict.fromkeys(notes)))


def labels(rules: Mapping[str, Rule] = RULES) -> list[tuple[str, str]]:
    """The rules as a menu says them, and their names."""
    words = {True: "lossless", False: "lossy", None: "says nothing of its law"}
    return [(f"{name} ({words[lossless(rule)]})", name) for name, rule in rules.items()]


def _chances(record: RowRecord, rule: Rule, sampling: Sampling, shape: Prefix, notes: list[str]) -> Chances | None:
    try:
        seen = distribution(record, rule, sampling=sampling, shape=shape, seeds=SEEDS)
    except ValueError as error:
        notes.append(f"{str(error)[:1].upper()}{str(error)[1:]}.")
        return None
    try:
        return Chances(seen, law(record, rule, sampling=sampling, shape=shape).accepted)
    except ValueError as error:
        notes.append(f"No exact law: {error}.")
        return Chances(seen)

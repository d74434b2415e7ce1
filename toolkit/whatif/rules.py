"""The rules by name, for menus and for records that name the rule that judged them."""

from __future__ import annotations

from toolkit.protocols import Rule
from toolkit.verification import (
    Block,
    Coupled,
    Greedy,
    Optimal,
    PointMass,
    Rejection,
    Threshold,
    TopKLenient,
    Traversal,
    Typical,
)

_EVERY = (
    Rejection(),
    Block(),
    Traversal(),
    PointMass(),
    Coupled(),
    Greedy(),
    Optimal(),
    Typical(),
    Threshold(),
    TopKLenient(),
)
RULES: dict[str, Rule] = {type(rule).__name__: rule for rule in _EVERY}


def rule_of(given: Rule | str | None, recorded: str) -> Rule:
    """The rule itself, the one of that name, or for None the one that the record names by its repr.

    Raises ValueError for an unknown name, and for a recorded rule that only its author can make again.
    """
    if given is None:
        for rule in RULES.values():
            if repr(rule) == recorded:
                return rule
        raise ValueError(
            f"this step was judged by {recorded}, which is none of the package's rules as they come: give it as `rule`"
        )
    if isinstance(given, str):
        if given not in RULES:
            raise ValueError(f"unknown rule {given!r}: use one of {', '.join(RULES)}, or a rule of your own")
        return RULES[given]
    return given


def lossless(rule: Rule) -> bool | None:
    """As the rule says of itself; None where it says nothing."""
    return getattr(rule, "lossless", None)

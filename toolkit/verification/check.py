"""A rule says which proposals it is made for; any other is refused by name before it can bias a result."""

from __future__ import annotations

from toolkit.protocols import Proposal, Rule


def check_draw(rule: Rule, proposal: Proposal) -> None:
    """Raise ValueError when `rule.draws` exists and does not contain the proposal's draw."""
    allowed = getattr(rule, "draws", None)
    if allowed is not None and proposal.draw not in allowed:
        name = type(rule).__name__
        raise ValueError(
            f"{name} is made for {sorted(allowed)} nodes, and this proposal's are {proposal.draw!r}: "
            f"choose another rule (Rejection takes all but 'coupled', Coupled takes all) or another shape"
        )

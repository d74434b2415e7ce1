"""What a lossy rule gains and what it costs: accepted guesses against distance from the target, exactly, as plain data.

A rule with a dial (an epsilon, a threshold, a top-k) is a curve in that plane; the exact rules all lie on the axis of no
distance, and the best of them marks how far one can get for nothing.

Letters: V vocabulary, C cases, H horizon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from toolkit.protocols import Draw, Rule
from toolkit.verification.proof import Proof, prove
from toolkit.verification.toys import Draft


@dataclass(frozen=True, slots=True)
class Point:
    """One rule. tv and kl have one entry a position: the mean distance, over the texts that the rule itself writes, of its
    next token from the target's; kl(rule || target) in nats, which sum to that of the joint laws. Infinite when the rule
    says what the target never does."""

    name: str
    lossless: bool  # as the rule says of itself
    accepted: float  # expected accepted guesses in a step
    tv: tuple[float, ...]
    kl: tuple[float, ...]


def frontier(
    rules: Mapping[str, Rule],
    shape: tuple[int, ...] = (-1, 0, 1, 2),
    draw: Draw | Draft = "independent",
    *,
    horizon: int = 2,
    cases: int = 20,
    **options: Any,
) -> list[Point]:
    """Prove every rule on the same drafts; the points come sorted by accepted guesses. `options` as in `prove`.

    frontier({f"epsilon {e}": Typical(epsilon=e, delta=e**0.5) for e in (0.01, 0.03, 0.09, 0.3)} | {"exact": Block()})
    """
    options |= {"horizon": horizon, "cases": cases}
    points = [_point(name, rule, prove(rule, shape, draw, **options)) for name, rule in rules.items()]
    return sorted(points, key=lambda point: point.accepted)


def _point(name: str, rule: Rule, proof: Proof) -> Point:
    tv, kl = [], []
    for tokens in range(1, proof.horizon + 1):
        said, wanted = (law.view(len(law), -1, proof.vocabulary) for law in proof.marginal(tokens))  # [C, prefixes, V]
        share = said.sum(-1, keepdim=True)  # of texts that begin with the prefix
        wanted = wanted / wanted.sum(-1, keepdim=True)  # NaN after what the target never says
        now = said / share.where(share > 0, 1)
        apart = (now - wanted).abs().sum(-1).nan_to_num(2) / 2
        loss = (torch.special.xlogy(now, now) - torch.special.xlogy(now, wanted)).sum(-1).nan_to_num(0, torch.inf)
        tv.append(float((share[..., 0] * apart).sum(-1).mean()))
        kl.append(float((share[..., 0] * loss.where(share[..., 0] > 0, 0)).sum(-1).mean()))
    return Point(name, getattr(rule, "lossless", False), proof.accepted, tuple(tv), tuple(kl))


def table(points: Sequence[Point]) -> str:
    """The points as a Markdown table, one line a rule, TV and KL by position."""
    lines = ["| rule | lossless | accepted a step | TV by position | KL by position, nats |", "|---|---|---|---|---|"]
    for p in points:
        tv, kl = (" ".join(f"{x:.4f}" for x in numbers) for numbers in (p.tv, p.kl))
        lines.append(f"| {p.name} | {'yes' if p.lossless else 'no'} | {p.accepted:.3f} | {tv} | {kl} |")
    return "\n".join(lines)

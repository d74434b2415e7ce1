"""The most that siblings can give: an optimal transport from the sets of guesses to the target's tokens.

The k siblings of a node form the set S with probability Q(S). An exact rule sends each set to one of its own tokens, or
to none, and no token y may get more than p(y). The best rule is a maximal flow:

    maximise  sum over S and y in S of f(S, y),   sum_y f(S, y) <= Q(S),   sum_S f(S, y) <= p(y),   f >= 0

Given S, child y is accepted with probability f(S, y) / Q(S); after a refusal the correction comes from what p was not
paid, norm(p - sum_S f(S, .)). Sun et al. 2023, "SpecTr: Fast Speculative Decoding via Optimal Transport", pose the
problem; Hu et al. 2025, "Towards Optimal Multi-Draft Speculative Decoding", give its value as a minimal cut, the least
of 1 - p(A) + Q(S meets A) over all sets A of tokens.

With one level of guesses nothing exact accepts more often. Below the first level the rule goes node by node, as
`Rejection` does. The sets number V ** k, so this is a yardstick for small vocabularies and no rule for models: it works
on the host, row by row.

Letters: B rows, N nodes, V vocabulary, k siblings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from toolkit.protocols import Draw, Proposal, Sampler, Verdict
from toolkit.verification.flow import maximal_flow

MOST_SETS = 4096


@dataclass(frozen=True, slots=True)
class Optimal:
    """Lossless, and a yardstick: raises ValueError where the siblings of a node could form more than 4096 sets."""

    lossless: ClassVar[bool] = True
    draws: ClassVar[frozenset[Draw]] = frozenset(("certain", "independent", "distinct"))

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        probs = sampler.probs(logits, proposal.tree)  # [B, N, V]
        walks = [_Walk(proposal, probs, b) for b in range(proposal.tree.rows)]
        for i in range(1, proposal.tree.size):
            accept = torch.tensor([w.chance(i) for w in walks], dtype=probs.dtype)
            taken, _ = sampler.coin(accept, proposal.tree.depth[:, i], i)
            for walk, yes in zip(walks, taken.tolist(), strict=True):
                walk.go(i, yes)
        tip = torch.tensor([w.here for w in walks])
        rest = torch.tensor([w.plan.rest for w in walks], dtype=probs.dtype)
        return Verdict(tip, sampler.emit(rest, proposal.tree.depth.gather(1, tip[:, None])[:, 0] + 1))


class _Walk:
    """One row on its way down: the node it stands on, the plan for its children, and what they have used of it."""

    def __init__(self, proposal: Proposal, probs: Tensor, b: int) -> None:
        tree = proposal.tree
        self.token, self.parent = tree.token[b].tolist(), tree.parent[b].where(tree.real[b], -1).tolist()
        self.source, self.draw = proposal.source[b].tolist(), proposal.draw
        self.p, self.q = probs[b].tolist(), None if proposal.q is None else proposal.q[b].tolist()
        self.arrive(0)

    def arrive(self, node: int) -> None:
        children = [i for i, above in enumerate(self.parent) if i > 0 and above == node]
        drawn = frozenset(self.token[i] for i in children)
        sampled = [i for i in children if self.source[i] >= 0]
        if len(sampled) not in (0, len(children)):
            raise ValueError("Optimal wants the children of a node all certain or all sampled: use the rule Rejection")
        if self.q is None or not sampled:
            law = {drawn: 1.0}
        else:
            law = _sets(tuple(self.q[self.source[sampled[0]]]), len(sampled), self.draw)
        self.here, self.plan = node, _plan(tuple(law.items()), tuple(self.p[node]), drawn)
        self.open, self.left = dict(self.plan.given), 1.0

    def chance(self, i: int) -> float:
        """The probability of accepting node i now: its share of the set, given that no sibling before it took it."""
        if i == 0 or self.parent[i] != self.here:
            return 0.0
        return min(1.0, self.open.get(self.token[i], 0.0) / self.left) if self.left > 0 else 0.0

    def go(self, i: int, accepted: bool) -> None:
        if accepted:
            self.arrive(i)
        elif self.parent[i] == self.here:
            self.left -= self.open.pop(self.token[i], 0.0)  # a second sibling with this token has no share


@dataclass(frozen=True, slots=True)
class _Plan:
    """given: the share of each token of the set in its probability. rest: what all sets together leave of p."""

    given: dict[int, float]
    rest: tuple[float, ...]


def best_acceptance(p: Sequence[float], q: Sequence[float], siblings: int, draw: Draw) -> float:
    """The highest probability with which one of `siblings` guesses drawn from q can be accepted by an exact rule."""
    law = _sets(tuple(q), siblings, draw)
    return sum(map(sum, maximal_flow(list(law.items()), p)))


@lru_cache(maxsize=4096)
def _plan(law: tuple[tuple[frozenset[int], float], ...], p: tuple[float, ...], drawn: frozenset[int]) -> _Plan:
    flow = maximal_flow(law, p)
    rest = tuple(max(want - sum(f[y] for f in flow), 0.0) for y, want in enumerate(p))
    at = next((i for i, (s, _) in enumerate(law) if s == drawn), None)
    if at is None:
        raise ValueError(f"siblings {sorted(drawn)} have probability 0 under their q: they were not drawn from it")
    return _Plan({y: flow[at][y] / law[at][1] for y in drawn}, rest if sum(rest) > 0 else p)


@lru_cache(maxsize=4096)
def _sets(q: tuple[float, ...], siblings: int, draw: Draw) -> dict[frozenset[int], float]:
    """The law of the set of siblings. Raises ValueError when there are too many sets."""
    law = {frozenset[int](): 1.0}
    for _ in range(siblings):
        after: dict[frozenset[int], float] = {}
        for drawn, mass in law.items():
            for x, chance in enumerate(q):
                if chance > 0 and (draw == "independent" or x not in drawn):
                    free = 1.0 if draw == "independent" else sum(c for y, c in enumerate(q) if y not in drawn)
                    after[drawn | {x}] = after.get(drawn | {x}, 0.0) + mass * chance / free
        law = after
        if len(law) > MOST_SETS:
            raise ValueError(
                f"Optimal looks at every set of siblings, and {siblings} of {len(q)} tokens form more than {MOST_SETS}: take "
                f"fewer siblings, a truncation or another rule"
            )
    return law

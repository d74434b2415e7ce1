"""Typical acceptance: keep what the target finds typical enough. Not the target's distribution, and it says so.

    accept x  when  p(x) > min(epsilon, delta exp(-H(p))),   H the entropy of p in nats,

and of all paths on which every node is accepted keep the deepest, of equals the likeliest. The bonus comes from p. Where
the target is sure the bar stands at epsilon, where it is undecided it sinks, so that unlikely guesses pass just
where "any of these would do". Cai et al. 2024, "Medusa" (section 2.3.1), with its defaults, delta near sqrt(epsilon).

What comes out is neither p nor q: in the extreme, when everything passes, it is q. At temperature 0 the rule is exact.
`drift` shows what it gains and costs. Cost: one pass over [B, N, V].

Letters: B rows, N nodes, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toolkit.protocols import Draw, Proposal, Sampler, Tests, Verdict


@dataclass(frozen=True, slots=True)
class Typical:
    """LOSSY above temperature 0. Raises ValueError for epsilon or delta outside [0, 1]."""

    lossless: ClassVar[bool] = False
    draws: ClassVar[frozenset[Draw]] = frozenset(("certain", "independent", "distinct"))

    epsilon: float = 0.09
    delta: float = 0.3

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"Typical needs {name} in [0, 1] (0 accepts what is possible); got {getattr(self, name)}"
                )

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        probs = sampler.probs(logits, proposal.tree)  # [B, N, V]
        entropy = torch.special.entr(probs).sum(-1)  # [B, N]
        bar = (self.delta * (-entropy).exp()).clamp(max=self.epsilon)
        return deepest(proposal, probs, bar, sampler)


def deepest(proposal: Proposal, probs: Tensor, bar: Tensor, sampler: Sampler) -> Verdict:
    """Keep the deepest path whose tokens all have more than the bar [B, N] of the node before them; no coin is tossed."""
    tree = proposal.tree
    rows = torch.arange(tree.rows, device=probs.device)
    above = tree.parent.clamp(min=0)
    p = probs[rows[:, None], above, tree.token].masked_fill(tree.parent < 0, 1)  # [B, N]
    passed = (p > bar.gather(1, above)) | (tree.parent < 0)
    alive = tree.real & ~(tree.ancestors & ~passed[:, None]).any(-1)  # [B, N] the whole path passed
    likely = (tree.ancestors * p.clamp(min=torch.finfo(p.dtype).tiny).log()[:, None]).sum(-1)  # [B, N] of the path
    depth = (tree.depth + 1) * alive
    tip = likely.masked_fill(depth < depth.amax(1, keepdim=True), -torch.inf).argmax(1)

    tested = tree.real & (tree.parent >= 0) & alive.gather(1, above)
    accept, certain = passed.to(p.dtype), torch.ones_like(p)
    tests = Tests(torch.where(passed, 1, 2) * tested, p, certain, accept, torch.full_like(p, torch.nan))
    return Verdict(tip, sampler.emit(probs[rows, tip], tree.depth[rows, tip] + 1), tests)

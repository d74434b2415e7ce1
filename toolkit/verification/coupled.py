"""Coupled sampling: drafter and target draw with the same noise, and the text is the plain one, token for token.

Every position t has exponential variates E_t(x), one a token, that depend on the seed and t alone. The target's token
there is argmax p(x) / E_t(x): an exact draw from p (Gumbel-max in other words). The drafter guesses argmax q(x) / E_t(x).
Similar p and q mostly have the same winner; where they have not, the target's winner is emitted.

The output is a function of target and seed. Drafter, draft length, tree and batch cannot change a token of it, so
sampling can be tested by equality. The price is acceptance: with d = TV(p, q),

    (1 - d) / (1 + d)  <=  P(guess = draw) = sum_x 1 / sum_y max(p(y) / p(x), q(y) / q(x))  <=  1 - d,

against 1 - d for rejection sampling, which asks the drafter for q (this rule does not) and lets the drafter change the text.

Daliri, Musco, Suresh 2024, "Coupling without Communication and Drafter-Invariant Speculative Decoding" (section 4).
The walk is that of `PointMass`; the difference lies in the guesses. Exact for every draw, and the only rule for coupled
ones: another rule would draw its corrections with noise that has already chosen the guess. Cost: N draws from [B, V].

Letters: B rows, N nodes, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from toolkit.protocols import Draw, Proposal, Sampler, Verdict
from toolkit.verification.point_mass import follow


@dataclass(frozen=True, slots=True)
class Coupled:
    """Lossless, and the same text as without a drafter. Give it guesses of `Chain(coupled=True)` for acceptance."""

    lossless: ClassVar[bool] = True
    draws: ClassVar[frozenset[Draw]] = frozenset(("certain", "independent", "distinct", "coupled"))

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict:
        return follow(proposal, sampler.probs(logits, proposal.tree), sampler)

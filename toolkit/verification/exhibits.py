"""The museum: well-known ways to get speculative sampling wrong, and two to get it right but slowly.

    for exhibit in BIASED:
        print(exhibit.name, exhibit.prove())

Many of them accept more guesses than the exact rule does: a higher acceptance rate with another distribution is the bug
that looks like an improvement. So each must fail its proof, and each does.

Letters: V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toolkit.protocols import Draw, Rule
from toolkit.verification import faults as f
from toolkit.verification.enumerate import Truncation
from toolkit.verification.point_mass import PointMass
from toolkit.verification.proof import Proof, prove
from toolkit.verification.rejection import Rejection
from toolkit.verification.toys import Draft


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A drafter and a rule that should not be put together, with what happens in a line."""

    name: str
    story: str
    draft: Draw | Draft
    rule: Rule
    shape: tuple[int, ...] = (-1, 0, 0)
    lossless: bool = False
    horizon: int = 1
    truncation: Truncation | None = None

    def prove(self, **options: Any) -> Proof:
        """`options` as in `prove`; shape, draw, horizon and truncation are the exhibit's own unless given."""
        own: dict[str, Any] = {"shape": self.shape, "draw": self.draft}
        own |= {"horizon": self.horizon, "truncation": self.truncation}
        return prove(self.rule, **own | options)


def top_two(logits: Tensor) -> Tensor:
    """Keeps the two likeliest tokens of logits [..., V]."""
    return logits.masked_fill(logits < logits.topk(2, -1).values[..., -1:], -torch.inf)


def half(logits: Tensor) -> Tensor:
    """Rounds logits to bfloat16, around 16 where those of language models lie: steps of 1/8."""
    return (logits + 16).to(torch.bfloat16).to(logits.dtype)


def cool(logits: Tensor) -> Tensor:
    """Temperature 0.7."""
    return logits / 0.7


CHAIN, ONE, PAIR = (-1, 0, 1), (-1, 0), (-1, 0, 0)

BIASED: tuple[Exhibit, ...] = (
    Exhibit(
        "replacement claimed",
        "siblings drawn without replacement, residuals computed as if with: the second sibling's q is too small at the "
        "tokens that were left, and it is accepted too often",
        f.Mislabelled("distinct", "independent"),
        Rejection(),
    ),
    Exhibit(
        "replacement denied",
        "siblings drawn with replacement, residuals computed as if without: the second sibling's q is too large",
        f.Mislabelled("independent", "distinct"),
        Rejection(),
    ),
    Exhibit(
        "siblings sorted",
        "drawn without replacement, then sorted by q for the look of it: the first sibling is no sample from q any more",
        f.Resorted(),
        Rejection(),
    ),
    Exhibit(
        "the better of two",
        "two drawn, the likelier one sent and verified as a sample from q: choosing after looking is another q",
        f.BetterOfTwo("independent"),
        Rejection(),
        ONE,
    ),
    Exhibit(
        "top tokens with soft q",
        "the drafter's two likeliest tokens, always the same, verified with ratios against q as if they had been drawn "
        "one after the other",
        f.Mislabelled("certain", "distinct"),
        Rejection(),
    ),
    Exhibit(
        "tree of top tokens at temperature 1",
        "the likeliest children of every node, verified with the drafter's plain softmax whatever the request asks for",
        f.Mislabelled("certain", "independent", raw=True),
        Rejection(),
        (-1, 0, 0, 1),
        truncation=top_two,
    ),
    Exhibit(
        "greedy draft, soft q",
        "the drafter is made greedy for speed and the ratio still divides by its soft probability",
        f.Mislabelled("certain", "independent"),
        Rejection(),
        CHAIN,
    ),
    Exhibit(
        "residual skipped",
        "after a refusal the replacement is drawn from p: what the guesses overdo is never paid back",
        "independent",
        f.Walk(residual=f.all_of_p),
        CHAIN,
    ),
    Exhibit(
        "residual the wrong way round",
        "the replacement is drawn from max(q - p, 0), the very tokens that were proposed too often",
        "independent",
        f.Walk(residual=f.wrong_way_round),
        CHAIN,
    ),
    Exhibit(
        "second sibling against p",
        "every sibling is tested against p, and only the last residual is used: mass the first was refused comes again",
        "independent",
        f.Walk(residual=f.forgetful, later=False),
    ),
    Exhibit(
        "no coin",
        "a guess is accepted whenever p >= q and refused otherwise: the coin looked like needless noise",
        "independent",
        f.Walk(test=f.by_comparison),
        CHAIN,
    ),
    Exhibit(
        "bonus from the wrong node",
        "after the last accepted guess the bonus is drawn from the distribution before it: words repeat",
        "independent",
        f.Walk(parent=True),
        ONE,
        horizon=2,
    ),
    Exhibit(
        "redrawn after a mismatch",
        "sample and match, but a draw that matches no guess is thrown away and drawn again: guesses count twice",
        "certain",
        f.Redraw(),
        ONE,
    ),
    Exhibit(
        "q before truncation",
        "guesses come from the truncated q, and the q stored for the ratio is the one before",
        f.Mislabelled("independent", "independent", raw=True),
        Rejection(),
        CHAIN,
        truncation=top_two,
    ),
    Exhibit(
        "q before temperature",
        "guesses are drawn at temperature 0.7, and the ratio uses q at temperature 1",
        f.Mislabelled("independent", "independent", drawn=cool),
        Rejection(),
        CHAIN,
    ),
    Exhibit(
        "drawn in half precision",
        "the drafter samples from bfloat16 logits and reports q from float32: a bias too small to be seen in the text",
        f.Mislabelled("independent", "independent", drawn=half),
        Rejection(),
        CHAIN,
    ),
    Exhibit(
        "parameters of the wrong rows",
        "the truncation reaches only the first rows of the flattened batch of nodes: all deeper nodes are judged by arg-max",
        "independent",
        f.Reshaped(f.certain_below_the_root),
        CHAIN,
        horizon=2,
    ),
    Exhibit(
        "target cut to the draft vocabulary",
        "only the logits of tokens the drafter knows are read back from the target: the others can never be said",
        "independent",
        f.Reshaped(f.draft_vocabulary_only),
        CHAIN,
    ),
    Exhibit(
        "coupled guesses, rejection rule",
        "guesses made with the target's own noise go through coins: the correction is drawn with noise already looked at",
        f.Mislabelled("coupled", "independent"),
        Rejection(),
        ONE,
    ),
)

WASTEFUL: tuple[Exhibit, ...] = (
    Exhibit(
        "samples taken for certain",
        "drawn without replacement and verified as point masses: exact, for a point mass asks nothing of how it was found, "
        "but q is thrown away",
        f.Mislabelled("distinct", "certain"),
        Rejection(),
        lossless=True,
    ),
    Exhibit(
        "the better of two, taken for certain",
        "two drawn, the likelier one sent and verified as a point mass: exact, and worse than either",
        f.BetterOfTwo("certain"),
        Rejection(),
        ONE,
        lossless=True,
    ),
    Exhibit(
        "a sample that must be met",
        "a sampled guess is accepted only if the target draws the same token: exact, since the target's draw is what is "
        "emitted, and accepted with sum p q instead of sum min(p, q)",
        "independent",
        PointMass(),
        ONE,
        lossless=True,
    ),
)

"""Is a rule lossless? Not measured but worked out: every draft, every coin and every token, with exact probabilities.

    print(prove(Rejection(), (-1, 0, 0, 1), "distinct"))

lets a drafter guess over the shape in a random toy language, lets the rule judge every draft that can occur, repeats the
step until the horizon is filled, and compares the law of the emitted tokens with the target's. For a biased rule it names
the context where it shows. Any callable with the rule's signature will do, also one typed into a notebook cell.

Letters: V vocabulary, C cases, H horizon, D depth, K shapes, N nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.protocols import Draw, Rule
from toolkit.verification.enumerate import Truncation
from toolkit.verification.toys import Draft, Drawn, Paths, Table, fixed_table, random_table
from toolkit.verification.trial import States, Trial

TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Proof:
    """What a rule does, exactly, in C toy languages."""

    rule: str
    draw: str
    law: Tensor  # [C, V ** H] of the first H emitted tokens, the first one counting most
    target: Tensor  # [C, V ** H] the same of the target alone
    reach: Tensor  # [C, D + 1] probability that a step keeps at least d guesses
    plain: bool  # every emitted token is the target's own draw: the text is that of plain sampling with the same seed
    outcomes: int  # branches looked at
    vocabulary: int
    horizon: int

    @property
    def tv(self) -> float:
        """Total variation between the rule's law and the target's, in the worst case."""
        return float(self.tv_of.max())

    @property
    def tv_of(self) -> Tensor:
        """[C]"""
        return (self.law - self.target).abs().sum(-1) / 2

    @property
    def exact(self) -> bool:
        return self.tv < TOLERANCE

    @property
    def accepted(self) -> float:
        """Expected number of accepted guesses in a step, averaged over the cases."""
        return float(self.accepted_of.mean())

    @property
    def accepted_of(self) -> Tensor:
        """[C]"""
        return self.reach[:, 1:].sum(-1)

    def marginal(self, tokens: int) -> tuple[Tensor, Tensor]:
        """The laws of the first `tokens` emitted tokens: the rule's and the target's, [C, V ** tokens] both."""
        shape = (len(self.law), self.vocabulary**tokens, -1)
        return self.law.view(shape).sum(-1), self.target.view(shape).sum(-1)

    @property
    def counterexample(self) -> str | None:
        """Where the rule errs most, in words; None when it is exact."""
        if self.exact:
            return None
        case = int(self.tv_of.argmax())
        tokens = next(t for t in range(1, self.horizon + 1) if self._gap(t)[case].max() > TOLERANCE / 10)
        at = int(self._gap(tokens)[case].argmax())
        prefix, token = divmod(at, self.vocabulary)
        said, wanted = (
            law[case].view(-1, self.vocabulary)[prefix] / law[case].view(-1, self.vocabulary)[prefix].sum()
            for law in self.marginal(tokens)
        )
        after = f"after {self._word(prefix, tokens - 1)!r} " if tokens > 1 else ""
        name = self._word(token, 1)
        return f"{after}the rule emits {name!r} with probability {said[token]:.3f}, the target with {wanted[token]:.3f}"

    def _gap(self, tokens: int) -> Tensor:
        law, target = self.marginal(tokens)
        return (law - target).abs()

    def _word(self, index: int, tokens: int) -> str:
        digits = [index // self.vocabulary**t % self.vocabulary for t in reversed(range(tokens))]
        if self.vocabulary <= 26:
            return "".join(chr(ord("a") + d) for d in digits)
        return " ".join(map(str, digits))

    def __str__(self) -> str:
        head = f"{self.rule} on {self.draw} guesses"
        kept = f"{self.accepted:.4f} guesses accepted a step"
        seen = f"{self.outcomes} outcomes in {len(self.law)} case{'s' if len(self.law) > 1 else ''}"
        if self.exact:
            return f"{head}: exact (total variation {self.tv:.0e}, {seen}), {kept}"
        return f"{head}: NOT exact, total variation {self.tv:.4f} ({seen}), {kept}: {self.counterexample}"


def prove(
    rule: Rule,
    shape: Sequence[int] | Sequence[Sequence[int]] = (-1, 0, 0, 1, 1),
    draw: Draw | Draft = "independent",
    *,
    vocabulary: int = 5,
    truncation: Truncation | None = None,
    seed: int = 0,
    cases: int = 1,
    horizon: int = 1,
    p: Tensor | Table | None = None,
    q: Tensor | Table | None = None,
) -> Proof:
    """Work out what the rule emits.

    shape       parents of a tree's nodes, -1 for the root, which comes first; several shapes are dealt to the cases in
                turn and then judged in one batch
    draw        how the guesses are drawn, or a drafter of your own
    truncation  applied to logits [..., V] of target and drafter alike, for instance a top-k filter
    cases       pairs of random languages, looked at together
    horizon     tokens whose joint law is compared; steps are repeated until there are so many
    p, q        the target's and the drafter's tables, or probabilities [V] or [cases, V] that hold after every path;
                random ones of `seed` otherwise

    Raises ValueError for a shape that is no tree, for a draw that the rule is not made for, for a rule that takes chance
    from elsewhere than the sampler or uses noise twice, and for verdicts that point outside tree or vocabulary.
    """
    if horizon < 1 or cases < 1:
        raise ValueError(f"prove needs horizon and cases of at least 1; got horizon={horizon}, cases={cases}")
    if draw == "coupled" and horizon > 1:
        raise ValueError(
            "coupled guesses share their noise with later steps, so only one step can be enumerated: ask for horizon=1, "
            "where `plain` says whether the text is the target's own"
        )
    vocabulary = p.shape[-1] if isinstance(p, Tensor) else vocabulary
    target, drafter = (_table(t, vocabulary, 2 * seed + i) for i, t in enumerate((p, q)))
    draft: Draft = Drawn(draw) if isinstance(draw, str) else draw
    trial = Trial(rule, draft, target, drafter, _parents(shape), truncation, vocabulary)
    steps = [trial.step(States.start(cases, horizon), cases)]
    done = [steps[0].states.full(True)]
    while len((open_ := steps[-1].states.full(False)).weight):
        steps.append(trial.step(open_, cases))
        done.append(steps[-1].states.full(True))
    return Proof(
        rule=_label(rule),
        draw=draw if isinstance(draw, str) else _label(draw),
        law=sum((s.law(cases, vocabulary) for s in done), torch.zeros(())),
        target=_target_law(target, truncation, cases, vocabulary, horizon),
        reach=steps[0].reach,
        plain=all(s.plain for s in steps),
        outcomes=sum(s.outcomes for s in steps),
        vocabulary=vocabulary,
        horizon=horizon,
    )


def _label(part: object) -> str:
    """A part's repr, with functions by name and without their addresses."""
    return re.sub(r"<function (.+?) at 0x[0-9a-f]+>", r"\1", repr(part))


def _table(given: Tensor | Table | None, vocabulary: int, seed: int) -> Table:
    if given is None:
        return random_table(vocabulary, seed)
    return fixed_table(given) if isinstance(given, Tensor) else given


def _parents(shape: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    """[K, N] of one shape or several. Raises ValueError for what is no tree."""
    shapes = [[int(p) for p in s] for s in ([shape] if isinstance(shape[0], int) else shape)]  # type: ignore[list-item]
    for s in shapes:
        if not s or s[0] != -1 or any(not 0 <= p < i for i, p in enumerate(s) if i):
            raise ValueError(
                f"a shape lists parents: -1 for the root, then for each node one that comes before it; got {s}"
            )
    size = max(map(len, shapes))
    return torch.tensor([[*s, *[-1] * (size - len(s))] for s in shapes])


def _target_law(target: Table, truncation: Truncation | None, cases: int, vocabulary: int, horizon: int) -> Tensor:
    """[C, V ** H] of the target's own text, token by token."""
    path, law = Paths.start(torch.arange(cases)[:, None]), torch.ones(cases, 1, dtype=torch.float64)
    for _ in range(horizon):
        logits = target(path)
        probs = (truncation(logits) if truncation else logits).softmax(-1)  # [C, V ** t, V]
        law = (law[..., None] * probs).flatten(1)
        token = torch.arange(vocabulary).expand_as(probs)
        path = Paths(path.case[..., None].expand_as(token), path.name[..., None].expand_as(token), token).then(token)
        path = Paths(path.case.flatten(1), path.name.flatten(1), path.last.flatten(1))
    return law

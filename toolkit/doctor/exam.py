"""What the target says about a few texts, read once with every layer tapped, so that a head can be graded under any reading.

Letters: N tokens of a text, L layers, H hidden size, G guesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from toolkit.models.hf import HFModel
from toolkit.protocols import Tap
from toolkit.training.lecture import told_apart
from toolkit.training.lessons import Told, lesson, tell_all
from toolkit.training.simulate import Simulated, simulate
from toolkit.training.teach import guesses
from toolkit.training.texts import Text

CAP = 12.0
"""Nats that one guess can cost at most, also one of a token that the head cannot say: a single one must not decide."""


@dataclass(frozen=True, slots=True)
class Exam:
    """Texts, and every boundary of the target after each of their tokens."""

    every: tuple[Told, ...]  # feature [N, (L + 1) H]: taps 0 to L side by side

    @classmethod
    def of(cls, target: HFModel, texts: Sequence[Text]) -> Exam:
        """Raises ValueError where there is nothing to grade by."""
        if sum(t.taught for t in texts) < 2:
            raise ValueError("there is nothing to grade a head by: give texts with answers")
        return cls(tuple(tell_all(target, texts, tuple(range(target.layers + 1)))))

    @property
    def tokens(self) -> int:
        """Of answers."""
        return sum(t.text.taught for t in self.every)

    def source(self, taps: Sequence[Tap]) -> Tapped:
        return Tapped(self, tuple(taps))


@dataclass(frozen=True, slots=True)
class Tapped:
    """Answers the `Source` socket for one choice of taps."""

    exam: Exam
    taps: tuple[Tap, ...]

    @property
    def texts(self) -> Sequence[Text]:
        return [t.text for t in self.exam.every]

    def told(self, numbers: Sequence[int]) -> list[Told]:
        return [self._told(self.exam.every[i]) for i in numbers]

    def _told(self, one: Told) -> Told:
        size = one.state.shape[-1]
        parts = [one.state if t == "final" else one.feature[:, t * size : (t + 1) * size] for t in self.taps]
        return replace(one, feature=torch.cat(parts, -1))


@dataclass(frozen=True, slots=True)
class Grade:
    """How good a head's guesses are under one reading.

    each  [G] what each guess costs: -log q of the target's likeliest token in nats, CAP at most
    """

    each: Tensor
    right: float  # share of first guesses that are the target's likeliest token
    walked: Simulated

    @property
    def cross_entropy(self) -> float:
        return float(self.each.mean())

    @property
    def acceptance_length(self) -> float:
        """Of chains at temperature 0, with the bonus."""
        return self.walked.acceptance_length


@torch.inference_mode()
def grade(head: nn.Module, exam: Exam, *, depth: int = 3) -> Grade:
    """Guesses of the first `depth` depths at all places of the texts, and a walk through them with such chains."""
    given: Any = head
    source, parameter = exam.source(given.taps), next(head.parameters())
    batch = lesson(source.told(range(len(exam.every)))).to(parameter.device, parameter.dtype)
    tokens = told_apart(head, None)
    index: Tensor | None = None  # [V] the head's own number of a token, -1 for none
    if tokens is not None:
        index = torch.full((1 + int(max(batch.best.max(), tokens.max())),), -1, device=parameter.device)
        index[tokens] = torch.arange(len(tokens), device=parameter.device)
    each, right = [], 0.0
    for guess in guesses(head, batch, steps=depth):
        if guess.depth > depth:
            continue
        best = batch.best[guess.row, guess.at - 1]
        best = best if index is None else index[best]
        q = guess.logits.float().log_softmax(-1).gather(1, best.clamp(min=0)[:, None])[:, 0]
        cost = torch.where((best >= 0) & q.isfinite(), -q, CAP).clamp(max=CAP)
        each.append(cost)
        if guess.depth == 1:
            right = float((guess.logits.argmax(-1) == best).float().mean())
    walked = simulate(head, source, range(len(exam.every)), depth=min(depth, getattr(given, "horizon", depth)))
    return Grade(torch.cat(each).cpu(), right, walked)


def better_by(before: Grade, after: Grade) -> tuple[float, float]:
    """Nats a guess that `after` costs less, and how many standard errors that is, guess by guess."""
    n = min(len(before.each), len(after.each))
    gain = before.each[:n] - after.each[:n]
    error = float(gain.std() / n**0.5)
    mean = float(gain.mean())
    return mean, mean / error if error > 0 else 0.0

"""One batch through a head: loss, and how good the guesses are, by depth.

Letters: B texts, N tokens, M guesses, D depths, W tokens told apart, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss

from toolkit.training.lessons import Lesson
from toolkit.training.losses import Objective
from toolkit.training.teach import Guess, guesses


@dataclass(frozen=True, slots=True)
class Sums:
    """By depth [D], summed over guesses: so sums of several batches, or processes, add up."""

    count: Tensor
    loss: Tensor
    right: Tensor  # the head's likeliest token is the target's
    accept: Tensor  # sum min(p, q), p over the whole vocabulary

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(_plus(getattr(self, f), getattr(other, f)) for f in ("count", "loss", "right", "accept")))


def _plus(a: Tensor, b: Tensor) -> Tensor:
    n = max(len(a), len(b))
    out = a.new_zeros(n)
    out[: len(a)] += a
    out[: len(b)] += b
    return out


class Lecture(nn.Module):
    """A head with what it needs to learn, as one module: accelerate wraps it whole, and the loss is its output.

    tokens  [W] the tokens that are told apart while learning; None for all. A head with a draft vocabulary brings its own.
    """

    def __init__(self, head: nn.Module, unembedding: nn.Linear, objective: Objective, *, tokens: Tensor | None) -> None:
        super().__init__()
        self.head, self.objective = head, objective
        own = told_apart(head, tokens)
        rows = unembedding.weight.detach()
        self.rows = _Plain(rows if own is None else rows[own.to(rows.device)])
        place = torch.full((len(rows),), -1) if own is not None else torch.arange(len(rows))
        if own is not None:
            place[own.cpu()] = torch.arange(len(own))
        self.place = _Plain(place.to(rows.device))  # [V] a target token among those told apart, -1 for none

    def forward(self, lesson: Lesson, stake: float, steps: int, anchors: Tensor | None = None) -> tuple[Tensor, Sums]:
        """The loss, which is the sum over all guesses divided by `stake`, and sums by depth. The stake is the number of first
        guesses in the whole batch, also where this is a part of it. Steps and anchors are those of `guesses`."""
        made = list(guesses(self.head, lesson, steps=steps, anchors=anchors))
        if not made:
            raise ValueError("there is nothing to learn in this batch: its answers are shorter than what a guess needs")
        says = [self._target(lesson, g) for g in made]
        weight = self._weights(lesson, made, says)
        depths = max(g.depth for g in made)
        total, sums = (
            lesson.state.new_zeros((), dtype=torch.float32),
            torch.zeros(4, depths, device=lesson.token.device),
        )
        for guess, (logits, best, missing), w in zip(made, says, weight, strict=True):
            able = best >= 0  # of what the head cannot say it cannot learn
            each = self.objective(guess.logits.float(), logits, best)
            if self.objective.feature and guess.state is not None:
                truth = lesson.state[guess.row, guess.at - 1].to(guess.state.dtype)
                each = each + self.objective.feature * smooth_l1_loss(
                    guess.state, truth, reduction="none"
                ).float().mean(-1)
            each = each * able
            d = guess.depth - 1
            total = total + (each * w).sum() / stake
            with torch.no_grad():
                sums[0, d], sums[1, d] = len(best), each.sum()
                sums[2, d] = (guess.logits.argmax(-1) == best).sum()
                p = logits.softmax(-1) * (1 - missing)[:, None]
                sums[3, d] = torch.minimum(p, guess.logits.float().softmax(-1)).sum()
        return total, Sums(*sums)

    def _target(self, lesson: Lesson, guess: Guess) -> tuple[Tensor, Tensor, Tensor]:
        """What the target says where a guess was made: logits [M, W], its likeliest token among the W [M], and the probability
        [M] of what the head cannot say."""
        row, before = guess.row, guess.at - 1
        with torch.no_grad():
            state = lesson.state[row, before]
            logits = (state.to(self.rows.value.dtype) @ self.rows.value.T).float()
            missing = 1 - (logits.logsumexp(-1) - lesson.total[row, before]).exp()
            return logits, self.place.value[lesson.best[row, before]], missing.clamp(0, 1)

    def _weights(self, lesson: Lesson, made: list[Guess], says: list[tuple[Tensor, Tensor, Tensor]]) -> list[Tensor]:
        """[M] for each depth, by the objective."""
        rows, n = lesson.token.shape
        depths = max(g.depth for g in made)
        confidence = torch.zeros(rows * n, depths, device=lesson.token.device)
        origin = [g.row * n + g.start for g in made]
        with torch.no_grad():
            for guess, (_, best, _), where in zip(made, says, origin, strict=True):
                q = guess.logits.float().softmax(-1).gather(1, best.clamp(min=0)[:, None])[:, 0]
                confidence[where, guess.depth - 1] = q * (best >= 0)
            weight = self.objective.weigh(confidence)
        return [weight[where, g.depth - 1] for g, where in zip(made, origin, strict=True)]


class _Plain:
    """A tensor that is neither parameter nor buffer: not saved, not trained, not sent to other processes."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


def told_apart(head: nn.Module, tokens: Tensor | None) -> Tensor | None:
    """[W] what the head's logits are about: its own draft vocabulary, else `tokens`; None for the whole vocabulary."""
    vocabulary: Any = getattr(head, "vocabulary", None)
    return tokens if vocabulary is None else vocabulary.tokens


@contextmanager
def narrowed(head: Any, unembedding: nn.Linear, tokens: Tensor | None) -> Generator[None]:
    """Within, a head that borrows the target's LM head uses only its rows for `tokens`: a softmax over the frequent tokens
    costs a fraction of one over all."""
    before = getattr(head, "borrowed", None)
    if tokens is None or before is None or getattr(head, "vocabulary", None) is not None:
        yield
        return
    rows = unembedding.weight.detach()[tokens.to(unembedding.weight.device)]
    narrow = nn.Linear(rows.shape[1], len(rows), bias=False, device=rows.device, dtype=rows.dtype)
    narrow.weight = nn.Parameter(rows, requires_grad=False)
    head.borrowed = replace(before, unembedding=narrow)
    try:
        yield
    finally:
        head.borrowed = before

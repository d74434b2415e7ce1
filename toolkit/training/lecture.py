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

PIECE = 256
"""Guesses whose distributions are laid out at a time."""


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
        best = [self.place.value[lesson.best[g.row, g.at - 1]] for g in made]
        weight = self._weights(lesson, made, best)
        total = lesson.state.new_zeros((), dtype=torch.float32)
        sums = torch.zeros(4, max(g.depth for g in made), device=lesson.token.device)
        for guess, mine, w in zip(made, best, weight, strict=True):
            for piece in zip(*(x.split(PIECE) for x in (guess.logits, guess.row, guess.at - 1, mine, w)), strict=True):
                each, said = self._piece(lesson, *piece)
                total, sums[:, guess.depth - 1] = total + each / stake, sums[:, guess.depth - 1] + said
            if self.objective.feature and guess.state is not None:
                far = self._far(lesson, guess) * (mine >= 0)
                total, sums[1, guess.depth - 1] = total + (far * w).sum() / stake, sums[1, guess.depth - 1] + far.sum()
        return total, Sums(*sums.detach())

    def _piece(
        self, lesson: Lesson, said: Tensor, row: Tensor, before: Tensor, best: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The weighed loss of some guesses of one depth, and their `Sums` [4]. Softmaxes over a piece stay in the processor's
        caches, and whoever allocates memory need not ask the system for it."""
        with torch.no_grad():
            state = lesson.state[row, before]
            logits = (state.to(self.rows.value.dtype) @ self.rows.value.T).float()  # [M, W] what the target says
        each = self.objective(said.float(), logits, best) * (best >= 0)  # of what the head cannot say it cannot learn
        with torch.no_grad():
            known = (logits.logsumexp(-1) - lesson.total[row, before]).exp().clamp(0, 1)  # the rest the head cannot say
            accept = torch.minimum(logits.softmax(-1) * known[:, None], said.float().softmax(-1)).sum()
            right = (said.argmax(-1) == best).sum()
            found = torch.stack([accept.new_tensor(len(best)), each.sum(), right.to(accept.dtype), accept])
        return (each * weight).sum(), found

    def _far(self, lesson: Lesson, guess: Guess) -> Tensor:
        """[M] how far the head's own states are from the target's."""
        assert guess.state is not None
        truth = lesson.state[guess.row, guess.at - 1].to(guess.state.dtype)
        return self.objective.feature * smooth_l1_loss(guess.state, truth, reduction="none").float().mean(-1)

    def _weights(self, lesson: Lesson, made: list[Guess], best: list[Tensor]) -> list[Tensor]:
        """[M] for each depth, by the objective."""
        rows, n = lesson.token.shape
        depths = max(g.depth for g in made)
        confidence = torch.zeros(rows * n, depths, device=lesson.token.device)
        origin = [g.row * n + g.start for g in made]
        with torch.no_grad():
            for guess, mine, where in zip(made, best, origin, strict=True):
                parts = zip(guess.logits.split(PIECE), mine.split(PIECE), strict=True)
                confidence[where, guess.depth - 1] = torch.cat([_confidence(said, b) for said, b in parts])
            weight = self.objective.weigh(confidence)
        return [weight[where, g.depth - 1] for g, where in zip(made, origin, strict=True)]


def _confidence(said: Tensor, best: Tensor) -> Tensor:
    """[M] the head's probability of the target's likeliest token, 0 where it cannot say it."""
    log = said.float()
    return (log.gather(1, best.clamp(min=0)[:, None])[:, 0] - log.logsumexp(-1)).exp() * (best >= 0)


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
    costs a fraction of one over all. And those rows gather no gradient: the LM head stays as it is."""
    before = getattr(head, "borrowed", None)
    if before is None or getattr(head, "vocabulary", None) is not None:
        yield
        return
    rows = unembedding.weight.detach()
    rows = rows if tokens is None else rows[tokens.to(rows.device)]
    narrow = nn.Linear(rows.shape[1], len(rows), bias=False, device="meta")
    narrow.weight = nn.Parameter(rows, requires_grad=False)
    head.borrowed = replace(before, unembedding=narrow)
    try:
        yield
    finally:
        head.borrowed = before

"""Acceptance length without running the engine: walks through held-out texts on the guesses a head makes about them.

Exact for chains at temperature 0 on texts that the target wrote at temperature 0: a guess stands on its own chain only while
that chain is the text, and the walk stops where it is not.

Letters: B texts, N tokens, D depths.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from toolkit.training.lecture import told_apart
from toolkit.training.lessons import Lesson, Source, lesson
from toolkit.training.teach import guesses


@dataclass(frozen=True, slots=True)
class Simulated:
    """steps and tokens of all walks; `right` and `tried` by depth, a depth being tried where all before it were right."""

    steps: int
    tokens: int
    tried: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def acceptance_length(self) -> float:
        """Tokens a step, the bonus counted."""
        return self.tokens / self.steps if self.steps else 0.0

    @property
    def conditional(self) -> tuple[float, ...]:
        """Acceptance at a depth, given all before it."""
        return tuple(r / t if t else 0.0 for r, t in zip(self.right, self.tried, strict=True))


@torch.inference_mode()
def simulate(
    head: nn.Module, source: Source, numbers: Sequence[int], *, depth: int, rows: int = 8, tokens: Tensor | None = None
) -> Simulated:
    """Walk through texts of a source with chains of `depth` guesses. `tokens` [W]: what the head's logits are about, where
    it is not the whole vocabulary or the head's own."""
    parameter = next(head.parameters())
    lengths: list[tuple[int, int]] = []
    tried, right = torch.zeros(depth, dtype=torch.long), torch.zeros(depth, dtype=torch.long)
    with _judging(head):
        for i in range(0, len(numbers), rows):
            batch = lesson(source.told(numbers[i : i + rows])).to(parameter.device, parameter.dtype)
            hits = hit(head, batch, depth, told_apart(head, tokens))
            for b in range(len(hits)):
                walked = list(_walk(hits[b].tolist(), batch.taught[b].tolist()))
                lengths += walked
                for accepted, most in walked:
                    tried[: min(accepted + 1, most)] += 1
                    right[:accepted] += 1
    return Simulated(
        len(lengths), sum(n for n, _ in lengths) + len(lengths), tuple(tried.tolist()), tuple(right.tolist())
    )


def hit(head: nn.Module, batch: Lesson, depth: int, tokens: Tensor | None = None) -> Tensor:
    """[B, N, D] bool: is the head's likeliest guess of each depth from each start the text's token."""
    found = torch.zeros(*batch.token.shape, depth, dtype=torch.bool, device=batch.token.device)
    for guess in guesses(head, batch, steps=depth):
        if guess.depth <= depth:
            said = guess.logits.argmax(-1)
            said = said if tokens is None else tokens[said]
            found[guess.row, guess.start, guess.depth - 1] = said == batch.token[guess.row, guess.at]
    return found


def _walk(hits: list[list[bool]], taught: list[bool]) -> Iterator[tuple[int, int]]:
    """Accepted guesses of each step, and how many there could have been before the answer ends."""
    n, i = len(taught), 1
    while i < n:
        if not (taught[i] and i + 1 < n and taught[i + 1]):
            i += 1
            continue
        end = next((j for j in range(i + 1, n) if not taught[j]), n)
        most = min(len(hits[0]), end - i - 1)
        row = hits[i - 1]
        accepted = next((d for d in range(most) if not row[d]), most)
        yield accepted, most
        i += accepted + 1


@contextmanager
def _judging(head: nn.Module) -> Generator[None]:
    training = head.training
    head.eval()
    try:
        yield
    finally:
        head.train(training)

"""Any of Hugging Face's candidate generators as a drafter: what assisted `generate` guesses with, in our engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from toolkit.protocols import Context, Proposal
from toolkit.tree import TokenTree

Make = Callable[[Tensor], Any]
"""(input_ids [1, L]) to a CandidateGenerator for one row."""


@dataclass(slots=True)
class _Row:
    """One row's generator, the text it saw last and what it guessed then."""

    generator: Any
    text: np.ndarray
    guesses: list[list[int]]


@dataclass(slots=True)
class Candidates:
    """A drafter that asks a CandidateGenerator of its own for each row; several candidates become branches.

    make     makes a generator from a row's tokens, when the row is seen first and after a rewind or another text, for such
             generators only ever go forward
    Guesses count as certain, so generators that sample theirs lose acceptance and never exactness. Generators that want the
    target's outputs of the last step (MTP, DFlash) are refused: our own `Eagle` and `Block` do that on trees.

    >>> Candidates(prompt_lookup(num_output_tokens=8))                                                   # doctest: +SKIP
    """

    make: Make
    _rows: dict[int, _Row] = field(default_factory=dict, init=False, repr=False)

    def propose(self, context: Context) -> Proposal:
        paths = [self._paths(context, b) if context.room[b] else [] for b in range(context.rows)]
        return Proposal(TokenTree.from_paths(context.pending, paths))

    def _paths(self, context: Context, b: int) -> list[list[int]]:
        text = context.row(b)
        ids = torch.tensor(text[None], device=context.token.device)
        row = self._rows.get(b)
        if row is None or len(row.text) >= len(text) or not np.array_equal(row.text, text[: len(row.text)]):
            generator = self.make(ids)
            if getattr(generator, "requires_model_outputs", False):
                raise ValueError(
                    f"{type(generator).__name__} wants the target's outputs of the last step, which only Hugging Face's own loop "
                    f"hands out: use toolkit.drafting.Eagle or Block with the head"
                )
            self._rows[b] = row = _Row(generator, text.copy(), [])
        elif row.guesses:
            self._report(row, text, ids)
        found, _ = row.generator.get_candidates(ids)
        row.text = text.copy()
        row.guesses = [g for g in found[:, len(text) :].tolist() if g]
        return [g[: context.room[b]] for g in row.guesses]

    def _report(self, row: _Row, text: np.ndarray, ids: Tensor) -> None:
        """Tell the generator how its last guess fared: some learn their length from it, and look at no more of the scores
        than how many there were."""
        new, guess = text[len(row.text) :].tolist(), row.guesses[0]
        matches = next(
            (i for i, (a, c) in enumerate(zip(new, guess, strict=False)) if a != c), min(len(new), len(guess))
        )
        row.generator.update_candidate_strategy(ids, torch.empty(1, len(guess) + 1, 0), matches)


def prompt_lookup(**options: Any) -> Make:
    """Hugging Face's prompt lookup; `options` as in PromptLookupCandidateGenerator."""
    settings: dict[str, Any] = {"max_length": 2**31, **options}
    return lambda ids: PromptLookupCandidateGenerator(**settings)

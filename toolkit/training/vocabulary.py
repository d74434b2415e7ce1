"""Which tokens a head with a reduced vocabulary should know, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.training.texts import Text


@dataclass(frozen=True, slots=True)
class Frequencies:
    """count [V]: how often each token stands in answers."""

    count: Tensor

    @classmethod
    def of(cls, texts: Iterable[Text], vocab: int) -> Frequencies:
        count = torch.zeros(vocab, dtype=torch.long)
        for text in texts:
            for start, end in text.answers:
                count += torch.bincount(torch.tensor(text.tokens[start:end]), minlength=vocab)
        return cls(count)

    def choose(self, size: int) -> Tensor:
        """[size] the most frequent tokens in rising order; among equals, the lower id. Raises ValueError for a size that is no
        part of the vocabulary."""
        if not 1 <= size <= len(self.count):
            raise ValueError(f"a draft vocabulary has 1 to {len(self.count)} tokens; got {size}")
        return self.count.argsort(descending=True, stable=True)[:size].sort().values

    def coverage(self, sizes: Sequence[int]) -> list[float]:
        """The share of answers' tokens that vocabularies of these sizes hold. It bounds acceptance from above."""
        total = self.count.sort(descending=True).values.cumsum(0)
        return [float(total[size - 1] / total[-1].clamp(min=1)) for size in sizes]

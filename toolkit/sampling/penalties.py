"""Penalties for what has been said already. Logits [B, M, V] in and out, each node with its own history.

Letters: B rows, M nodes, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.sampling.paths import Paths


@dataclass(frozen=True, slots=True)
class Repetition:
    """Keskar et al. 2019 ("CTRL", section 4.1) as Hugging Face has it: prompt and new text count."""

    penalty: Tensor  # [B, 1, 1] 1 where a row has none

    def __call__(self, logits: Tensor, paths: Paths) -> Tensor:
        said = paths.counts(logits.shape[-1], prompt=True) > 0
        penalty = self.penalty.to(logits.dtype)
        return torch.where(said, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


@dataclass(frozen=True, slots=True)
class Presence:
    """OpenAI's presence and frequency penalties: the new text alone counts."""

    presence: Tensor  # [B, 1, 1]
    frequency: Tensor  # [B, 1, 1]

    def __call__(self, logits: Tensor, paths: Paths) -> Tensor:
        count = paths.counts(logits.shape[-1], prompt=False).to(logits.dtype)
        return logits - self.presence.to(logits.dtype) * (count > 0) - self.frequency.to(logits.dtype) * count

"""A checkpoint under one reading, and a guess at another reading that may be the right one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from toolkit.heads import dialects
from toolkit.heads.dialects import Checkpoint, Loaded
from toolkit.models.hf import HFModel


@dataclass(frozen=True, slots=True)
class Case:
    """A checkpoint, its layout (None to detect it), and what of its conventions is not believed."""

    checkpoint: Checkpoint
    dialect: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def open(self, target: HFModel) -> Loaded:
        """The head in float32. Raises ValueError where it can't be read this way."""
        return dialects.load(self.checkpoint, target, self.dialect, dtype=torch.float32, **self.overrides)

    def read(self, **overrides: Any) -> Case:
        """The same, read differently."""
        return replace(self, overrides={**self.overrides, **overrides})

    def changed(self, tensors: Mapping[str, Tensor | None], **config: Any) -> Case:
        """With other tensors, None for one that is taken out, and other fields of the config."""
        kept = {**self.checkpoint.tensors, **tensors}
        whole = {name: t for name, t in kept.items() if t is not None}
        made = replace(self.checkpoint, tensors=whole, config={**self.checkpoint.config, **config})
        return replace(self, checkpoint=made)

    def find(self, stem: str) -> str | None:
        """The name of the tensor `stem` under whatever prefix it has; None where there is none."""
        ends = [n for n in self.checkpoint.tensors if n == stem or n.endswith("." + stem)]
        return min(ends, key=len) if ends else None


@dataclass(frozen=True, slots=True)
class Guess:
    """Another reading: which trap it would be, what was wrong and what to do about it, in a sentence each."""

    trap: int
    wrong: str
    remedy: str
    case: Case

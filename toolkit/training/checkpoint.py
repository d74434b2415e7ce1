"""Checkpoints of training: the last one is whole, whenever the process dies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class State:
    """All that a run needs to go on: after `step` steps, which also tell where in the data it stands."""

    step: int
    tokens: int
    head: dict[str, Any]
    optimizers: list[dict[str, Any]]
    best: float
    best_head: dict[str, Any] | None
    looks: int  # since the best one
    about: str  # the plan; a run is gone on with by the same plan only


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """In a folder; the newest alone is kept."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "training.pt"

    def put(self, state: State) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        scratch = self.file.with_suffix(".part")
        torch.save({name: getattr(state, name) for name in State.__slots__}, scratch)
        scratch.replace(self.file)

    def get(self, about: str) -> State | None:
        """The state to go on from; None where there is none. Raises ValueError for a run by another plan."""
        if not self.file.exists():
            return None
        found = State(**torch.load(self.file, map_location="cpu", weights_only=True))
        if found.about != about:
            raise ValueError(
                f"{self.folder} holds a run by another plan: give another folder, or the plan it was begun with ({found.about})"
            )
        return found

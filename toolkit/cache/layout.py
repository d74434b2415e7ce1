"""What a key-value memory must do for `Store`.

Letters: B rows, H heads, N nodes, M nodes just read, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What one layer writes: heads, key size, value size, where and in which dtype; window: how many positions back it
    looks, None for all. Layers with equal specs share their memory."""

    heads: int
    key: int
    value: int
    device: torch.device
    dtype: torch.dtype
    window: int | None = None


class Layout(Protocol):
    """Where the slots of each row are. Slots of a row count from 0, in the order of its text.

    `length` [B] is where each row's provisional slots begin; `level` is the same as a number where the host knows it to be
    one number.
    """

    def open(self, specs: dict[int, LayerSpec], rows: int, slots: int, device: torch.device) -> None:
        """Memory for layers with these specs, before anything else."""
        ...

    def reserve(self, settled: np.ndarray, nodes: int) -> None:
        """Room for `nodes` provisional slots after the first `settled` [B] of each row. What stands in these is kept."""
        ...

    def write(self, layer: int, length: Tensor, level: int | None, start: int, k: Tensor, v: Tensor) -> None:
        """Put k, v [B, H, M, D] into the provisional slots from the `start`-th on."""
        ...

    def view(self, layer: int, reach: int) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, reach, D] of the first slots of each row."""
        ...

    def move(self, source: Tensor, to: Tensor) -> None:
        """Copy slots `source` [B, N] to slots `to` [B, N] in all layers; all are read before any is written."""
        ...

    def settle(self, tokens: np.ndarray, settled: np.ndarray) -> None:
        """From now on the first `settled` [B] slots of each row, which hold `tokens` [B, n], and one more, are wanted."""
        ...

    def sound(self, b: int, settled: int) -> bool:
        """Has row b everything that a node after its first `settled` slots looks at."""
        ...

    def seat(self, source: Sequence[int | None]) -> list[int | None]:
        """Row b is what row source[b] was, or a new one. Returns what was really done: a new row may be one that is nobody's
        any more. Others that are nobody's are forgotten."""
        ...

    def park(self, b: int) -> Any:
        """What is needed to take row b up again with `unpark`, if the layout can do that; else None."""
        ...

    def unpark(self, b: int, parked: Any) -> None: ...

    def free(self, parked: Any) -> None: ...

    def file(self, feature: Tensor, slot: Tensor, real: Tensor) -> None:
        """Keep features [B, M, F] of the tokens at slots [B, M] where `real`, if rows can share them."""
        ...

    def recall(self, b: int, count: int) -> Tensor: ...

    def adopt(self, b: int, tokens: np.ndarray) -> int:
        """Let the empty row b begin with slots that hold the first of `tokens` [n] already; returns how many."""
        ...

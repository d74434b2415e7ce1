"""P-EAGLE (2026): an EAGLE-3 network that makes all guesses of a step in one pass.

Behind the newest pair stand open pairs: a mask token with a learned feature in the place of the target's. The pair d places
behind guesses the token d places further on. Open pairs see all true pairs and the open ones before them.

Letters: B rows, N nodes, H hidden size, F tapped features, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from toolkit.heads.config import HeadConfig
from toolkit.heads.eagle3 import Eagle3Head
from toolkit.heads.parts import Attend
from toolkit.protocols import Tap

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel


class PEagleHead(nn.Module):
    """Answers the `OpenPairHead` socket, and that of pairs. mask: id of the token in open pairs; depths: guesses a pass."""

    def __init__(self, pairs: Eagle3Head, *, mask: int, depths: int = 8) -> None:
        super().__init__()
        if depths < 1:
            raise ValueError(f"P-EAGLE makes at least one guess a pass; got depths={depths}")
        if not 0 <= mask < pairs.config.vocab:
            raise ValueError(f"mask is a token id in 0..{pairs.config.vocab - 1}; got {mask}")
        self.pairs, self.mask, self.horizon = pairs, mask, depths
        self.mask_hidden = nn.Parameter(torch.randn(1, 1, pairs.width))

    @classmethod
    def of(cls, target: HFModel, *, mask: int, depths: int = 8, layers: int = 4, **choices: Any) -> Self:
        """A new head for `target`, in its dtype and on its device; `choices` as for `Eagle3Head.of`."""
        made = cls(Eagle3Head.of(target, layers=layers, **choices), mask=mask, depths=depths)
        return made.to(target.device, target.dtype).eval()

    @property
    def config(self) -> HeadConfig:
        return self.pairs.config

    @property
    def taps(self) -> tuple[Tap, ...]:
        return self.pairs.taps

    @property
    def width(self) -> int:
        """Of the features it reads."""
        return self.pairs.width

    def fuse(self, feature: Tensor) -> Tensor:
        return self.pairs.fuse(feature)

    def open_state(self) -> Tensor:
        """[1, 1, H] what stands in an open pair in the place of a fused feature."""
        return self.pairs.fuse(self.mask_hidden)

    def forward(self, token: Tensor, state: Tensor, position: Tensor, attend: Attend) -> Tensor:
        return self.pairs(token, state, position, attend)

    def said(self, state: Tensor) -> Tensor:
        """[B, N, W]: logits over the head's own vocabulary."""
        return self.pairs.said(state)

    def logits(self, state: Tensor) -> Tensor:
        return self.pairs.logits(state)

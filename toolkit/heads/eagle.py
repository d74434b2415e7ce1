"""The network of EAGLE-1 and EAGLE-2 (Li et al. 2024, "EAGLE", section 3; EAGLE-2 changes the tree, not the network).

A pair is the target's feature of token i with the embedding of token i + 1. One decoder layer turns it into a guess of the
feature of token i + 1, which the target's own LM head reads. Features are the states that the LM head reads, after the
last norm. Neither the first layer nor the end has a norm of its own.

Letters: B rows, N nodes, H hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from toolkit.heads.config import Borrowed, HeadConfig
from toolkit.heads.parts import Attend, Layer, rotary
from toolkit.protocols import Tap

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel


class EagleHead(nn.Module):
    """Answers the `PairHead` socket. Parameters carry the names of the published checkpoints."""

    def __init__(
        self, config: HeadConfig, borrowed: Borrowed, *, bias: bool = True, own_embeddings: bool = False
    ) -> None:
        super().__init__()
        self.config, self.borrowed = config, borrowed
        self.taps: tuple[Tap, ...] = ("final",)
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden) if own_embeddings else None
        self.fc = nn.Linear(2 * config.hidden, config.hidden, bias=bias)
        self.layers = nn.ModuleList(Layer(config, i, input_norm=i > 0) for i in range(config.layers))

    @classmethod
    def of(cls, target: HFModel, *, layers: int = 1, bias: bool = True) -> Self:
        """A new head for `target`, randomly initialised, in its dtype and on its device."""
        made = cls(HeadConfig.of(target, layers=layers), Borrowed.of(target), bias=bias)
        return made.to(target.device, target.dtype).eval()

    @property
    def width(self) -> int:
        """Of the features it reads."""
        return self.config.hidden

    def fuse(self, feature: Tensor) -> Tensor:
        return feature

    def forward(self, token: Tensor, state: Tensor, position: Tensor, attend: Attend) -> Tensor:
        embedding = self.borrowed.embed_with(self.embed_tokens, token, state)
        x = self.fc(torch.cat([embedding, state], -1))
        turn = rotary(position, self.config)
        for layer in self.layers:
            x = layer(x, turn, attend)
        return x

    def logits(self, state: Tensor) -> Tensor:
        return self.borrowed.unembed(state)

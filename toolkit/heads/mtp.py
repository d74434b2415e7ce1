"""Multi-token prediction as a target may ship it (Gloeckle et al. 2024; DeepSeek-V3 technical report, section 2.2).

One more decoder layer over the normed embedding of token i + 1 and the normed state of token i, joined by a linear map; the
target's LM head reads the result after a norm of its own. One module is used again for every further guess (FastMTP, 2025).

Letters: B rows, N nodes, H hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from toolkit.heads.config import Borrowed, HeadConfig
from toolkit.heads.parts import Attend, Layer, RMSNorm, rotary
from toolkit.protocols import Tap

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel


class MTPHead(nn.Module):
    """Answers the `PairHead` socket. norm_output: the state handed on is the one after the last norm (Qwen3-Next, FastMTP); not
    so in DeepSeek-V3."""

    def __init__(self, config: HeadConfig, borrowed: Borrowed, *, tap: Tap = "final", norm_output: bool = True) -> None:
        super().__init__()
        self.config, self.borrowed = config, borrowed
        self.taps: tuple[Tap, ...] = (tap,)
        self.norm_output = norm_output
        self.token_layernorm = RMSNorm(config.hidden, config.eps)
        self.hidden_layernorm = RMSNorm(config.hidden, config.eps)
        self.input_proj = nn.Linear(2 * config.hidden, config.hidden, bias=False)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.layers))
        self.final_layernorm = RMSNorm(config.hidden, config.eps)

    @classmethod
    def of(cls, target: HFModel, *, tap: Tap = "final", norm_output: bool = True) -> Self:
        """A new head for `target`, randomly initialised, in its dtype and on its device."""
        made = cls(HeadConfig.of(target), Borrowed.of(target), tap=tap, norm_output=norm_output)
        return made.to(target.device, target.dtype).eval()

    @property
    def width(self) -> int:
        """Of the features it reads."""
        return self.config.hidden

    def fuse(self, feature: Tensor) -> Tensor:
        return feature

    def forward(self, token: Tensor, state: Tensor, position: Tensor, attend: Attend) -> Tensor:
        embedding = self.token_layernorm(self.borrowed.embed(token, state))
        x = self.input_proj(torch.cat([embedding, self.hidden_layernorm(state)], -1))
        turn = rotary(position, self.config)
        for layer in self.layers:
            x = layer(x, turn, attend)
        return self.final_layernorm(x) if self.norm_output else x

    def logits(self, state: Tensor) -> Tensor:
        return self.borrowed.unembed(state if self.norm_output else self.final_layernorm(state))

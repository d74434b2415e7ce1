"""A small language model made of a few of the target's own layers, taught to speak like it (distillation: Zhou et al. 2024,
"DistillSpec", section 3).

It reads tokens alone, so it drafts as any draft model does; embeddings and LM head stay the target's.

Letters: B texts, N tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from toolkit.heads.config import Borrowed, HeadConfig
from toolkit.heads.parts import Layer, RMSNorm, rotary
from toolkit.heads.whole import Causal
from toolkit.protocols import Tap

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel


class SmallLM(nn.Module):
    """Parameters carry the names that a Llama's body has.

    horizon  guesses of a chain that it is judged by while it learns
    """

    def __init__(self, config: HeadConfig, borrowed: Borrowed, *, horizon: int = 5) -> None:
        super().__init__()
        self.config, self.borrowed, self.horizon = config, borrowed, horizon
        self.taps: tuple[Tap, ...] = ()
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.eps)

    @classmethod
    def of(cls, target: HFModel, layers: Sequence[int], *, horizon: int = 5) -> Self:
        """Begins as these layers of the target (counted from 0) and its last norm, in its dtype and on its device. Raises
        ValueError for layers that do not exist, and for a target whose layers are not of the Llama kind."""
        if not layers or any(not 0 <= i < target.layers for i in layers):
            raise ValueError(f"choose at least one of the target's layers 0 to {target.layers - 1}; got {list(layers)}")
        made = cls(HeadConfig.of(target, layers=len(layers)), Borrowed.of(target), horizon=horizon)
        norm: Any = getattr(target.model.base_model, "norm", None)
        try:
            for mine, i in zip(made.layers, layers, strict=True):
                mine.load_state_dict(target.decoder[i].state_dict())
            made.norm.load_state_dict(norm.state_dict())
        except (RuntimeError, AttributeError) as error:
            raise ValueError(
                f"{target.name} has layers that are not of the Llama kind, and no small model can be made of them: train a "
                f"draft model of your own"
            ) from error
        return made.to(target.device, target.dtype).eval()

    def speak(self, token: Tensor) -> Tensor:
        """[B, N, H] states after tokens [B, N] of whole texts, padded at the end; `logits` reads them."""
        like = self.norm.weight
        x = self.borrowed.embed(token, like)
        turn = rotary(torch.arange(token.shape[1], device=token.device)[None], self.config)
        for layer in self.layers:
            x = layer(x, turn, Causal())
        return self.norm(x)

    def logits(self, state: Tensor) -> Tensor:
        return self.borrowed.unembed(state)

"""A block drafter of the DFlash kind (Chen et al. 2026, "DFlash"): all guesses of a step from one pass.

The pending token and mask tokens after it stand in a block, in which every place sees every other. Each layer's keys and
values are made from the fused target features of all earlier tokens as well, by the same maps. Place j guesses the token
j places after the pending one. With a Markov head (rank-r table of token pairs, as in DSpark, 2026) a guess also depends on
the guess before it, which makes its distribution a conditional one.

Letters: B rows, N places or tokens, H hidden size, F tapped features, J block size, R Markov rank, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from toolkit.heads.config import Borrowed, HeadConfig, spread_taps
from toolkit.heads.parts import Attend, Layer, RMSNorm, rotary
from toolkit.protocols import Tap

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel


class MarkovHead(nn.Module):
    """Adds second[next] . first[previous] to the logits of a token pair."""

    def __init__(self, vocab: int, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab, rank)
        self.markov_w2 = nn.Linear(rank, vocab, bias=False)
        nn.init.zeros_(self.markov_w2.weight)  # a new one changes nothing

    def forward(self, previous: Tensor) -> Tensor:
        """[B, N, V] for previous tokens [B, N]."""
        return self.markov_w2(self.markov_w1(previous))


class BlockHead(nn.Module):
    """mask  id of the token whose embedding stands in the open places; block: places, the pending token's included."""

    def __init__(
        self,
        config: HeadConfig,
        borrowed: Borrowed,
        taps: Sequence[Tap],
        *,
        mask: int,
        block: int = 8,
        markov_rank: int = 0,
        target_hidden: int | None = None,
    ) -> None:
        super().__init__()
        if block < 2:
            raise ValueError(f"a block holds the pending token and at least one guess; got block={block}")
        if not 0 <= mask < config.vocab:
            raise ValueError(f"mask is a token id in 0..{config.vocab - 1}; got {mask}")
        self.config, self.borrowed, self.taps = config, borrowed, tuple(taps)
        self.mask, self.block = mask, block
        self.fc = nn.Linear((target_hidden or config.hidden) * len(self.taps), config.hidden, bias=False)
        self.hidden_norm = RMSNorm(config.hidden, config.eps)
        layers = [Layer(config, i) for i in range(config.layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(config.hidden, config.eps)
        self._keys = [layer.self_attn.keys for layer in layers]
        self.markov_head = MarkovHead(config.vocab, markov_rank) if markov_rank else None

    @classmethod
    def of(
        cls,
        target: HFModel,
        *,
        mask: int,
        block: int = 8,
        layers: int = 2,
        taps: Sequence[Tap] | None = None,
        markov_rank: int = 0,
    ) -> Self:
        """A new head for `target`, randomly initialised, in its dtype and on its device."""
        config = HeadConfig.of(target, layers=layers, qk_norm=True)
        taps = spread_taps(target, min(3, target.layers)) if taps is None else taps
        made = cls(config, Borrowed.of(target), taps, mask=mask, block=block, markov_rank=markov_rank)
        return made.to(target.device, target.dtype).eval()

    @property
    def width(self) -> int:
        """Of the features it reads."""
        return self.fc.in_features

    @property
    def horizon(self) -> int:
        return self.block - 1

    def remember(self, feature: Tensor, position: Tensor, write: Callable[[int, Tensor, Tensor], object]) -> None:
        """Hand `write(layer, keys, values)` what the features [B, N, F] of tokens at `position` [B, N] leave behind."""
        context, turn = self.hidden_norm(self.fc(feature)), rotary(position, self.config)
        for i, keys in enumerate(self._keys):
            write(i, *keys(context, turn))

    def forward(self, pending: Tensor, position: Tensor, attend: Attend) -> Tensor:
        """[B, J - 1, V] logits of the guesses after pending [B, 1]; position [B, J] of all places."""
        places = torch.cat([pending, pending.new_full((len(pending), self.block - 1), self.mask)], 1)
        x, turn = self.borrowed.embed(places, self.fc.weight), rotary(position, self.config)
        for layer in self.layers:
            x = layer(x, turn, attend)
        return self.borrowed.unembed(self.norm(x[:, 1:]))

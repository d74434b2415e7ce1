"""Medusa (Cai et al. 2024, section 2.1.1): several heads that read one state of the target and guess one token each.

Head h guesses the token h + 1 places after the one the target's own LM head predicts from that state. Heads know nothing of
one another's guesses.

Letters: B rows, H hidden size, K heads, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from toolkit.heads.config import Borrowed, HeadConfig
from toolkit.heads.parts import DraftVocabulary
from toolkit.protocols import Tap

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel


class ResBlock(nn.Module):
    """x + SiLU(linear(x)); the linear map begins at zero, so that a new head says what the target's LM head says."""

    def __init__(self, hidden: int, *, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, hidden, bias=bias)
        for p in self.linear.parameters():
            nn.init.zeros_(p)

    def forward(self, x: Tensor) -> Tensor:
        return x + silu(self.linear(x))


class MedusaHead(nn.Module):
    """Answers the `MarginalHead` socket.

    own_lm_heads  one a head, as in Medusa-1's first release; else the target's LM head is shared by all
    tokens        [Vd] target ids that its own LM heads can say; None for all
    """

    def __init__(
        self,
        config: HeadConfig,
        borrowed: Borrowed,
        *,
        heads: int = 4,
        layers: int = 1,
        own_lm_heads: bool = False,
        tokens: Tensor | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if heads < 1 or layers < 0:
            raise ValueError(
                f"Medusa needs at least one head and no negative number of blocks; got {heads} and {layers}"
            )
        if tokens is not None and not own_lm_heads:
            raise ValueError("the target's LM head says all tokens: a list of tokens needs own_lm_heads=True")
        self.config, self.borrowed = config, borrowed
        self.taps: tuple[Tap, ...] = ("final",)
        self.blocks = nn.ModuleList(
            nn.Sequential(*(ResBlock(config.hidden, bias=bias) for _ in range(layers))) for _ in range(heads)
        )
        self.vocabulary = None if tokens is None else DraftVocabulary(config.vocab, tokens)
        said = config.vocab if tokens is None else len(tokens)
        self.own = [nn.Linear(config.hidden, said, bias=False) for _ in range(heads)] if own_lm_heads else []
        self.lm_heads = nn.ModuleList(self.own)

    @classmethod
    def of(cls, target: HFModel, *, heads: int = 4, layers: int = 1, own_lm_heads: bool = False) -> Self:
        """A new head for `target` in its dtype and on its device. Every head begins as the target's LM head."""
        made = cls(HeadConfig.of(target), Borrowed.of(target), heads=heads, layers=layers, own_lm_heads=own_lm_heads)
        for own in made.own:
            own.weight.data.copy_(target.unembedding.weight.detach())
        return made.to(target.device, target.dtype).eval()

    @property
    def width(self) -> int:
        """Of the features it reads."""
        return self.config.hidden

    @property
    def horizon(self) -> int:
        return len(self.blocks)

    def forward(self, state: Tensor) -> Tensor:
        """[B, K, V] from the state [B, H] of the last token before the pending one."""
        x = torch.stack([block(state) for block in self.blocks], 1)  # [B, K, H]
        if not self.own:
            return self.borrowed.unembed(x)
        said = torch.stack([head(x[:, k]) for k, head in enumerate(self.own)], 1)
        return said if self.vocabulary is None else self.vocabulary.widen(said)

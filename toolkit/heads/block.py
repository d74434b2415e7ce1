"""A block drafter of the DFlash kind (Chen et al. 2026, "DFlash"): all guesses of a step from one pass.

The pending token and mask tokens after it stand in a block, in which every place sees every other. Each layer's keys and
values are made from the fused target features of all earlier tokens as well, by the same maps. Place j guesses the token
j places after the pending one, or, where the pending token's own place guesses too (DSpark, 2026), the one after that. With
a Markov head a guess also depends on the guesses before it, which makes its distribution a conditional one.

Letters: B rows, N places or tokens, M nodes, H hidden size, F tapped features, J block size, D guesses, R Markov rank, V
vocabulary, W tokens that the head says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn

from toolkit.heads.config import Borrowed, HeadConfig, spread_taps
from toolkit.heads.markov import ConfidenceHead, MarkovHead, MarkovKind
from toolkit.heads.parts import Attend, DraftVocabulary, Layer, RMSNorm, rotary
from toolkit.protocols import Tap

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel


class BlockHead(nn.Module):
    """mask  id of the token whose embedding stands in the open places; block: places, the pending token's included.

    anchored        the pending token's place guesses too: place j speaks of the token after place j, and a block makes
                    `block` guesses instead of `block` - 1
    own_embeddings  of tokens, own_lm_head: instead of the target's
    tokens          [W] target ids that its own LM head can say; None for all
    confidence      a head that tells how likely a guess is to be accepted, by the place's state or by the token before
                    as well ("markov")
    """

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
        markov_kind: MarkovKind = "vanilla",
        confidence: Literal["state", "markov"] | None = None,
        anchored: bool = False,
        own_embeddings: bool = False,
        own_lm_head: bool = False,
        tokens: Tensor | None = None,
    ) -> None:
        super().__init__()
        if block < 2:
            raise ValueError(f"a block holds the pending token and at least one guess; got block={block}")
        if not 0 <= mask < config.vocab:
            raise ValueError(f"mask is a token id in 0..{config.vocab - 1}; got {mask}")
        if tokens is not None and not own_lm_head:
            raise ValueError("the target's LM head says all tokens: a list of tokens needs own_lm_head=True")
        if confidence == "markov" and not markov_rank:
            raise ValueError(
                "confidence='markov' reads the Markov head's table: give markov_rank > 0 or confidence='state'"
            )
        said = config.vocab if tokens is None else len(tokens)
        self.config, self.borrowed, self.taps = config, borrowed, tuple(taps)
        self.mask, self.block, self.anchored = mask, block, anchored
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden) if own_embeddings else None
        self.fc = nn.Linear((target_hidden or config.hidden) * len(self.taps), config.hidden, bias=False)
        self.hidden_norm = RMSNorm(config.hidden, config.eps)
        layers = [Layer(config, i) for i in range(config.layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(config.hidden, config.eps)
        self._keys = [layer.self_attn.keys for layer in layers]
        self.vocabulary = None if tokens is None else DraftVocabulary(config.vocab, tokens)
        self.lm_head = nn.Linear(config.hidden, said, bias=False) if own_lm_head else None
        self.markov_head = None
        if markov_rank:
            self.markov_head = MarkovHead(config.vocab, markov_rank, said=said, hidden=config.hidden, kind=markov_kind)
        rank = markov_rank if confidence == "markov" else 0
        self.confidence_head = ConfidenceHead(config.hidden, rank) if confidence else None

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
        **choices: Any,
    ) -> Self:
        """A new head for `target`, randomly initialised, in its dtype and on its device; `choices` as for the class. An LM
        head of its own begins as the target's rows."""
        config = HeadConfig.of(target, layers=layers, qk_norm=True)
        taps = spread_taps(target, min(3, target.layers)) if taps is None else taps
        made = cls(config, Borrowed.of(target), taps, mask=mask, block=block, markov_rank=markov_rank, **choices)
        if made.lm_head is not None:
            rows = target.unembedding.weight.detach()
            tokens = None if made.vocabulary is None else made.vocabulary.tokens.to(rows.device)
            made.lm_head.weight.data.copy_(rows if tokens is None else rows[tokens])
        return made.to(target.device, target.dtype).eval()

    @property
    def width(self) -> int:
        """Of the features it reads."""
        return self.fc.in_features

    @property
    def horizon(self) -> int:
        return self.block if self.anchored else self.block - 1

    def remember(self, feature: Tensor, position: Tensor, write: Callable[[int, Tensor, Tensor], object]) -> None:
        """Hand `write(layer, keys, values)` what the features [B, N, F] of tokens at `position` [B, N] leave behind."""
        context, turn = self.hidden_norm(self.fc(feature)), rotary(position, self.config)
        for i, keys in enumerate(self._keys):
            write(i, *keys(context, turn))

    def states(self, pending: Tensor, position: Tensor, attend: Attend) -> Tensor:
        """[B, J, H] of all places, after pending [B, 1]; position [B, J]. The last D of them guess."""
        places = torch.cat([pending, pending.new_full((len(pending), self.block - 1), self.mask)], 1)
        x, turn = self.borrowed.embed_with(self.embed_tokens, places, self.fc.weight), rotary(position, self.config)
        for layer in self.layers:
            x = layer(x, turn, attend)
        return self.norm(x)

    def said(self, states: Tensor) -> Tensor:
        """[B, M, W]: logits over the head's own vocabulary, without what a Markov head adds."""
        return self.borrowed.unembed(states) if self.lm_head is None else self.lm_head(states)

    def widen(self, said: Tensor) -> Tensor:
        """[..., W] to [..., V], -inf for what the head cannot say."""
        return said if self.vocabulary is None else self.vocabulary.widen(said)

    def forward(self, pending: Tensor, position: Tensor, attend: Attend) -> Tensor:
        """[B, D, V] logits of the guesses after pending [B, 1], without what a Markov head adds; position [B, J]."""
        return self.widen(self.said(self.states(pending, position, attend)[:, -self.horizon :]))

    def memory(self, pending: Tensor, states: Tensor) -> Tensor:
        """[B, 1, R] what a Markov head remembers before the first guess: where the pending token's own place makes none,
        it is stepped over."""
        if self.markov_head is None:
            return states[:, :1, :0]
        none = states.new_zeros(len(states), 1, self.markov_head.rank)
        return none if self.anchored else self.markov_head.step(pending, states[:, :1], none)[1]

    def confidence(self, states: Tensor, previous: Tensor) -> Tensor:
        """[B, M] probability that a guess is accepted, from states [B, M, H] and the tokens before [B, M]. Raises ValueError
        without a confidence head."""
        if self.confidence_head is None:
            raise ValueError("this head has no confidence head: make one with confidence='state' or 'markov'")
        before = states[..., :0] if self.markov_head is None else self.markov_head.markov_w1(previous)
        return self.confidence_head(states, before)

"""The network of EAGLE-3 (Li et al. 2025, "EAGLE-3", section 3).

A pair is the embedding of token i + 1 with features of token i from several layers of the target, fused by one linear map.
The head's own state takes the fused feature's place further down. It is trained on its own guesses, so states need not look
like target features. It has a last norm and an LM head of its own, often over a reduced vocabulary.

Letters: B rows, N nodes, H hidden size, F tapped features, T taps, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from toolkit.heads.config import Borrowed, HeadConfig, spread_taps
from toolkit.heads.parts import MLP, Attend, Attention, DraftVocabulary, Layer, RMSNorm, rotary
from toolkit.protocols import Tap

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel


class WideLayer(nn.Module):
    """The first layer: attends over the embedding and the state side by side, each with a norm of its own.

    norm_before_residual: the state goes on along the residual path after its norm instead of before it.
    """

    def __init__(self, config: HeadConfig, *, norm_before_residual: bool) -> None:
        super().__init__()
        self.norm_before_residual = norm_before_residual
        self.self_attn = Attention(config, 0, inputs=2 * config.hidden)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden, config.eps)  # of the embedding
        self.hidden_norm = RMSNorm(config.hidden, config.eps)  # of the state
        self.post_attention_layernorm = RMSNorm(config.hidden, config.eps)

    def forward(self, embedding: Tensor, state: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        normed = self.hidden_norm(state)
        x = normed if self.norm_before_residual else state
        x = x + self.self_attn(torch.cat([self.input_layernorm(embedding), normed], -1), turn, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Eagle3Head(nn.Module):
    """Answers the `PairHead` socket for any number of taps, which have equal widths.

    tokens   [Vd] target ids that the head can say; None for all
    fc_norm  a norm for each tap before they are fused (EAGLE-3.1); input_norm: one norm over all of them together
    norm_output  the state handed on is the one after the last norm
    own_embeddings  of tokens, instead of the target's
    """

    def __init__(
        self,
        config: HeadConfig,
        borrowed: Borrowed,
        taps: Sequence[Tap],
        *,
        target_hidden: int | None = None,
        tokens: Tensor | None = None,
        norm_before_residual: bool = False,
        fc_norm: bool = False,
        input_norm: bool = False,
        norm_output: bool = False,
        own_embeddings: bool = False,
    ) -> None:
        super().__init__()
        width = target_hidden or config.hidden
        self.config, self.borrowed, self.taps = config, borrowed, tuple(taps)
        self.norm_output = norm_output
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden) if own_embeddings else None
        self.fc = nn.Linear(width * len(self.taps), config.hidden, bias=False)
        self.fc_norm = nn.ModuleList(RMSNorm(width, config.eps) for _ in self.taps) if fc_norm else None
        self.input_norm = RMSNorm(width * len(self.taps), config.eps) if input_norm else None
        first = WideLayer(config, norm_before_residual=norm_before_residual)
        self.layers = nn.ModuleList([first, *(Layer(config, i) for i in range(1, config.layers))])
        self.norm = RMSNorm(config.hidden, config.eps)
        self.vocabulary = None if tokens is None else DraftVocabulary(config.vocab, tokens)
        self.lm_head = nn.Linear(config.hidden, config.vocab if tokens is None else len(tokens), bias=False)

    @classmethod
    def of(
        cls,
        target: HFModel,
        *,
        taps: Sequence[Tap] | None = None,
        tokens: Tensor | None = None,
        layers: int = 1,
        norm_before_residual: bool = False,
        fc_norm: bool = False,
        input_norm: bool = False,
        norm_output: bool = False,
    ) -> Self:
        """A new head for `target`, in its dtype and on its device. Its LM head begins as the target's rows for `tokens`,
        all else at random."""
        config = HeadConfig.of(target, layers=layers, draft_vocab=None if tokens is None else len(tokens))
        made = cls(
            config,
            Borrowed.of(target),
            spread_taps(target, min(3, target.layers)) if taps is None else taps,
            tokens=tokens,
            norm_before_residual=norm_before_residual,
            fc_norm=fc_norm,
            input_norm=input_norm,
            norm_output=norm_output,
        )
        rows = target.unembedding.weight.detach()
        made.lm_head.weight.data.copy_(rows if tokens is None else rows[tokens.to(rows.device)])
        return made.to(target.device, target.dtype).eval()

    @property
    def width(self) -> int:
        """Of the features it reads."""
        return self.fc.in_features

    def fuse(self, feature: Tensor) -> Tensor:
        if self.input_norm:
            feature = self.input_norm(feature)
        if self.fc_norm:
            parts = feature.chunk(len(self.taps), -1)
            feature = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], -1)
        return self.fc(feature)

    def forward(self, token: Tensor, state: Tensor, position: Tensor, attend: Attend) -> Tensor:
        turn = rotary(position, self.config)
        first, *rest = self.layers
        x = first(self.borrowed.embed_with(self.embed_tokens, token, state), state, turn, attend)
        for layer in rest:
            x = layer(x, turn, attend)
        return self.norm(x) if self.norm_output else x

    def said(self, state: Tensor) -> Tensor:
        """[B, N, Vd]: logits over the head's own vocabulary."""
        return self.lm_head(state if self.norm_output else self.norm(state))

    def logits(self, state: Tensor) -> Tensor:
        said = self.said(state)
        return said if self.vocabulary is None else self.vocabulary.widen(said)

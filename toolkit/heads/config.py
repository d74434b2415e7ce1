"""Sizes of a draft head, and what it borrows from its target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from toolkit.protocols import Tap

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """Sizes shared by all kinds of heads; `of` takes them from a target.

    vocab, hidden   of the target; every head writes logits over the whole of `vocab`. A head with embeddings of its own may
                    be narrower than its target
    draft_vocab     how many tokens the head itself tells apart; None for all of them
    qk_norm         norms on queries and keys, as in Qwen3
    first           position that the first pair had in training, for heads over pairs
    """

    vocab: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float = 1e-6
    rope_theta: float = 10_000.0
    layers: int = 1
    draft_vocab: int | None = None
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    first: int = 0

    @classmethod
    def of(cls, target: HFModel, **changes: Any) -> Self:
        """The target's own sizes with `changes`. Raises TypeError for a field that does not exist."""
        c = target.config
        heads = int(c.num_attention_heads)
        rope = getattr(c, "rope_parameters", None) or {}
        theta = rope.get("rope_theta", getattr(c, "rope_theta", None))
        made = cls(
            vocab=target.vocab,
            hidden=int(c.hidden_size),
            intermediate=int(getattr(c, "intermediate_size", None) or 4 * c.hidden_size),
            heads=heads,
            kv_heads=int(getattr(c, "num_key_value_heads", None) or heads),
            head_dim=int(getattr(c, "head_dim", None) or c.hidden_size // heads),
            eps=float(getattr(c, "rms_norm_eps", 1e-6)),
            rope_theta=float(theta) if isinstance(theta, int | float) else 10_000.0,
        )
        return replace(made, **changes)


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Modules that stay the target's: no parameters of the head, not in its state, never trained or moved with it."""

    embedding: nn.Module  # [B, N] token ids to [B, N, H]
    unembedding: nn.Module  # [B, N, H] to [B, N, V]

    @classmethod
    def of(cls, target: HFModel) -> Borrowed:
        return cls(target.embedding, target.unembedding)

    def embed(self, token: Tensor, like: Tensor) -> Tensor:
        """[B, N, H] in the dtype and on the device of `like`."""
        place = next(self.embedding.parameters()).device
        with torch.no_grad():  # a gradient of the target's would be as large as its whole table
            return self.embedding(token.to(place)).to(like.device, like.dtype)

    def embed_with(self, own: nn.Embedding | None, token: Tensor, like: Tensor) -> Tensor:
        """The same from a head's own embeddings, where it has some."""
        return self.embed(token, like) if own is None else own(token.to(like.device)).to(like.dtype)

    def unembed(self, state: Tensor) -> Tensor:
        """[B, N, V] from states [B, N, H]; in the state's dtype."""
        weight = next(self.unembedding.parameters())
        return self.unembedding(state.to(weight.device, weight.dtype)).to(state.device, state.dtype)


def spread_taps(target: HFModel, count: int = 3) -> tuple[Tap, ...]:
    """Taps of an EAGLE-3 head: low, middle and high layer, the published choice for three (2, L // 2, L - 3); evenly
    spread for other counts and for targets too shallow for it. Raises ValueError for more taps than layers."""
    layers = target.layers
    if not 1 <= count <= layers:
        raise ValueError(f"{count} taps do not fit the target's {layers} layers: use 1 to {layers}")
    if count == 3 and layers >= 8:
        return 2, layers // 2, layers - 3
    if count == 1:
        return (max(1, layers // 2),)
    return tuple(1 + round(i * (layers - 1) / (count - 1)) for i in range(count))

"""The parts of draft heads: norms, rotary positions, attention that leaves its cache to the caller, gated MLP.

Letters: B rows, N nodes, H hidden size, A query heads, K key heads, D head size.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from toolkit.heads.config import HeadConfig


class Attend(Protocol):
    """Attention itself, handed to a head's forward: a key-value cache with a tree mask while drafting, a mask over the
    whole text in training. The head neither knows nor cares."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [B, A, N, D], k and v [B, K, N, D], rotated already, to [B, N, A, D]."""
        ...


class RMSNorm(nn.Module):
    """x / rms(x) * weight, the mean of squares in float32 at least."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


def rotary(position: Tensor, config: HeadConfig) -> tuple[Tensor, Tensor]:
    """cos and sin [B, 1, N, D] of positions [B, N], float32 (Su et al. 2021, "RoFormer"; halves side by side)."""
    half = torch.arange(0, config.head_dim, 2, device=position.device, dtype=torch.float32)
    rate = 1.0 / config.rope_theta ** (half / config.head_dim)  # [D / 2]
    angle = position[:, None, :, None].float() * rate
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """x [B, heads, N, D] turned by its positions."""
    cos, sin = (t.to(x.dtype) for t in turn)
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class Attention(nn.Module):
    """Grouped-query attention. `inputs` is the width of what queries, keys and values are made from."""

    def __init__(self, config: HeadConfig, layer: int, inputs: int | None = None) -> None:
        super().__init__()
        inputs, size = inputs or config.hidden, config.head_dim
        self.layer, self.size = layer, size
        self.q_proj = nn.Linear(inputs, config.heads * size, bias=config.qkv_bias)
        self.k_proj = nn.Linear(inputs, config.kv_heads * size, bias=config.qkv_bias)
        self.v_proj = nn.Linear(inputs, config.kv_heads * size, bias=config.qkv_bias)
        self.o_proj = nn.Linear(config.heads * size, config.hidden, bias=config.o_bias)
        self.q_norm = RMSNorm(size, config.eps) if config.qk_norm else None
        self.k_norm = RMSNorm(size, config.eps) if config.qk_norm else None

    def queries(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """[B, A, N, D]"""
        q = self._split(self.q_proj(x))
        return rotate(self.q_norm(q) if self.q_norm else q, turn)

    def keys(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Keys and values [B, K, N, D]."""
        k = self._split(self.k_proj(x))
        return rotate(self.k_norm(k) if self.k_norm else k, turn), self._split(self.v_proj(x))

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        out = attend(self.layer, self.queries(x, turn), *self.keys(x, turn))
        return self.o_proj(out.flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.size)).transpose(1, 2)


class MLP(nn.Module):
    """SwiGLU (Shazeer 2020)."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.intermediate, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.hidden, config.intermediate, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.intermediate, config.hidden, bias=config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """A decoder layer of the Llama kind; `input_norm=False` leaves out the first norm, as EAGLE-1's first layer does."""

    def __init__(self, config: HeadConfig, layer: int, *, input_norm: bool = True) -> None:
        super().__init__()
        self.self_attn = Attention(config, layer)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden, config.eps) if input_norm else None
        self.post_attention_layernorm = RMSNorm(config.hidden, config.eps)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x) if self.input_layernorm else x, turn, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class DraftVocabulary(nn.Module):
    """Which of the target's tokens a head with a reduced vocabulary can say, as the two published tables.

    d2t [Vd] int64: draft token i is target token i + d2t[i]; in any order. t2d [V] bool: can the head say it.
    """

    d2t: Tensor
    t2d: Tensor

    def __init__(self, vocab: int, tokens: Tensor) -> None:
        """`tokens` [Vd] are the target's ids. Raises ValueError for ids outside 0..vocab-1 or given twice."""
        super().__init__()
        if tokens.ndim != 1 or len(tokens.unique()) != len(tokens) or not ((tokens >= 0) & (tokens < vocab)).all():
            raise ValueError(
                f"a draft vocabulary lists different token ids in 0..{vocab - 1}; got {tokens.tolist()[:8]}..."
            )
        self.register_buffer("d2t", tokens.long() - torch.arange(len(tokens), device=tokens.device))
        none = torch.zeros(vocab, dtype=torch.bool, device=tokens.device)
        self.register_buffer("t2d", none.index_fill(0, tokens.long(), True))

    @property
    def tokens(self) -> Tensor:
        """[Vd] target ids."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def widen(self, logits: Tensor) -> Tensor:
        """[..., Vd] to [..., V], -inf for what the head cannot say."""
        wide = logits.new_full((*logits.shape[:-1], len(self.t2d)), -torch.inf)
        return wide.index_copy(-1, self.tokens, logits)

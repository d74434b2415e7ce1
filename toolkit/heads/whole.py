"""Attention over whole texts, for heads while they learn. Each answers the `Attend` socket.

Letters: B rows, N places, M queries, A query heads, K key heads, G = A / K, D head size, J places of a block.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from toolkit.heads.merged import merged


@dataclass(slots=True)
class Causal:
    """Every place sees itself and those before it. Texts are padded at the end, so padding is seen by padding alone."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return out.transpose(1, 2)


@dataclass(slots=True)
class Rollout:
    """Training-time test (EAGLE-3, section 3.2): at its n-th pass a place sees the first pass's keys up to its own, which
    were made from true features, and its own key of every later pass, which stand on its own guesses.

    That is what the head sees while it drafts a chain of n guesses behind that place. `turn()` begins the next pass.
    """

    passes: int = 0
    kept: dict[int, list[tuple[Tensor, Tensor]]] = field(default_factory=dict)  # by layer, one pair a pass

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kept = self.kept.setdefault(layer, [])
        kept.append((k, v))
        if len(kept) == 1:
            return Causal()(layer, q, k, v)
        return rolled(q, kept)

    def turn(self) -> None:
        self.passes += 1

    def mask(self, places: int) -> Tensor:
        """[N, (passes + 1) * N] bool: what each place of the current pass sees, for a picture of it."""
        own = torch.eye(places, dtype=torch.bool)
        return torch.cat([torch.ones_like(own).tril(), *[own] * self.passes], 1)


def rolled(q: Tensor, kept: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Queries [B, A, N, D] over the first keys [B, K, N, D], causally, and over their own place's keys of later passes:
    [B, N, A, D]."""
    if q.device.type == "cpu":
        groups = q.shape[1] // kept[0][0].shape[1]
        (k, v), *later = [(k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)) for k, v in kept]
        own_k, own_v = (torch.stack([pair[i] for pair in later]) for i in (0, 1))
        return merged(q, k, v, own_k, own_v).transpose(1, 2)
    return rolled_plainly(q, kept)


def rolled_plainly(q: Tensor, kept: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The same anywhere, with all scores laid out."""
    (k, v), *later = kept
    rows, heads, n, size = q.shape
    groups = heads // k.shape[1]
    q = q.unflatten(1, (-1, groups)) * size**-0.5  # [B, K, G, N, D]
    scores = q @ k[:, :, None].transpose(-1, -2)  # [B, K, G, N, N]
    future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    scores = scores.masked_fill(future, -torch.inf)
    own = [(q * key[:, :, None]).sum(-1, keepdim=True) for key, _ in later]  # [B, K, G, N, 1]
    weight = torch.cat([scores, *own], -1).softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(v.dtype)
    out = weight[..., :n] @ v[:, :, None]
    for i, (_, value) in enumerate(later):
        out = out + weight[..., n + i, None] * value[:, :, None]
    return out.reshape(rows, heads, n, size).transpose(1, 2)


@dataclass(slots=True)
class Blocks:
    """Blocks of J places, several a text: a block sees what earlier tokens left behind and itself, whole.

    before  [B, C] how many tokens stand before each of a text's C blocks
    kept    by layer, what the text's tokens left behind
    """

    before: Tensor
    kept: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Take in keys and values [B, K, N, D] of the texts."""
        self.kept[layer] = (k, v)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [B * C, A, J, D], k and v [B * C, K, J, D]."""
        past, remembered = self.kept[layer]
        rows, blocks = self.before.shape
        n, groups = past.shape[2], q.shape[1] // k.shape[1]
        q = q.unflatten(0, (rows, blocks)).unflatten(2, (-1, groups)) * q.shape[-1] ** -0.5  # [B, C, K, G, J, D]
        k, v = (x.unflatten(0, (rows, blocks))[:, :, :, None] for x in (k, v))  # [B, C, K, 1, J, D]
        far = q @ past[:, None, :, None].transpose(-1, -2)  # [B, C, K, G, J, N]
        hidden = torch.arange(n, device=q.device) >= self.before[..., None]  # [B, C, N]
        far = far.masked_fill(hidden[:, :, None, None, None], -torch.inf)
        scores = torch.cat([far, q @ k.transpose(-1, -2)], -1)
        weight = scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(v.dtype)
        out = weight[..., :n] @ remembered[:, None, :, None] + weight[..., n:] @ v
        return out.flatten(2, 3).flatten(0, 1).transpose(1, 2)  # [B * C, J, A, D]

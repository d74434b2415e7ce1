"""Whose embeddings a head reads: its file's, or the target's. Files hold copies, trained ones, and now and then noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Notes

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

KEY = "embed_tokens.weight"


def whose(c: Checkpoint, target: HFModel) -> Literal["own", "target"]:
    """The target's, unless the file holds others."""
    return (
        "target" if KEY not in c.tensors or torch.equal(rows(target, c.tensors[KEY].dtype), c.tensors[KEY]) else "own"
    )


@torch.inference_mode()
def rows(target: HFModel, dtype: torch.dtype) -> Tensor:
    """[V, H] what the target's embedding gives for each token, a multiplier of its own included."""
    embedding = target.embedding
    place = next(embedding.parameters()).device
    parts = torch.arange(target.vocab, device=place).split(8192)
    return torch.cat([embedding(part).to(dtype).cpu() for part in parts])


def chosen(c: Checkpoint, target: HFModel, conventions: Conventions, hidden: int) -> Notes:
    """What there is to say about the choice. Raises ValueError where it can't be had."""
    size = int(target.config.hidden_size)
    if conventions.embeddings == "target":
        if hidden != size:
            raise ValueError(
                f"{c.where} reads embeddings of width {hidden}, and the target's have {size}: it needs its own, {KEY!r}"
            )
        return ()
    own = c.need(KEY)
    if tuple(own.shape) != (target.vocab, size):
        return ()
    cosine = cosine_similarity(own.float(), rows(target, torch.float32)).mean().item()
    if abs(cosine) < 0.1:
        return (
            f"its embeddings are unlike the target's (mean cosine {cosine:.2f}), as if never trained: if few guesses are "
            f"accepted, load with embeddings='target'",
        )
    return (f"its embeddings are not the target's (mean cosine {cosine:.2f}), and its own are read",)


def written(head: nn.Module, target: HFModel, dtype: torch.dtype, *, lean: bool = False) -> dict[str, Tensor]:
    """The embeddings that a head reads, for layouts that hold them; where `lean`, its own alone."""
    own = getattr(head, "embed_tokens", None)
    if own is None and lean:
        return {}
    return {KEY: own.weight if isinstance(own, nn.Embedding) else rows(target, dtype)}

"""EAGLE-3 heads in the layout of vLLM's speculators, which says every switch by name and holds embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from toolkit.heads.dialects import embeddings, fitting, pairs, speculators, tapping, vocabulary
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes
from toolkit.heads.eagle3 import Eagle3Head

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_NAME = "speculators-eagle3"
_GUESSES = 3  # a step, unless a server is told otherwise


def detect(c: Checkpoint) -> int:
    return 0 if not pairs.wide(c) or "mask_hidden" in c.tensors else 1 + speculators.says(c, "eagle3")


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return pairs.conventions(c, target, "boundary", first=1)


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    return pairs.load(c, target, chosen)


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    head = fitting.expect(head, Eagle3Head, _NAME)
    dtype = fitting.dtype_of(head)
    tensors, notes = vocabulary.in_order(pairs.written(head), "lm_head.weight")
    if export.lean and pairs.says_as_target(head, export.target):
        del tensors["lm_head.weight"]
    tensors |= embeddings.written(head, export.target, dtype, lean=export.lean)
    config = speculators.config(
        "eagle3", "Eagle3Speculator", head.config, dtype, export, guesses=_GUESSES, **fields(head, _NAME)
    )
    return Checkpoint(config, tensors), (*notes, *speculators.unnamed(export))


def fields(head: Eagle3Head, layout: str) -> dict[str, Any]:
    """The kind's own. Raises ValueError for two ways of norming features at once, which exclude one another there."""
    if head.fc_norm is not None and head.input_norm is not None:
        raise ValueError(f"{layout} norms features before fc in one of two ways, and this head does both")
    return {
        "draft_vocab_size": len(head.lm_head.weight),
        "target_hidden_size": head.width // len(head.taps),
        "eagle_aux_hidden_state_layer_ids": tapping.ids(head.taps, "boundary", layout),
        "embed_requires_grad": False,
        **pairs.switches(head),
    }


DIALECT = Dialect(_NAME, detect, conventions, load, save)

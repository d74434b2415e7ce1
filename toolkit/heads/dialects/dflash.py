"""DFlash as its authors publish it (z-lab): a Qwen3-like config with a dflash_config, and no embeddings or LM head.

Its remote code is not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from toolkit.heads.block import BlockHead
from toolkit.heads.dialects import blocks, embeddings, fitting, tapping
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_NAME = "dflash"


def detect(c: Checkpoint) -> int:
    lent = embeddings.KEY not in c.tensors and "lm_head.weight" not in c.tensors
    if not blocks.backbone(c) or blocks.sequential(c) or "d2t" in c.tensors or not lent:
        return 0
    return 1 + (c.option("dflash_config") is not None)


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return blocks.conventions(c, target, "output", anchored=False)


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    return blocks.load(c, target, chosen)


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    head = fitting.expect(head, BlockHead, _NAME)
    if head.lm_head is not None:
        raise ValueError(f"{_NAME} borrows the target's LM head, and this head has its own: use 'speculators-dflash'")
    tensors = blocks.written(head)
    notes = blocks.without_sequential(head, export, _NAME, tensors)
    if tensors.pop(embeddings.KEY, None) is not None:
        what = "borrows the target's embeddings, and this head has its own"
        notes += export.lose(_NAME, what, "use 'deepspec'")
    own = {"mask_token_id": head.mask, "target_layer_ids": tapping.ids(head.taps, "output", _NAME)}
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        **fitting.body(head.config, export.target, fitting.dtype_of(head)),
        "layer_types": ["full_attention"] * head.config.layers,
        "block_size": head.block,
        "num_target_layers": export.target.layers,
        "dflash_config": {**own, "shift_label": True} if head.anchored else own,
    }
    return Checkpoint(config, tensors), (*notes, *fitting.only_qwen3(head.config, _NAME))


DIALECT = Dialect(_NAME, detect, conventions, load, save)

"""DFlash and DSpark as DeepSpec writes them: every field at the top, embeddings and LM head in the file.

The pending token's place always guesses. Layers are numbered by outputs and rise; -1 names the embeddings, and the last
layer is forbidden.
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

_NAME = "deepspec"
_ANCHORS = 512  # blocks a text in its training; its readers ask for the field


def detect(c: Checkpoint) -> int:
    whole = embeddings.KEY in c.tensors and "lm_head.weight" in c.tensors
    if not blocks.backbone(c) or "d2t" in c.tensors or not whole:
        return 0
    named = c.option("architectures", default=[])
    return 1 + ("target_layer_ids" in c.config and any("DSpark" in str(name) for name in named))


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return blocks.conventions(c, target, "output", anchored=True)


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    return blocks.load(c, target, chosen)


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    head = fitting.expect(head, BlockHead, _NAME)
    numbers = tapping.ids(head.taps, "output", _NAME, embeddings=True)
    if numbers != sorted(set(numbers)) or numbers[-1] >= export.target.layers - 1:
        raise ValueError(
            f"{_NAME} takes rising layers below the last, {export.target.layers - 1}, and this head reads {numbers}: use "
            f"'speculators-dflash' or 'speculators-dspark'"
        )
    if head.vocabulary is not None:
        raise ValueError(f"{_NAME} has no reduced vocabulary, and this head has one: use 'speculators-dspark'")
    notes: Notes = ()
    if not head.anchored:
        what = "takes the pending token's place to guess, and its readers will take each guess for the one before"
        notes = export.lose(_NAME, what, "use 'dflash' or 'speculators-dflash'")
    config = {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        **fitting.body(head.config, export.target, fitting.dtype_of(head)),
        "layer_types": ["full_attention"] * head.config.layers,
        "block_size": head.block,
        "num_target_layers": export.target.layers,
        "num_anchors": _ANCHORS,
        "mask_token_id": head.mask,
        "target_layer_ids": numbers,
        **blocks.markov_fields(head),
        **({} if head.anchored else {"sample_from_anchor": False}),
    }
    return Checkpoint(config, blocks.whole(head, export.target)), (*notes, *fitting.only_qwen3(head.config, _NAME))


DIALECT = Dialect(_NAME, detect, conventions, load, save)

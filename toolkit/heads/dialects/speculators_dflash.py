"""DFlash heads in the layout of vLLM's speculators, with embeddings and LM head; its readers take the target's embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from toolkit.heads.block import BlockHead
from toolkit.heads.dialects import blocks, fitting, speculators, tapping, vocabulary
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_NAME = "speculators-dflash"


def detect(c: Checkpoint) -> int:
    return 0 if not blocks.backbone(c) or blocks.sequential(c) else 1 + speculators.says(c, "dflash")


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return blocks.conventions(c, target, "boundary", anchored=False)


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    return blocks.load(c, target, chosen)


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    head = fitting.expect(head, BlockHead, _NAME)
    notes = own_embeddings(head, export, _NAME)
    tensors, more = vocabulary.in_order(blocks.whole(head, export.target), "lm_head.weight")
    more += blocks.without_sequential(head, export, _NAME, tensors)
    dtype = fitting.dtype_of(head)
    config = speculators.config(
        "dflash", "DFlashSpeculator", head.config, dtype, export, guesses=head.horizon, **fields(head, _NAME)
    )
    return Checkpoint(config, tensors), (*notes, *more, *about(head, export))


def own_embeddings(head: BlockHead, export: Export, layout: str) -> Notes:
    """The note on embeddings that readers replace. Raises ValueError where that may not be."""
    if head.embed_tokens is None:
        return ()
    return export.lose(layout, "holds embeddings that its readers replace by the target's", "use 'deepspec'")


def fields(head: BlockHead, layout: str) -> dict[str, Any]:
    """The kind's own."""
    said = head.config.vocab if head.vocabulary is None else len(head.vocabulary.d2t)
    return {
        "draft_vocab_size": said,
        "target_hidden_size": head.width // len(head.taps),
        "block_size": head.block,
        "aux_hidden_state_layer_ids": tapping.ids(head.taps, "boundary", layout),
        "mask_token_id": head.mask,
        "sliding_window_non_causal": False,
        "sample_from_anchor": head.anchored,
    }


def about(head: BlockHead, export: Export) -> Notes:
    lacking = fitting.only_qwen3(head.config, "speculators")
    return *blocks.last_layer(head, export.target), *lacking, *speculators.unnamed(export)


DIALECT = Dialect(_NAME, detect, conventions, load, save)

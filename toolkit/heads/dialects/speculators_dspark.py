"""DSpark heads in the layout of vLLM's speculators: DFlash with a Markov head and a confidence head.

Older files call the Markov head logit_head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from toolkit.heads.block import BlockHead
from toolkit.heads.dialects import blocks, fitting, speculators, vocabulary
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.speculators_dflash import about, fields, own_embeddings
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_NAME = "speculators-dspark"


def detect(c: Checkpoint) -> int:
    c = _renamed(c)
    return 0 if not blocks.backbone(c) or not blocks.sequential(c) else 1 + speculators.says(c, "dspark")


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return blocks.conventions(_renamed(c), target, "boundary", anchored=True)


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    return blocks.load(_renamed(c), target, chosen)


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    head = fitting.expect(head, BlockHead, _NAME)
    if head.markov_head is None and head.confidence_head is None:
        raise ValueError(
            f"{_NAME} is for heads with a Markov or a confidence head, and this one has none: use 'speculators-dflash'"
        )
    notes = own_embeddings(head, export, _NAME)
    tensors, more = vocabulary.in_order(
        blocks.whole(head, export.target), "lm_head.weight", "markov_head.markov_w2.weight"
    )
    own = {**fields(head, _NAME), **blocks.markov_fields(head)}
    dtype = fitting.dtype_of(head)
    config = speculators.config("dspark", "DSparkSpeculator", head.config, dtype, export, guesses=head.horizon, **own)
    return Checkpoint(config, tensors), (*notes, *more, *about(head, export))


def _renamed(c: Checkpoint) -> Checkpoint:
    return c.renamed(
        lambda name: name.replace("logit_head.", "markov_head.", 1) if name.startswith("logit_head.") else name
    )


DIALECT = Dialect(_NAME, detect, conventions, load, save)

"""P-EAGLE heads in the layout of vLLM's speculators: an EAGLE-3 head with the feature of open pairs, mask_hidden [1, 1, F].

Pairs are counted from 0 in its training, unlike those of its EAGLE-3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torch import nn

from toolkit.heads.dialects import embeddings, fitting, pairs, speculators, vocabulary
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.speculators_eagle3 import fields
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes
from toolkit.heads.peagle import PEagleHead

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_NAME = "speculators-peagle"
_OPEN = "mask_hidden"


def detect(c: Checkpoint) -> int:
    return 0 if not pairs.wide(c) or _OPEN not in c.tensors else 1 + speculators.says(c, "peagle")


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return pairs.conventions(c, target, "boundary")


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    rest = replace(c, tensors={n: t for n, t in c.tensors.items() if n != _OPEN})
    inner, notes = pairs.load(rest, target, chosen)
    feature = c.need(_OPEN)
    if feature.shape != (1, 1, inner.width):
        raise ValueError(f"{c.where} holds {_OPEN!r} of shape {list(feature.shape)}, and {[1, 1, inner.width]} fits")
    head = PEagleHead(inner, mask=fitting.mask_of(c), depths=_depths(c))
    head.mask_hidden = nn.Parameter(feature.to(fitting.dtype_of(inner)))
    return head.eval(), notes


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    head = fitting.expect(head, PEagleHead, _NAME)
    inner, dtype = head.pairs, fitting.dtype_of(head.pairs)
    tensors, notes = vocabulary.in_order(pairs.written(inner), "lm_head.weight")
    tensors |= embeddings.written(inner, export.target, dtype, lean=export.lean) | {_OPEN: head.mask_hidden}
    own = {**fields(inner, _NAME), "mask_token_id": head.mask, "embed_requires_grad": True}
    config = speculators.config("peagle", "PEagleSpeculator", inner.config, dtype, export, guesses=head.horizon, **own)
    return Checkpoint(config, tensors), (*notes, *speculators.unnamed(export))


def _depths(c: Checkpoint) -> int:
    methods = c.option("speculators_config.proposal_methods", default=[])
    found = methods[0].get("speculative_tokens") if methods and isinstance(methods[0], dict) else None
    return found if isinstance(found, int) and found > 0 else 8


DIALECT = Dialect(_NAME, detect, conventions, load, save)

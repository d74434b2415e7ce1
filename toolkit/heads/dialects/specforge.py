"""The layout that SpecForge exports for SGLang: the official EAGLE-3 names, no embeddings, always both vocabulary tables.

Its export for Hugging Face holds embeddings as well. Taps are numbered by outputs of layers. SGLang fills what a file lacks with zeros and skips what it does not know, so a file
must hold exactly this. Its own norm_output means another thing than ours, and is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from toolkit.heads.dialects import embeddings, fitting, pairs, tapping, vocabulary
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes
from toolkit.heads.eagle3 import Eagle3Head

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_NAME = "specforge"
_ARCHITECTURE = "LlamaForCausalLMEagle3"


def detect(c: Checkpoint) -> int:
    return 1 + (_ARCHITECTURE in c.option("architectures", default=[])) if pairs.wide_midlayer(c) else 0


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return pairs.conventions(c.renamed(pairs.midlayer), target, "output", norm_output=False)


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    return pairs.load(c.renamed(pairs.midlayer), target, chosen)


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    head = fitting.expect(head, Eagle3Head, _NAME)
    pairs.refuse_layers(head, _NAME)
    if head.norm_output:
        raise ValueError(f"{_NAME} has no way to say that the normed state is handed on: use 'speculators-eagle3'")
    notes = pairs.lost(head, export, _NAME, "norm_before_residual")
    tensors, more = vocabulary.in_order(pairs.written(head), "lm_head.weight")
    if head.embed_tokens is not None:
        what = "holds no embeddings, and its readers will take the target's for this head's own"
        notes += export.lose(_NAME, what, "use 'eagle3' or 'speculators-eagle3'")
        del tensors[embeddings.KEY]
    if head.vocabulary is None:
        tensors["d2t"] = torch.zeros(export.target.vocab, dtype=torch.long)
        tensors["t2d"] = torch.ones(export.target.vocab, dtype=torch.bool)
    config = {
        "architectures": [_ARCHITECTURE],
        "model_type": "llama",
        **pairs.fields(head, export.target, fitting.dtype_of(head)),
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": tapping.ids(head.taps, "output", _NAME),
            "use_aux_hidden_state": True,
        },
    }
    return Checkpoint(config, pairs.renamed(tensors, pairs.to_midlayer)), (*notes, *more)


DIALECT = Dialect(_NAME, detect, conventions, load, save)

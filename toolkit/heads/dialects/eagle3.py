"""The layout of the official EAGLE-3 code: midlayer, both vocabulary tables, embeddings only where they are the head's own.

Its config is that of a plain Llama, so architectures and num_hidden_layers say nothing about the head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from toolkit.heads.dialects import fitting, pairs, tapping, vocabulary
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes
from toolkit.heads.eagle3 import Eagle3Head

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_NAME = "eagle3"


def detect(c: Checkpoint) -> int:
    if not pairs.wide_midlayer(c):
        return 0
    named = c.option("architectures", default=[])
    return 1 + (bool(named) and not any("Eagle3" in str(name) for name in named))


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return pairs.conventions(c.renamed(pairs.midlayer), target, "boundary")


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    head, notes = pairs.load(c.renamed(pairs.midlayer), target, chosen)
    if chosen.embeddings == "own" and c.option("target_hidden_size") is None:
        notes += (
            "the config does not set target_hidden_size, and then the official code passes over the file's embeddings, while "
            "vLLM reads them: if few guesses are accepted, load with embeddings='target'",
        )
    return head, notes


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    head = fitting.expect(head, Eagle3Head, _NAME)
    pairs.refuse_layers(head, _NAME)
    lost = pairs.lost(head, export, _NAME, "norm_before_residual", "norm_output")
    tensors, sorted_ = vocabulary.in_order(pairs.written(head), "lm_head.weight")
    taps = {"eagle_aux_hidden_state_layer_ids": tapping.ids(head.taps, "boundary", _NAME), "use_aux_hidden_state": True}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **pairs.fields(head, export.target, fitting.dtype_of(head)),
        "eagle_config": taps,
    }
    if head.embed_tokens is not None:  # its code reads a head's embeddings where this field is set
        config["target_hidden_size"] = head.width // len(head.taps)
    return Checkpoint(config, pairs.renamed(tensors, pairs.to_midlayer)), (*lost, *sorted_)


DIALECT = Dialect(_NAME, detect, conventions, load, save)

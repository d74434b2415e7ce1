"""The layout that NVIDIA's ModelOpt exports: layers.0 instead of midlayer, and d2t without t2d, in order of frequency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from toolkit.heads.dialects import fitting, pairs, tapping
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes
from toolkit.heads.eagle3 import Eagle3Head

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_NAME = "modelopt"
_STRUCTURE: dict[str, Any] = {  # what its files say of a head like ours; another one is another network
    "use_aux_hidden_state": True,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "next_layer_regular": True,
    "parallel_draft_step": 1,
}


def detect(c: Checkpoint) -> int:
    if not pairs.wide(c) or "t2d" in c.tensors or "mask_hidden" in c.tensors:
        return 0
    return 1 + (c.option("eagle_config") is not None and c.option("speculators_model_type") is None)


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return pairs.conventions(c, target, "output")


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    for name, wanted in _STRUCTURE.items():
        if (found := c.option(f"eagle_config.{name}", default=wanted)) != wanted:
            raise ValueError(f"{c.where} says {name}={found!r} in its eagle_config, and only {wanted!r} is read")
    head, notes = pairs.load(c, target, chosen)
    if c.option("norm_before_residual", "eagle_config.norm_before_residual") is None:
        notes += (
            f"the config does not say norm_before_residual, and {chosen.norm_before_residual} is read; converters of this "
            f"layout write true: if few guesses are accepted, load with the other",
        )
    return head, notes


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    head = fitting.expect(head, Eagle3Head, _NAME)
    if head.config.qk_norm:
        raise ValueError(f"{_NAME} has no norms on queries and keys, and this head has them: use 'speculators-eagle3'")
    notes = pairs.lost(head, export, _NAME, "norm_before_residual", "norm_output")
    tensors = {name: t for name, t in pairs.written(head).items() if name != "t2d"}
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "norm_before_residual": False,
        **pairs.fields(head, export.target, fitting.dtype_of(head)),
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": tapping.ids(head.taps, "output", _NAME),
            **_STRUCTURE,
            "norm_before_fc": head.input_norm is not None,
        },
    }
    return Checkpoint(config, tensors), notes


DIALECT = Dialect(_NAME, detect, conventions, load, save)

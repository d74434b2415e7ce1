"""Multi-token prediction in the layout of vLLM's speculators: one layer, mtp_layers.0, with everything inside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from toolkit.heads.dialects import fitting, mtp, speculators
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes
from toolkit.heads.mtp import MTPHead

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_NAME = "speculators-mtp"
_LAYER = "mtp_layers.0."
_OUTSIDE = ("input_proj.", "hidden_layernorm.", "token_layernorm.", "final_layernorm.")
_GUESSES = 3  # a step, unless a server is told otherwise


def detect(c: Checkpoint) -> int:
    return 1 + speculators.says(c, "mtp") if f"{_LAYER}input_proj.weight" in c.tensors else 0


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return mtp.conventions(c, target)


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    return mtp.loaded(c.renamed(_ours), target, chosen)


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    tensors, notes = mtp.written(head, export, _NAME)
    head = fitting.expect(head, MTPHead, _NAME)
    if head.config.layers != 1:
        raise ValueError(f"{_NAME} holds one layer, and this head has {head.config.layers}: use 'mtp'")
    named = {_LAYER + name.removeprefix("layers.0."): tensor for name, tensor in tensors.items()}
    dtype = fitting.dtype_of(head)
    own = {"num_nextn_predict_layers": 1}
    config = speculators.config("mtp", "MTPDraftModel", head.config, dtype, export, guesses=_GUESSES, **own)
    more = (*fitting.only_qwen3(head.config, _NAME), *speculators.unnamed(export))
    return Checkpoint(config, named), (*notes, *more)


def _ours(name: str) -> str:
    if not name.startswith(_LAYER):
        return name
    inside = name.removeprefix(_LAYER)
    return inside if inside.startswith(_OUTSIDE) else "layers.0." + inside


DIALECT = Dialect(_NAME, detect, conventions, load, save)

"""A small language model put together from a few layers of its own and what it borrows from its target."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from transformers import PreTrainedModel

from toolkit.models.early_exit import shortened
from toolkit.models.hf import HFModel


def assembled(target: HFModel, layers: int, tensors: Mapping[str, Tensor]) -> HFModel:
    """An LM of the target's kind with `layers` layers, whose body holds `tensors`, named as in the target's body. Embeddings
    and LM head are the target's own modules. Raises ValueError for tensors that do not fit."""
    kind: type[PreTrainedModel] = type(target.model)
    model = kind(shortened(target.model.config, layers))
    nn.Module.to(model, dtype=target.dtype)
    model.set_input_embeddings(target.model.get_input_embeddings())
    model.set_output_embeddings(target.model.get_output_embeddings())
    body = model.base_model
    missing, odd = body.load_state_dict({name: t.to(target.dtype) for name, t in tensors.items()}, strict=False)
    if lacking := [name for name in missing if not name.startswith("embed_tokens")]:
        raise ValueError(f"{target.name} with {layers} layers needs the tensor {lacking[0]!r}: the file is incomplete")
    if odd:
        raise ValueError(f"{target.name} with {layers} layers has no place for the tensor {odd[0]!r}")
    nn.Module.to(model, device=target.device)
    return HFModel(model)

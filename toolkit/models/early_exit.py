"""A model's own first layers as a smaller model: the same embeddings, norm and LM head, shared and not copied.

LayerSkip (Elhoushi et al. 2024, section 4.3) and Draft & Verify (Zhang et al. 2023). A model not trained for early exit
gives modest guesses; whatever it guesses, verification keeps the output the target's own.
"""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn
from transformers import PreTrainedConfig

from toolkit.models.hf import HFModel

M = TypeVar("M", bound=nn.Module)


def first_layers(lm: HFModel, layers: int) -> HFModel:
    """An `HFModel` of the first `layers` layers of `lm`. It shares all weights and costs no memory.

    Raises ValueError unless 1 <= layers < the model's number of layers.
    """
    if not 1 <= layers < lm.layers:
        raise ValueError(f"an early exit needs 1 to {lm.layers - 1} of the {lm.layers} layers; got {layers}")
    model = _twig(lm.model, lm.decoder, nn.ModuleList(list(lm.decoder)[:layers]))
    config = shortened(lm.model.config, layers)
    text = config.get_text_config()
    shared = set(lm.model.modules())
    for module in model.modules():  # the copies on the way to the layers, never a module of the model itself
        if module not in shared and isinstance(getattr(module, "config", None), type(text)):
            module.__dict__["config"] = text
    model.__dict__["config"] = config
    made = HFModel(model)
    made.part_of = lm.part_of or lm
    return made


def shortened(config: PreTrainedConfig, layers: int) -> PreTrainedConfig:
    """A copy of a model's configuration that says so many layers."""
    config = copy.deepcopy(config)
    text = config.get_text_config()
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]
    return config


def _twig(module: M, old: nn.Module, new: nn.Module) -> M:
    """A copy of `module` in which `old` is replaced by `new`. Modules on the way to it are copied, all others shared."""
    if old not in set(module.modules()):
        return module
    twig = copy.copy(module)
    twig._modules = {
        name: new if child is old else _twig(child, old, new) if child is not None else None
        for name, child in module._modules.items()
    }
    return twig

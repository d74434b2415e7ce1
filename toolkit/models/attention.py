"""An attention function of our own for transformers' models, under the name `specdec`.

transformers' `sdpa` path copies keys and values to every query head whenever a mask is given; `grouped` does not.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from toolkit.models.grouped import grouped_attention

NAME = "specdec"


@contextmanager
def our_attention(configs: Sequence[PreTrainedConfig]) -> Generator[None]:
    """While open, the models that read these configurations attend through `grouped_attention`; what they had is put
    back at the end. No configurations: nothing changes."""
    before = [config._attn_implementation for config in configs]
    for config in configs:
        config._attn_implementation = NAME
    try:
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation = name


def attention_configs(model: PreTrainedModel) -> tuple[PreTrainedConfig, ...]:
    """Every configuration that a module of `model` may look its attention function up in; none for models that keep
    to functions of their own."""
    if not getattr(model, "_supports_attention_backend", False):
        return ()
    found = [config for m in model.modules() if isinstance(config := getattr(m, "config", None), PreTrainedConfig)]
    return tuple({id(config): config for config in found}.values())


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)

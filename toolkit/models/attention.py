"""An attention function of our own for transformers' models, under the name `specdec`.

transformers' `sdpa` path copies keys and values to every query head whenever a mask is given; `grouped` does not.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import eager_mask

from toolkit.models.grouped import grouped_attention

NAME = "specdec"
# Passes that are under way, and what the configuration said before, by the identity of the configuration. Several threads may
# read one model: a run in the background, and the next cell.
_UNDER_WAY: dict[int, tuple[int, str | None]] = {}
_LOCK = threading.Lock()


@contextmanager
def our_attention(configs: Sequence[PreTrainedConfig]) -> Generator[None]:
    """While open, the models that read these configurations attend through `grouped_attention`; what they had is put
    back when the last of those that are open ends. No configurations: nothing changes."""
    with _LOCK:
        for config in configs:
            passes, before = _UNDER_WAY.get(id(config), (0, config._attn_implementation))
            _UNDER_WAY[id(config)] = passes + 1, before
            if not passes:
                config._attn_implementation = NAME
    try:
        yield
    finally:
        with _LOCK:
            for config in configs:
                passes, before = _UNDER_WAY.pop(id(config))
                if passes > 1:
                    _UNDER_WAY[id(config)] = passes - 1, before
                else:
                    config._attn_implementation = before


def attention_configs(model: PreTrainedModel) -> tuple[PreTrainedConfig, ...]:
    """Every configuration that a module of `model` may look its attention function up in; none for models that keep
    to functions of their own."""
    if not getattr(model, "_supports_attention_backend", False):
        return ()
    found = [config for m in model.modules() if isinstance(config := getattr(m, "config", None), PreTrainedConfig)]
    return tuple({id(config): config for config in found}.values())


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, eager_mask)  # sums and fused kernels both take it, whatever attends in the end

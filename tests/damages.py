"""Damages of an EAGLE-3 checkpoint, each one of the known misreadings; and a target turned around.

The official layout keeps taps in eagle_config and the layers' fields at the top, vLLM's speculators do it the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from toolkit.heads.dialects import Checkpoint
from toolkit.models.hf import HFModel

TAPS, LAYERS = "eagle_aux_hidden_state_layer_ids", "transformer_layer_config"


def changed(c: Checkpoint, tensors: dict[str, Tensor | None] | None = None, **config: object) -> Checkpoint:
    """With other tensors, None for one taken out, and other fields."""
    kept = {n: t for n, t in {**c.tensors, **(tensors or {})}.items() if t is not None}
    return replace(c, tensors=kept, config={**c.config, **config})


def taps_of(c: Checkpoint) -> list[int]:
    return list(c.config.get("eagle_config", c.config)[TAPS])


def with_taps(c: Checkpoint, taps: list[int]) -> Checkpoint:
    return changed(c, eagle_config={TAPS: taps}) if "eagle_config" in c.config else changed(c, **{TAPS: taps})


def layer_field(c: Checkpoint, name: str) -> Any:
    return c.config.get(LAYERS, c.config)[name]


def with_layer_fields(c: Checkpoint, **fields: object) -> Checkpoint:
    return changed(c, **{LAYERS: {**c.config[LAYERS], **fields}}) if LAYERS in c.config else changed(c, **fields)


def turned(c: Checkpoint, switch: str) -> Checkpoint:
    return changed(c, **{switch: not c.config.get(switch, False)})


def taps_the_other_way(c: Checkpoint) -> Checkpoint:
    return with_taps(c, [i - 1 for i in taps_of(c)])


def other_taps(c: Checkpoint) -> Checkpoint:
    first, *_ = taps_of(c)
    return with_taps(c, [first, first + 1, first + 2])


def norm_before_residual(c: Checkpoint) -> Checkpoint:
    return turned(c, "norm_before_residual")


def norm_output(c: Checkpoint) -> Checkpoint:
    return turned(c, "norm_output")


def norms_that_are_not_there(c: Checkpoint) -> Checkpoint:
    return turned(c, "norm_before_fc" if "fc_norm.0.weight" in c.tensors else "fc_norm")


def table_in_another_order(c: Checkpoint) -> Checkpoint:
    """Offsets that name tokens as well, so that nothing but the guesses tells."""
    n = torch.arange(len(c.tensors["d2t"]))
    return changed(c, {"d2t": (c.tensors["d2t"] + n).flip(0) - n, "t2d": None})


def table_of_ids(c: Checkpoint) -> Checkpoint:
    return changed(c, {"d2t": c.tensors["d2t"] + torch.arange(len(c.tensors["d2t"]))})


def table_never_filled(c: Checkpoint) -> Checkpoint:
    return changed(c, {"d2t": torch.zeros_like(c.tensors["d2t"])})


def embeddings_of_noise(c: Checkpoint) -> Checkpoint:
    torch.manual_seed(5)
    return changed(c, {"embed_tokens.weight": torch.randn(layer_field(c, "vocab_size"), layer_field(c, "hidden_size"))})


def lm_head_of_noise(c: Checkpoint) -> Checkpoint:
    torch.manual_seed(5)
    rows = c.tensors["lm_head.weight"]
    return changed(c, {"lm_head.weight": torch.randn(rows.shape).to(rows.dtype) * rows.float().std().to(rows.dtype)})


def rotary_base(c: Checkpoint) -> Checkpoint:
    return with_layer_fields(c, rope_theta=2.0, rope_parameters={"rope_type": "default", "rope_theta": 2.0})


def half(c: Checkpoint) -> Checkpoint:
    """Larger features, which the first norm takes back where the residual path starts behind it."""
    made = {n: t.half() if t.is_floating_point() else t for n, t in c.tensors.items()}
    fc = c.tensors["fc.weight"].float()
    return replace(c, tensors={**made, "fc.weight": (fc * 6e4 / fc.abs().max()).half()})


def padded(c: Checkpoint) -> Checkpoint:
    old = c.tensors["t2d"]
    wide = torch.zeros(len(old) + 8, dtype=torch.bool)
    wide[: len(old)] = old
    return changed(c, {"t2d": wide})


def layers_that_are_not_there(c: Checkpoint) -> Checkpoint:
    return with_layer_fields(c, num_hidden_layers=3)


def wrapped(c: Checkpoint) -> Checkpoint:
    return replace(c, tensors={f"trainer.net.{name}": t for name, t in c.tensors.items()})


def wrapped_as_known(c: Checkpoint) -> Checkpoint:
    return replace(c, tensors={f"draft_model.{name}": t for name, t in c.tensors.items()})


def two_taps_named(c: Checkpoint) -> Checkpoint:
    return with_taps(c, [2, 5])


DAMAGES: dict[str, tuple[int, Callable[[Checkpoint], Checkpoint]]] = {
    "taps counted the other way": (1, taps_the_other_way),
    "other taps": (1, other_taps),
    "norm_before_residual": (4, norm_before_residual),
    "norm_output": (5, norm_output),
    "norms that are not there": (6, norms_that_are_not_there),
    "a table in another order": (7, table_in_another_order),
    "a table never filled": (7, table_never_filled),
    "embeddings of noise": (8, embeddings_of_noise),
    "an LM head of noise": (9, lm_head_of_noise),
    "the rotary base": (11, rotary_base),
    "padded tables": (16, padded),
    "layers that are not there": (17, layers_that_are_not_there),
    "names with a prefix": (18, wrapped),
    "names with a known prefix": (18, wrapped_as_known),
    "two taps named, weights for three": (19, two_taps_named),
}
"""What any EAGLE-3 head that hands on its state without a norm can suffer from, by the number of the trap."""


def rotated(lm: HFModel) -> HFModel:
    """The same function of tokens, its hidden states turned by a random rotation as quantizers do it (QuaRot, section 3)."""
    config = lm.config
    config = type(config).from_dict({**config.to_dict(), "tie_word_embeddings": False})
    model = LlamaForCausalLM(config).to(lm.dtype).eval()
    model.load_state_dict({**lm.model.state_dict(), "lm_head.weight": lm.unembedding.weight.detach().clone()})
    size, generator = config.hidden_size, torch.Generator().manual_seed(1)
    turn = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator))[0].to(lm.dtype)
    body = model.model
    model.lm_head.weight.data = model.lm_head.weight.data * body.norm.weight.data @ turn
    body.embed_tokens.weight.data = body.embed_tokens.weight.data @ turn
    for layer in body.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for norm, into in (
            (layer.input_layernorm, (attention.q_proj, attention.k_proj, attention.v_proj)),
            (layer.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj)),
        ):
            for linear in into:
                linear.weight.data = linear.weight.data * norm.weight.data @ turn
            norm.weight.data = torch.ones_like(norm.weight)
        for linear in (attention.o_proj, mlp.down_proj):
            linear.weight.data = turn.T @ linear.weight.data
    body.norm.weight.data = torch.ones_like(body.norm.weight)
    return HFModel(model)

"""The layout of EAGLE-1 and EAGLE-2, which have the same weights. Forks differ in biases and in whether they hold embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from toolkit.heads.config import Borrowed
from toolkit.heads.dialects import embeddings, fitting
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes
from toolkit.heads.eagle import EagleHead

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_NAME = "eagle1"


def detect(c: Checkpoint) -> int:
    """A first layer over the fused pair alone, and no norm before it or at the end."""
    fc, queries = c.shape("fc.weight"), c.shape("layers.0.self_attn.q_proj.weight")
    joined = len(fc) == len(queries) == 2 and fc[1] == 2 * fc[0] and queries[1] == fc[0]
    others = ("norm.weight", "layers.0.input_layernorm.weight", "lm_head.weight", "hidden_norm.weight")
    if not joined or any(name in c.tensors for name in others):
        return 0
    return 1 + ("hidden_size" in c.config and "speculators_model_type" not in c.config)


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return Conventions(
        taps=("final",), embeddings=embeddings.whose(c, target), first=0, rope_theta=fitting.rope_theta(c, target)
    )


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    config = fitting.sizes(c, target, chosen, layers=fitting.layers_in(c))
    if config.hidden != int(target.config.hidden_size):
        raise ValueError(
            f"{c.where} reads states of width {config.hidden}, and the target's have {target.config.hidden_size}: it was made "
            f"for another target"
        )
    notes = (*fitting.about_layers(c), *embeddings.chosen(c, target, chosen, config.hidden))
    own = chosen.embeddings == "own"
    tensors = {n: t for n, t in c.tensors.items() if own or n != embeddings.KEY}

    def make() -> EagleHead:
        return EagleHead(config, Borrowed.of(target), bias="fc.bias" in tensors, own_embeddings=own)

    head = fitting.filled(make, tensors, c.where)
    head.taps = fitting.one_tap(chosen, target)
    return head, notes


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    head = fitting.expect(head, EagleHead, _NAME)
    if head.config.qk_norm:
        raise ValueError(f"{_NAME} has no norms on queries and keys, and this head has them")
    notes = fitting.lost_tap(head.taps, export, _NAME)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **fitting.body(head.config, export.target, fitting.dtype_of(head)),
        "bias": head.fc.bias is not None,
        "qkv_bias": head.config.qkv_bias,
    }
    return Checkpoint(config, head.state_dict()), notes


DIALECT = Dialect(_NAME, detect, conventions, load, save)

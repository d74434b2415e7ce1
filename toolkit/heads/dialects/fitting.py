"""From tensors to a head: sizes are read off the tensors, and every tensor must find its place.

Configs are asked only for what no tensor shows: how heads divide a projection, epsilon, rotary base.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from toolkit.heads.config import HeadConfig
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Export, Notes
from toolkit.protocols import Tap

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

Head = TypeVar("Head", bound=nn.Module)
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_BODY = "transformer_layer_config."


def body_option(c: Checkpoint, name: str, default: Any = None) -> Any:
    """A field about the layers, nested as vLLM's speculators do it or not."""
    return c.option(_BODY + name, name, default=default)


def number(c: Checkpoint, name: str, default: float) -> float:
    """Raises ValueError for a field about the layers that is no number."""
    found = body_option(c, name, default)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(f"{c.where} says {name}={found!r} in its config, which is no number: correct it")
    return found


def rope_theta(c: Checkpoint, target: HFModel) -> float:
    """The rotary base: the config's, that of a config which leaves it out, or, without a config, the target's."""
    silent = 10_000.0 if body_option(c, "hidden_size") else HeadConfig.of(target).rope_theta
    return float(number(c, "rope_parameters.rope_theta", number(c, "rope_theta", silent)))


def sizes(c: Checkpoint, target: HFModel, conventions: Conventions, *, layers: int) -> HeadConfig:
    """Of a head whose first layer's tensors are named layers.0. Raises ValueError where they make no whole heads."""
    layer = "layers.0."
    q, k, o = (len(c.need(f"{layer}self_attn.{x}_proj.weight")) for x in "qko")
    norm = c.shape(f"{layer}self_attn.q_norm.weight")
    heads = int(number(c, "num_attention_heads", 0))
    size = norm[0] if norm else int(number(c, "head_dim", 0))
    if not norm and heads and (not size or (size * heads != q and q % heads == 0)):
        size = q // heads
    size = size or HeadConfig.of(target).head_dim
    if q % size or k % size:
        raise ValueError(
            f"{c.where} has {q} rows of queries and {k} of keys, which are no whole heads of size {size}: correct head_dim or "
            f"num_attention_heads in its config"
        )
    return HeadConfig(
        vocab=target.vocab,
        hidden=o,
        intermediate=len(c.need(f"{layer}mlp.gate_proj.weight")),
        heads=q // size,
        kv_heads=k // size,
        head_dim=size,
        eps=float(number(c, "rms_norm_eps", HeadConfig.of(target).eps)),
        rope_theta=HeadConfig.of(target).rope_theta if conventions.rope_theta is None else conventions.rope_theta,
        layers=layers,
        qkv_bias=f"{layer}self_attn.q_proj.bias" in c.tensors,
        o_bias=f"{layer}self_attn.o_proj.bias" in c.tensors,
        mlp_bias=f"{layer}mlp.gate_proj.bias" in c.tensors,
        qk_norm=bool(norm),
        first=conventions.first or 0,
    )


def layers_in(c: Checkpoint) -> int:
    """How many layers there are tensors of, whatever the config says. Raises ValueError for a gap."""
    found = {int(m[1]) for name in c.tensors if (m := re.match(r"layers\.(\d+)\.", name))}
    if found != set(range(len(found))):
        raise ValueError(f"{c.where} has the layers {sorted(found)}, with a gap: a part of it is missing")
    return len(found)


def filled(make: Callable[[], Head], tensors: Mapping[str, Tensor], where: str) -> Head:
    """The head that `make` makes, with exactly these tensors as its state, in one dtype that holds them all. Raises
    ValueError for a tensor that is missing, has another shape or has no place, and for quantized ones."""
    if odd := next((n for n, t in tensors.items() if t.dtype not in _DTYPES), None):
        kind = str(tensors[odd].dtype).removeprefix("torch.")
        raise ValueError(f"{where} holds {odd!r} as {kind}: quantized heads are not read, convert them to bfloat16")
    with torch.device("meta"):  # nothing is drawn at random only to be replaced
        head = make()
    own = head.state_dict()
    made = {name: t for name, t in own.items() if not t.is_meta}  # tables that were made from the tokens
    if missing := sorted(own.keys() - made.keys() - tensors.keys()):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(f"{where} lacks {missing[0]!r}{more}: it is incomplete, or of another layout")
    if odd := sorted(tensors.keys() - own.keys()):
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        raise ValueError(
            f"{where} holds {odd[0]!r}{more}, which this kind of head has no place for: it is of another layout"
        )
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise ValueError(f"{where} holds {name!r} of shape {list(tensor.shape)}, and {list(own[name].shape)} fits")
    dtype = torch.float16 if all(t.dtype == torch.float16 for t in tensors.values()) else torch.bfloat16
    for tensor in tensors.values():
        dtype = tensor.dtype if dtype == tensor.dtype else torch.promote_types(dtype, tensor.dtype)
    own_memory = {name: t.to(dtype, copy=True) for name, t in tensors.items()}  # aligned, so that it computes as before
    head.load_state_dict(made | own_memory, assign=True)
    return head.eval()


def about_layers(c: Checkpoint) -> Notes:
    """What a config says of the layers that is not so, or is not done here."""
    notes = []
    said, found = body_option(c, "num_hidden_layers"), layers_in(c)
    if said is not None and said != found:
        notes.append(f"the config says {said} layers, and there are tensors of {found}: the tensors are believed")
    scaling = body_option(c, "rope_parameters") or body_option(c, "rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default")) if isinstance(scaling, Mapping) else "default"
    if kind not in ("default", None):
        notes.append(
            f"the config asks for {kind} rotary scaling, which heads are seldom trained with and exporters add: positions are "
            f"read unscaled"
        )
    if any(t.dtype == torch.float16 for t in c.tensors.values()):
        notes.append(
            "the weights are float16, which overflows with some targets: load with dtype=torch.bfloat16 if it does"
        )
    return tuple(notes)


def body(config: HeadConfig, target: HFModel, dtype: torch.dtype) -> dict[str, Any]:
    """The fields about the layers, as transformers' own configs name them."""
    return {
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "vocab_size": config.vocab,
        "max_position_embeddings": target.limit,
        "rms_norm_eps": config.eps,
        "rope_theta": config.rope_theta,
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": False,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }


def expect(head: nn.Module, kind: type[Head], layout: str) -> Head:
    """The head, if it is of this very kind. Raises ValueError for another one."""
    if type(head) is not kind:
        raise ValueError(f"the layout {layout!r} holds a {kind.__name__}, and this is a {type(head).__name__}")
    return head  # pyrefly: ignore


def dtype_of(head: nn.Module) -> torch.dtype:
    return next(head.parameters()).dtype


def only_qwen3(config: HeadConfig, layout: str) -> Notes:
    """The note on layers that readers of a layout for Qwen3's alone cannot hold."""
    if config.qk_norm:
        return ()
    return (
        f"readers of {layout} know Qwen3's layers alone, which have norms on queries and keys: this head's have none",
    )


def one_tap(chosen: Conventions, target: HFModel) -> tuple[Tap, ...]:
    """The tap of a head that reads one. Raises ValueError for several, and for one that does not exist."""
    taps = chosen.taps or ()
    if len(taps) != 1 or (taps[0] != "final" and not 0 <= taps[0] <= target.layers):
        raise ValueError(f"this head reads one tap, 0 (embeddings) to {target.layers} or 'final'; got {taps}")
    return taps


def lost_tap(taps: tuple[Tap, ...], export: Export, layout: str) -> Notes:
    """The note on a tap other than the one a layout takes for granted."""
    if taps == ("final",):
        return ()
    return export.lose(
        layout,
        f"cannot say that the head reads tap {taps[0]}, and its readers use the last norm's output",
        "use the 'final' tap",
    )


def mask_of(c: Checkpoint) -> int:
    """The id of the token in open places. Raises ValueError where the config names none."""
    found = c.option("mask_token_id", "dflash_config.mask_token_id")
    if not isinstance(found, int):
        raise ValueError(f"{c.where} names no mask_token_id in its config: add the id of the token it was trained with")
    return found

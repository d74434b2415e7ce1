"""Medusa heads in vLLM's layout: an LM head a head or one for all, and a token_map where they say a part of the vocabulary."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from toolkit.heads.dialects import fitting, medusa
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes
from toolkit.heads.medusa import MedusaHead

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_NAME = "medusa-vllm"
_THEIRS = re.compile(r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)")
_MAP = "token_map"


def detect(c: Checkpoint) -> int:
    if not any(_THEIRS.fullmatch(name) or name == "lm_heads.0.weight" for name in c.tensors):
        return 0
    return 1 + ("num_heads" in c.config)


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return medusa.conventions(c, target)


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    c = c.renamed(lambda name: f"blocks.{m[1]}.{m[2]}.linear.{m[3]}" if (m := _THEIRS.fullmatch(name)) else name)
    tensors, tokens = dict(c.tensors), c.tensors.get(_MAP)
    tensors.pop(_MAP, None)
    if "lm_heads.0.weight" in tensors and c.option(
        "original_lm_head", default=False
    ):  # one for all, under the first head's name
        heads = 1 + max((int(m[1]) for name in tensors if (m := re.match(r"blocks\.(\d+)\.", name))), default=0)
        shared, theirs = tensors.pop("lm_heads.0.weight"), target.unembedding.weight.detach().cpu()
        if shared.dtype != theirs.dtype or not torch.equal(shared, theirs):
            tensors |= {f"lm_heads.{h}.weight": shared for h in range(heads)}
    if tokens is not None:  # an LM head may come whole, and is cut to the tokens by its reader
        tensors |= {
            name: t[tokens] for name, t in tensors.items() if name.startswith("lm_heads.") and len(t) > len(tokens)
        }
        if len(tokens) == target.vocab and bool((tokens.diff() == 1).all()):
            tokens = None
    return medusa.loaded(replace(c, tensors=tensors), target, chosen, tokens), ()


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    head = fitting.expect(head, MedusaHead, _NAME)
    notes = fitting.lost_tap(head.taps, export, _NAME)
    tensors = {_theirs(n): t for n, t in head.state_dict().items() if not n.startswith("vocabulary.")}
    said, vocabulary = head.config.vocab, head.vocabulary
    if vocabulary is not None:
        said, tensors[_MAP] = len(vocabulary.d2t), vocabulary.tokens
    if not head.own:
        dtype = fitting.dtype_of(head) if any(True for _ in head.parameters()) else export.target.dtype
        rows: Tensor = export.target.unembedding.weight.detach()
        tensors["lm_heads.0.weight"] = rows.to(dtype)
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": head.config.hidden,
        "vocab_size": head.config.vocab,
        "truncated_vocab_size": said,
        "num_heads": head.horizon,
        "num_hidden_layers": len(head.blocks[0]),  # pyrefly: ignore
        "original_lm_head": not head.own,
        "medusa_fc_bias": any(name.endswith(".bias") for name in tensors),
    }
    return Checkpoint(config, tensors), notes


def _theirs(name: str) -> str:
    return re.sub(r"^blocks\.(\d+)\.(\d+)\.linear\.", r"blocks.\1.layers.\2.", name)


DIALECT = Dialect(_NAME, detect, conventions, load, save)

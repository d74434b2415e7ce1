"""Medusa heads under the names of its authors, in the two containers there are: medusa_lm_head.pt, and safetensors.

{head}.{block}.linear are the blocks, {head}.{number of blocks}.weight an LM head of a head's own, which newer heads share with
the target. Configs are known to state fewer heads than there are, so heads are counted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torch import Tensor, nn

from toolkit.heads.config import Borrowed, HeadConfig
from toolkit.heads.dialects import fitting
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes
from toolkit.heads.medusa import MedusaHead

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)")
_OWN = re.compile(r"(\d+)\.(\d+)\.weight")
_PICKLED, _SAFE = "medusa_lm_head.pt", "medusa_lm_head.safetensors"


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return Conventions(taps=("final",))


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    named = c.renamed(_ours)
    head = loaded(named, target, chosen)
    said = c.option("medusa_num_heads")
    if said is None or said == head.horizon:
        return head, ()
    return head, (f"the config says {said} heads, and there are tensors of {head.horizon}: the tensors are believed",)


def loaded(c: Checkpoint, target: HFModel, chosen: Conventions, tokens: Tensor | None = None) -> MedusaHead:
    """A head from tensors that bear our names. Raises ValueError for what does not fit."""
    found = [re.fullmatch(r"blocks\.(\d+)\.(\d+)\.linear\.weight", name) for name in c.tensors]
    places = {(int(m[1]), int(m[2])) for m in found if m}
    own = {int(m[1]) for name in c.tensors if (m := re.fullmatch(r"lm_heads\.(\d+)\.weight", name))}
    heads = 1 + max([h for h, _ in places] + list(own), default=-1)
    layers = 1 + max([layer for _, layer in places], default=-1)

    def make() -> MedusaHead:
        return MedusaHead(
            HeadConfig.of(target),
            Borrowed.of(target),
            heads=heads,
            layers=layers,
            own_lm_heads=bool(own),
            tokens=tokens,
            bias="blocks.0.0.linear.bias" in c.tensors,
        )

    head = fitting.filled(make, c.tensors, c.where)
    head.taps = fitting.one_tap(chosen, target)
    return head


def _ours(name: str) -> str:
    if m := _BLOCK.fullmatch(name):
        return f"blocks.{m[1]}.{m[2]}.linear.{m[3]}"
    return f"lm_heads.{m[1]}.weight" if (m := _OWN.fullmatch(name)) else name


def _written(head: nn.Module, export: Export, layout: str, file: str) -> tuple[Checkpoint, Notes]:
    head = fitting.expect(head, MedusaHead, layout)
    notes = fitting.lost_tap(head.taps, export, layout)
    if head.vocabulary is not None:
        raise ValueError(f"{layout} has no reduced vocabulary, and this head has one: use 'medusa-vllm'")
    tensors = {}
    layers = len(head.blocks[0])  # pyrefly: ignore
    for name, tensor in head.state_dict().items():
        part, h, *rest = name.split(".")
        tensors[f"{h}.{'.'.join(rest) if part == 'blocks' else f'{layers}.weight'}"] = tensor
    config = {
        "medusa_num_heads": head.horizon,
        "medusa_num_layers": layers,
        "base_model_name_or_path": export.verifier,
        "version": "2",
    }
    return Checkpoint(config, tensors, file), notes


def _fits(c: Checkpoint) -> bool:
    return any(_BLOCK.fullmatch(name) or _OWN.fullmatch(name) for name in c.tensors)


def _detect_pickled(c: Checkpoint) -> int:
    return (1 + (not c.file.endswith(".safetensors"))) * _fits(c)


def _detect_safe(c: Checkpoint) -> int:
    return (1 + c.file.endswith(".safetensors")) * _fits(c)


def _save_pickled(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    return _written(head, export, PICKLED.name, _PICKLED)


def _save_safe(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    return _written(head, export, SAFE.name, _SAFE)


PICKLED = Dialect("medusa-pt", _detect_pickled, conventions, load, _save_pickled)
SAFE = Dialect("medusa", _detect_safe, conventions, load, _save_safe)

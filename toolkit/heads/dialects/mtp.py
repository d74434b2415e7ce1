"""Multi-token prediction as targets ship it: the tensors mtp.* among the target's own. Writing one gives that slice alone.

Also what the layout of vLLM's speculators shares with it: both are one layer under other names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from toolkit.heads.config import Borrowed
from toolkit.heads.dialects import fitting
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Dialect, Export, Notes
from toolkit.heads.mtp import MTPHead

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_NAME = "mtp"
_OURS = {
    "mtp.fc.": "input_proj.",
    "mtp.pre_fc_norm_hidden.": "hidden_layernorm.",
    "mtp.pre_fc_norm_embedding.": "token_layernorm.",
    "mtp.norm.": "final_layernorm.",
    "mtp.layers.": "layers.",
}
_OFFSET_NORMS = ("qwen3_next", "qwen3_5")  # their norms multiply by 1 + weight


def detect(c: Checkpoint) -> int:
    return 2 if {"mtp.fc.weight", "mtp.layers.0.self_attn.q_proj.weight"} <= c.tensors.keys() else 0


def conventions(c: Checkpoint, target: HFModel) -> Conventions:
    return Conventions(taps=("final",), first=0, rope_theta=fitting.rope_theta(c, target), norm_output=True)


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[nn.Module, Notes]:
    return loaded(c.renamed(_ours), target, chosen)


def loaded(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[MTPHead, Notes]:
    """A head from tensors that bear our names. Raises ValueError for what does not fit."""
    kind = str(fitting.body_option(c, "model_type", ""))
    if kind.startswith(_OFFSET_NORMS):
        raise ValueError(
            f"{c.where} is of model_type {kind!r}, whose norms multiply by 1 + weight: such layers are not read"
        )
    if experts := [name for name in c.tensors if ".experts." in name]:
        raise ValueError(f"{c.where} holds {experts[0]!r}: layers with a mixture of experts are not read")
    config = fitting.sizes(c, target, chosen, layers=fitting.layers_in(c))
    (tap,) = fitting.one_tap(chosen, target)

    def make() -> MTPHead:
        return MTPHead(config, Borrowed.of(target), tap=tap, norm_output=bool(chosen.norm_output))

    return fitting.filled(make, c.tensors, c.where), ()


def save(head: nn.Module, export: Export) -> tuple[Checkpoint, Notes]:
    tensors, notes = written(head, export, _NAME)
    theirs = {ours: name for name, ours in _OURS.items()}
    named = {next(theirs[p] + n.removeprefix(p) for p in theirs if n.startswith(p)): t for n, t in tensors.items()}
    head = fitting.expect(head, MTPHead, _NAME)
    config = fitting.body(head.config, export.target, fitting.dtype_of(head)) | {"num_nextn_predict_layers": 1}
    return Checkpoint(config, named), (*notes, "this is the slice mtp.* alone: put it among the target's own files")


def written(head: nn.Module, export: Export, layout: str) -> tuple[dict[str, Tensor], Notes]:
    """A head's tensors under our names. Raises ValueError for heads that the layouts of MTP have no words for."""
    head = fitting.expect(head, MTPHead, layout)
    notes = fitting.lost_tap(head.taps, export, layout)
    if not head.norm_output:
        what = "hands the normed state on, and this head the state before its norm"
        notes += export.lose(layout, what, "train it with norm_output=True")
    return head.state_dict(), notes


def _ours(name: str) -> str:
    return next((ours + name.removeprefix(theirs) for theirs, ours in _OURS.items() if name.startswith(theirs)), name)


DIALECT = Dialect(_NAME, detect, conventions, load, save)

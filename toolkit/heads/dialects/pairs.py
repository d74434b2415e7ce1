"""What all layouts of EAGLE-3 heads share: one set of tensors under different names, and a handful of switches.

Names here are those of vLLM's speculators: layers.0 for the wide first layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from toolkit.heads.config import Borrowed
from toolkit.heads.dialects import embeddings, fitting, tapping, vocabulary
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Export, Notes
from toolkit.heads.eagle3 import Eagle3Head

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_QUERIES = "layers.0.self_attn.q_proj.weight"
TAPS = ("eagle_aux_hidden_state_layer_ids", "eagle_config.eagle_aux_hidden_state_layer_ids", "target_layer_ids")


def midlayer(name: str) -> str:
    """The name here of a tensor in the layouts that call the first layer midlayer."""
    return "layers.0." + name.removeprefix("midlayer.") if name.startswith("midlayer.") else name


def to_midlayer(name: str) -> str:
    return "midlayer." + name.removeprefix("layers.0.") if name.startswith("layers.0.") else name


def wide(c: Checkpoint) -> bool:
    """Does the first layer look at an embedding and a state side by side."""
    out, queries = c.shape("layers.0.self_attn.o_proj.weight"), c.shape(_QUERIES)
    return "layers.0.hidden_norm.weight" in c.tensors and len(out) == len(queries) == 2 and queries[1] == 2 * out[0]


def wide_midlayer(c: Checkpoint) -> bool:
    """The same for a first layer called midlayer."""
    return "midlayer.hidden_norm.weight" in c.tensors and wide(c.renamed(midlayer))


def conventions(c: Checkpoint, target: HFModel, school: tapping.School, **own: Any) -> Conventions:
    """What tensors and fields say; `own` are the layout's."""
    width = c.need("fc.weight").shape[1]
    usual = tapping.usual(target) if width == 3 * int(target.config.hidden_size) else ()
    found = Conventions(
        tap_ids=school,
        taps=tapping.tapped(c, school, *TAPS, default=usual),
        embeddings=embeddings.whose(c, target),
        first=own.pop("first", 0),
        rope_theta=fitting.rope_theta(c, target),
        d2t=vocabulary.reading(c, target.vocab),
        norm_before_residual=switch(c, "norm_before_residual"),
        norm_output=own.pop("norm_output", switch(c, "norm_output")),
        fc_norm=switch(c, "fc_norm") or any(name.startswith("fc_norm.") for name in c.tensors),
        input_norm=switch(c, "norm_before_fc") or "input_norm.weight" in c.tensors,
    )
    assert not own
    return found


def switch(c: Checkpoint, name: str) -> bool:
    """A field that may stand at the top or in eagle_config. Raises ValueError for one that is neither true nor false."""
    found = c.option(name, f"eagle_config.{name}", default=False)
    if not isinstance(found, bool):
        raise ValueError(f"{c.where} says {name}={found!r} in its config, and it is to be true or false: correct it")
    return found


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[Eagle3Head, Notes]:
    """A head from tensors named as here. Raises ValueError for what does not fit."""
    tensors, notes = dict(c.tensors), list(fitting.about_layers(c))
    notes += tapping.checked(c, target, chosen)
    tokens, more = vocabulary.said(c, target.vocab, chosen.d2t)
    config = fitting.sizes(c, target, chosen, layers=fitting.layers_in(c))
    notes += [*more, *embeddings.chosen(c, target, chosen, config.hidden)]
    own = chosen.embeddings == "own"
    for name in [*vocabulary.TABLES, *([] if own else [embeddings.KEY])]:
        tensors.pop(name, None)
    if "lm_head.weight" not in tensors:
        tensors["lm_head.weight"] = _rows(target, c.need("fc.weight").dtype, tokens)
        notes.append("there is no lm_head: the target's is taken")
    for flag, stem in (("fc_norm", "fc_norm."), ("input_norm", "input_norm.")):
        if not getattr(chosen, flag) and (unused := [n for n in tensors if n.startswith(stem)]):
            notes.append(f"{flag}=False leaves {len(unused)} tensors unread")
            tensors = {n: t for n, t in tensors.items() if n not in unused}

    def make() -> Eagle3Head:
        return Eagle3Head(
            config,
            Borrowed.of(target),
            chosen.taps or (),
            target_hidden=int(target.config.hidden_size),
            tokens=tokens,
            norm_before_residual=bool(chosen.norm_before_residual),
            fc_norm=bool(chosen.fc_norm),
            input_norm=bool(chosen.input_norm),
            norm_output=bool(chosen.norm_output),
            own_embeddings=own,
        )

    return fitting.filled(make, tensors, c.where), tuple(notes)


def written(head: Eagle3Head) -> dict[str, Tensor]:
    """All tensors of a head, named as here; no embeddings but its own."""
    own = {name: t for name, t in head.state_dict().items() if not name.startswith("vocabulary.")}
    return own | vocabulary.tables(head.vocabulary)


def switches(head: Eagle3Head) -> dict[str, bool]:
    """Those of a head, under the names of vLLM's fields."""
    first: Any = head.layers[0]
    return {
        "norm_before_residual": first.norm_before_residual,
        "norm_before_fc": head.input_norm is not None,
        "fc_norm": head.fc_norm is not None,
        "norm_output": head.norm_output,
    }


def refuse_layers(head: Eagle3Head, layout: str) -> None:
    """For layouts of Llama's own layer, of which there is one. Raises ValueError for other heads."""
    if head.config.layers > 1:
        raise ValueError(f"{layout} holds one layer, and this head has {head.config.layers}: use 'speculators-eagle3'")
    if head.config.qk_norm:
        raise ValueError(f"{layout} has no norms on queries and keys, and this head has them: use 'speculators-eagle3'")


def lost(head: Eagle3Head, export: Export, layout: str, *names: str) -> Notes:
    """Notes on switches that are on, and that this layout's readers do not know. Raises ValueError where none may be lost."""
    on = switches(head)
    notes: list[str] = []
    for name in names:
        if on[name]:
            notes += export.lose(
                layout, f"knows no {name}, and its readers will leave it off", "use 'speculators-eagle3'"
            )
    return tuple(notes)


def fields(head: Eagle3Head, target: HFModel, dtype: torch.dtype) -> dict[str, Any]:
    """Config fields that all layouts have at the top."""
    count = len(head.lm_head.weight)
    on = {name: value for name, value in switches(head).items() if value}
    return {**fitting.body(head.config, target, dtype), "draft_vocab_size": count, **on}


def renamed(tensors: Mapping[str, Tensor], name: Callable[[str], str]) -> dict[str, Tensor]:
    return {name(old): tensor for old, tensor in tensors.items()}


def says_as_target(head: Eagle3Head, target: HFModel) -> bool:
    """Is the head's LM head the target's, or the rows of it for what the head can say."""
    own = head.lm_head.weight.detach().cpu()
    tokens = None if head.vocabulary is None else head.vocabulary.tokens.cpu()
    return torch.equal(own, _rows(target, own.dtype, tokens))


def _rows(target: HFModel, dtype: torch.dtype, tokens: Tensor | None) -> Tensor:
    rows = target.unembedding.weight.detach().to("cpu", dtype)
    return rows.clone() if tokens is None else rows[tokens]

"""What all layouts of block heads share: DFlash's tensors, whose names are ours, and where a config says the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from toolkit.heads.block import BlockHead
from toolkit.heads.config import Borrowed
from toolkit.heads.dialects import embeddings, fitting, tapping, vocabulary
from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Export, Notes
from toolkit.heads.markov import MarkovKind

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

TAPS = ("aux_hidden_state_layer_ids", "target_layer_ids", "dflash_config.target_layer_ids")
_FIRST = "markov_head.markov_w1.weight"
_CONFIDENCE = "confidence_head.proj.weight"
_NEUTRAL: dict[str, Any] = {  # what a config may say without meaning another network
    "input_embedding_scale": 1.0,
    "output_multiplier": 1.0,
    "final_logit_softcapping": None,
    "is_causal": False,
    "causal": False,
}


def backbone(c: Checkpoint) -> bool:
    """Layers of the usual kind behind fused features that are normed."""
    fc, queries = c.shape("fc.weight"), c.shape("layers.0.self_attn.q_proj.weight")
    names = {"hidden_norm.weight", "norm.weight", "layers.0.input_layernorm.weight"}
    return names <= c.tensors.keys() and len(fc) == len(queries) == 2 and queries[1] == fc[0]


def sequential(c: Checkpoint) -> bool:
    """Is there a Markov or a confidence head."""
    return _FIRST in c.tensors or _CONFIDENCE in c.tensors


def conventions(c: Checkpoint, target: HFModel, school: tapping.School, *, anchored: bool) -> Conventions:
    width = c.need("fc.weight").shape[1]
    count = width // int(target.config.hidden_size)
    said = c.option(
        "sample_from_anchor", "dflash_config.sample_from_anchor", "dflash_config.shift_label", default=anchored
    )
    if not isinstance(said, bool):
        raise ValueError(
            f"{c.where} says {said!r} of whether the pending token's place guesses: it is to be true or false"
        )
    return Conventions(
        tap_ids=school,
        taps=tapping.tapped(c, school, *TAPS, default=tapping.spread(target, count)),
        embeddings=embeddings.whose(c, target),
        rope_theta=fitting.rope_theta(c, target),
        d2t=vocabulary.reading(c, target.vocab),
        anchored=said,
    )


def load(c: Checkpoint, target: HFModel, chosen: Conventions) -> tuple[BlockHead, Notes]:
    """Raises ValueError for what does not fit, and for networks that ours is not."""
    _refuse_others(c)
    notes = [*fitting.about_layers(c), *_windows(c), *tapping.checked(c, target, chosen)]
    tensors = dict(c.tensors)
    tokens, more = vocabulary.said(c, target.vocab, chosen.d2t)
    config = fitting.sizes(c, target, chosen, layers=fitting.layers_in(c))
    notes += [*more, *embeddings.chosen(c, target, chosen, config.hidden)]
    own, head_of_its_own = chosen.embeddings == "own", _own_lm_head(c, target, tokens)
    dropped = [*vocabulary.TABLES, *([] if own else [embeddings.KEY]), *([] if head_of_its_own else ["lm_head.weight"])]
    for name in dropped:
        tensors.pop(name, None)

    def make() -> BlockHead:
        return BlockHead(
            config,
            Borrowed.of(target),
            chosen.taps or (),
            mask=fitting.mask_of(c),
            block=_block(c),
            markov_rank=c.need(_FIRST).shape[1] if _FIRST in c.tensors else 0,
            target_hidden=int(target.config.hidden_size),
            markov_kind=_markov_kind(c),
            confidence=_confidence(c, config.hidden),
            anchored=bool(chosen.anchored),
            own_embeddings=own,
            own_lm_head=head_of_its_own,
            tokens=tokens,
        )

    return fitting.filled(make, tensors, c.where), tuple(notes)


def written(head: BlockHead) -> dict[str, Tensor]:
    """All tensors of a head, but none that are the target's."""
    own = {name: t for name, t in head.state_dict().items() if not name.startswith("vocabulary.")}
    return own | vocabulary.tables(head.vocabulary)


def whole(head: BlockHead, target: HFModel) -> dict[str, Tensor]:
    """The same with the embeddings and the LM head that it reads, whoever's they are."""
    dtype = fitting.dtype_of(head)
    rows = target.unembedding.weight.detach().to(dtype)
    said = {"lm_head.weight": rows} if head.lm_head is None else {}
    return written(head) | embeddings.written(head, target, dtype) | said


def markov_fields(head: BlockHead) -> dict[str, Any]:
    markov, confidence = head.markov_head, head.confidence_head
    return {
        "markov_rank": 0 if markov is None else markov.rank,
        "markov_head_type": "vanilla" if markov is None else markov.kind,
        "enable_confidence_head": confidence is not None,
        "confidence_head_with_markov": confidence is not None and confidence.rank > 0,
    }


def without_sequential(head: BlockHead, export: Export, layout: str, tensors: dict[str, Tensor]) -> Notes:
    """Take out of `tensors` the heads that a layout does not know. Raises ValueError where a Markov head may not be lost; a
    confidence head changes no guess, and its loss is noted."""
    notes: Notes = ()
    if head.markov_head is not None:
        what = "holds no Markov head, and without it guesses do not know one another"
        notes += export.lose(layout, what, "use 'speculators-dspark' or 'deepspec'")
    if head.confidence_head is not None:
        notes += (f"{layout} holds no confidence head: it is left out, which changes no guess",)
    for name in [n for n in tensors if n.startswith(("markov_head.", "confidence_head."))]:
        del tensors[name]
    return notes


def last_layer(head: BlockHead, target: HFModel) -> Notes:
    """The note on a tap that some readers of speculators' files take away."""
    if target.layers not in head.taps:
        return ()
    return (
        f"tap {target.layers} is the target's last layer: speculators' own converter drops it with its columns of fc, and some "
        f"engines hand out the normed state there",
    )


def _own_lm_head(c: Checkpoint, target: HFModel, tokens: Tensor | None) -> bool:
    if "lm_head.weight" not in c.tensors:
        if tokens is not None:
            raise ValueError(
                f"{c.where} says {len(tokens)} of {target.vocab} tokens and holds no 'lm_head.weight': it is incomplete"
            )
        return False
    theirs, mine = target.unembedding.weight.detach().cpu(), c.tensors["lm_head.weight"]
    return tokens is not None or theirs.dtype != mine.dtype or not torch.equal(theirs, mine)


def _block(c: Checkpoint) -> int:
    found = c.option("block_size", "dflash_config.block_size")
    if not isinstance(found, int):
        raise ValueError(f"{c.where} names no block_size in its config: add the number of places it was trained with")
    return found


def _markov_kind(c: Checkpoint) -> MarkovKind:
    if "markov_head.gate_proj.weight" in c.tensors:
        return "gated"
    return "rnn" if "markov_head.joint_proj.weight" in c.tensors else "vanilla"


def _confidence(c: Checkpoint, hidden: int) -> Literal["state", "markov"] | None:
    shape = c.shape(_CONFIDENCE)
    if not shape:
        return None
    return "markov" if shape[-1] > hidden else "state"


def _refuse_others(c: Checkpoint) -> None:
    for name, neutral in _NEUTRAL.items():
        found = fitting.body_option(c, name, c.option(f"dflash_config.{name}", default=neutral))
        if found != neutral:
            raise ValueError(
                f"{c.where} says {name}={found!r} in its config, which is another network than is read here"
            )
    if (kind := c.option("dflash_config.projector_type")) not in (None, "none", "dflash"):
        raise ValueError(
            f"{c.where} says projector_type={kind!r} in its config, which is another network than is read here"
        )


def _windows(c: Checkpoint) -> Notes:
    """Raises ValueError for layers that look back a bounded way and see a block causally; without the second it is a note."""
    sliding = [i for i, kind in enumerate(fitting.body_option(c, "layer_types") or []) if kind == "sliding_attention"]
    if not sliding:
        return ()
    if not c.option("sliding_window_non_causal", "dflash_config.sliding_window_non_causal"):
        raise ValueError(
            f"{c.where} has sliding layers {sliding} that see a block causally, which is another network than is read here"
        )
    window = fitting.body_option(c, "sliding_window")
    return (f"the layers {sliding} look back {window} tokens, and here all the way: guesses differ in longer texts",)

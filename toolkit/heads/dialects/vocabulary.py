"""The tables of a reduced vocabulary, as files hold them: d2t [W] and t2d [V], as offsets or ids, sorted or not, there or not.

Letters: V vocabulary of the target, W tokens that the head says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Notes
from toolkit.heads.parts import DraftVocabulary

TABLES = ("d2t", "t2d")


def reading(c: Checkpoint, vocab: int) -> Literal["offset", "absolute"] | None:
    """How its d2t is to be read: as offsets, unless those name no tokens and the entries themselves do."""
    if "d2t" not in c.tensors:
        return None
    table = c.tensors["d2t"].long()
    if _sound(_tokens(table, "offset"), c.tensors.get("t2d"), vocab) or not _sound(table, c.tensors.get("t2d"), vocab):
        return "offset"
    return "absolute"


def said(c: Checkpoint, vocab: int, how: Literal["offset", "absolute"] | None) -> tuple[Tensor | None, Notes]:
    """The target ids [W] that the head says, None for all of them in order. Raises ValueError for tables that name none."""
    table, known = c.tensors.get("d2t"), c.tensors.get("t2d")
    count = c.shape("lm_head.weight")[0] if c.shape("lm_head.weight") else vocab if table is None else len(table)
    if known is not None and len(known) != vocab:
        raise ValueError(
            f"{c.where} holds a t2d of {len(known)} tokens, and the target has {vocab}: it was made for another target"
        )
    if table is None:
        return _from_t2d(c, count, vocab)
    if count == vocab and not table.any():
        return None, ()
    tokens = _tokens(table.long(), how or "offset")
    if len(tokens) != count:
        raise ValueError(
            f"{c.where} holds a d2t of {len(tokens)} tokens and an lm_head of {count}: one of the two is another head's"
        )
    if not _sound(tokens, None, vocab):
        other = "absolute" if how != "absolute" else "offset"
        raise ValueError(
            f"{c.where} holds a d2t that, read as {how} values, names no {count} different tokens of 0..{vocab - 1}: it was made "
            f"for another vocabulary, or load it with d2t={other!r}"
        )
    notes = []
    if not table.any():
        notes.append(
            f"d2t is all zeros, as before it is filled in: the head is read as saying the first {count} tokens"
        )
    if how == "absolute":
        notes.append("d2t holds token ids, where the layout has offsets: it is read as ids")
    if known is not None and not _sound(tokens, known, vocab):
        notes.append("t2d and d2t name different tokens: d2t is believed, which is what readers use")
    if torch.equal(tokens, torch.arange(vocab, device=tokens.device)):
        return None, tuple(notes)
    return tokens, tuple(notes)


def tables(vocabulary: DraftVocabulary | None) -> dict[str, Tensor]:
    """Both tables; none for a head that says all tokens."""
    return {} if vocabulary is None else {"d2t": vocabulary.d2t, "t2d": vocabulary.t2d}


def in_order(tensors: Mapping[str, Tensor], *rows: str) -> tuple[dict[str, Tensor], Notes]:
    """The same with d2t rising, and the rows of these tensors brought along, for trainers that take t2d for the order."""
    out = dict(tensors)
    if "d2t" not in tensors or bool((tensors["d2t"].diff() >= 0).all()):
        return out, ()
    tokens, order = _tokens(tensors["d2t"], "offset").sort()
    out["d2t"] = tokens - torch.arange(len(tokens), device=tokens.device)
    out |= {name: tensors[name][order] for name in rows if name in tensors}
    return out, (
        "the draft vocabulary was not in the order of ids, which trainers of this layout assume: its rows are sorted",
    )


def _from_t2d(c: Checkpoint, count: int, vocab: int) -> tuple[Tensor | None, Notes]:
    known = c.tensors.get("t2d")
    if count == vocab:
        return None, ()
    if known is None or int(known.bool().sum()) != count:
        raise ValueError(
            f"{c.where} says {count} of {vocab} tokens, and no d2t tells which: get the table it was trained with"
        )
    note = "there is no d2t: the tokens of t2d are taken in the order of their ids"
    return known.bool().nonzero()[:, 0], (note,)


def _tokens(table: Tensor, how: Literal["offset", "absolute"]) -> Tensor:
    return table + torch.arange(len(table), device=table.device) if how == "offset" else table


def _sound(tokens: Tensor, known: Tensor | None, vocab: int) -> bool:
    """Are these different ids, and those of t2d where it is as long as they."""
    if not bool(((tokens >= 0) & (tokens < vocab)).all()) or len(tokens.unique()) != len(tokens):
        return False
    if known is None or len(known) != vocab or int(known.bool().sum()) != len(tokens):
        return True
    return bool(known.bool()[tokens].all())

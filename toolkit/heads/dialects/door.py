"""The three ways in: what layout is this, read it, write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from toolkit.heads.dialects.checkpoint import Checkpoint, read, write
from toolkit.heads.dialects.every import DIALECTS, named
from toolkit.heads.dialects.values import Dialect, Export, Loaded, Notes

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

_PREFIXES = ("", "draft_model.", "model.", "module.", "medusa_head.", "medusa_heads.")


def candidates(c: Checkpoint, among: Sequence[Dialect] = DIALECTS) -> tuple[str, tuple[Dialect, ...]]:
    """The prefix of the tensors' names, and the layouts that fit best, equal among themselves; () for none."""
    for prefix in _PREFIXES:
        if not prefix or any(name.startswith(prefix) for name in c.tensors):
            bare = c.without(prefix)
            fits = [(d.detect(bare), d) for d in among]
            if best := max((fit for fit, _ in fits), default=0):
                return prefix, tuple(d for fit, d in fits if fit == best)
    return "", ()


def detect(source: str | Path | Checkpoint) -> Dialect:
    """The layout of a folder, a file or a checkpoint in memory: by its tensors first, by its config where several fit.
    Raises ValueError for what is no draft head of a known layout."""
    c = source if isinstance(source, Checkpoint) else read(source)
    return _first(c, candidates(c)[1])


def load(
    source: str | Path | Checkpoint,
    target: HFModel,
    dialect: str | Dialect | None = None,
    *,
    dtype: torch.dtype | None = None,
    tap_shift: int = 0,
    **overrides: Any,
) -> Loaded:
    """A head for `target` from a folder, a file or a checkpoint in memory, on the target's device.

    dialect    by name; None to detect it
    dtype      None for the file's own
    tap_shift  added to every tap that is a number, for files that count layers the other way
    overrides  any field of `Conventions` that the layout asks about: what the file says of itself is not believed there

    Raises ValueError in a sentence for files that are unsafe, damaged, incomplete, of no known layout or of another target.
    """
    c = source if isinstance(source, Checkpoint) else read(source)
    notes: list[str] = []
    if dialect is None:
        prefix, fits = candidates(c)
        kind = _first(c, fits)
        if len(fits) > 1:
            others = ", ".join(d.name for d in fits[1:])
            notes.append(
                f"the layout is ambiguous: read as {kind.name}, and {others} fits as well; name one with dialect="
            )
    else:
        kind = named(dialect) if isinstance(dialect, str) else dialect
        prefix = candidates(c, [kind])[0]
    prefix = overrides.pop("prefix", prefix)
    if prefix and not any(name.startswith(prefix) for name in c.tensors):
        raise ValueError(
            f"no tensor of {c.where} begins with {prefix!r}: its first is {min(c.tensors, default='none')!r}"
        )
    c = c.without(prefix)
    told = replace(kind.conventions(c, target), prefix=prefix)
    chosen = told.overridden(kind.name, overrides).shifted(tap_shift)
    head, more = kind.load(c, target, chosen)
    return Loaded(head.to(target.device, dtype), kind.name, chosen, (*notes, *more))


def save(
    head: nn.Module,
    folder: str | Path,
    dialect: str | Dialect,
    *,
    target: HFModel,
    verifier: str | None = None,
    lossy: bool = False,
    lean: bool = False,
) -> Notes:
    """Write `head` into `folder` in a layout, and return what there is to say about it.

    verifier  the target's name or path, for layouts that record it; None for the one it was loaded by
    lossy     write what the layout cannot say in full; else that raises ValueError, which says what would be lost
    lean      leave out copies of the target's embeddings: EAGLE-3 and P-EAGLE of vLLM's speculators. vLLM and this package take
              the target's then; speculators 0.9, which trains such heads further, puts zeros in their place. EAGLE-3 leaves
              out an LM head that is the target's too, which this package alone fills in where the vocabulary is a reduced one
    """
    kind = named(dialect) if isinstance(dialect, str) else dialect
    who = str(target.model.name_or_path) if verifier is None else verifier
    checkpoint, notes = kind.save(head, Export(target, who, lossy, lean))
    write(checkpoint, folder)
    return notes


def _first(c: Checkpoint, fits: Sequence[Dialect]) -> Dialect:
    if fits:
        return fits[0]
    some = ", ".join(repr(name) for name in sorted(c.tensors)[:3]) or "nothing"
    known = ", ".join(d.name for d in DIALECTS)
    raise ValueError(f"{c.where} is no draft head of a known layout: it holds {some}, ...; known are {known}")

"""What a layout of checkpoints is, what its files leave open, and what loading one returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.protocols import Tap

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

Notes = tuple[str, ...]
"""Sentences for the user: what was assumed, dropped or changed."""


@dataclass(frozen=True, slots=True)
class Conventions:
    """How a checkpoint is read. A wrong one costs acceptance and raises no error, so each is recorded and can be overridden.
    None is a question that this kind of head does not ask.

    prefix      taken off the tensors' names
    tap_ids     how the layout counts layers: "boundary" (id j is hidden_states[j], tap j) or "output" (id i is the output of
                layer i counted from 0, tap i + 1)
    taps        of the target, as `Tap`; () where neither the config nor a default names any
    embeddings  the head's own, or the target's
    first       position of the first pair in training
    d2t         what the vocabulary table holds: draft token i is target token i + d2t[i], or d2t[i]
    norm_before_residual, norm_output, fc_norm, input_norm, anchored: as of `Eagle3Head` and `BlockHead`
    """

    prefix: str = ""
    tap_ids: Literal["boundary", "output"] | None = None
    taps: tuple[Tap, ...] | None = None
    embeddings: Literal["own", "target"] | None = None
    first: int | None = None
    rope_theta: float | None = None
    d2t: Literal["offset", "absolute"] | None = None
    norm_before_residual: bool | None = None
    norm_output: bool | None = None
    fc_norm: bool | None = None
    input_norm: bool | None = None
    anchored: bool | None = None

    def overridden(self, kind: str, changes: dict[str, Any]) -> Conventions:
        """The same with `changes`. Raises ValueError for one that a head of this kind has no place for."""
        able = [f.name for f in fields(self) if getattr(self, f.name) is not None and f.name != "tap_ids"]
        if odd := sorted(changes.keys() - set(able)):
            raise ValueError(f"a checkpoint of layout {kind!r} has no {odd[0]} to override: it has {', '.join(able)}")
        for name, able in (("embeddings", ("own", "target")), ("d2t", ("offset", "absolute"))):
            if changes.get(name, able[0]) not in able:
                raise ValueError(f"{name}={changes[name]!r} is no way to read a head: use {able[0]!r} or {able[1]!r}")
        if changes.get("taps") is not None:
            changes = changes | {"taps": tuple(changes["taps"])}
        return replace(self, **changes)

    def shifted(self, by: int) -> Conventions:
        """With every tap that is a number `by` layers further on."""
        return replace(self, taps=tuple(t if t == "final" else t + by for t in self.taps or ())) if by else self


@dataclass(frozen=True, slots=True)
class Export:
    """What saving is told.

    verifier  the target's name or path, for layouts that record it
    lossy     write what the layout cannot say in full, with a note; else that is refused
    lean      leave out copies of the target's embeddings, in layouts whose servers take the target's where there are none
    """

    target: HFModel
    verifier: str
    lossy: bool = False
    lean: bool = False

    def lose(self, layout: str, what: str, remedy: str) -> Notes:
        """The note on a loss that changes guesses, or ValueError where no loss was allowed."""
        if not self.lossy:
            raise ValueError(f"{layout} {what}: {remedy}, or allow the loss with lossy=True")
        return (f"lossy: {layout} {what}",)


@dataclass(frozen=True, slots=True)
class Dialect:
    """A published layout of checkpoints. A new one is a file with such a value, and a line in `dialects.every`.

    detect       0 for another layout, 1 where names and shapes of the tensors fit, 2 where the config says so too
    conventions  what a checkpoint says of itself, and the layout's defaults
    load         the head, on the CPU in the file's dtype, and notes
    save         the checkpoint that says a head in this layout, and notes. Raises ValueError for what it has no words for
    """

    name: str
    detect: Callable[[Checkpoint], int]
    conventions: Callable[[Checkpoint, HFModel], Conventions]
    load: Callable[[Checkpoint, HFModel, Conventions], tuple[nn.Module, Notes]]
    save: Callable[[nn.Module, Export], tuple[Checkpoint, Notes]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A head ready to draft, how its checkpoint was read, and what there is to say about that."""

    head: nn.Module
    dialect: str
    conventions: Conventions
    notes: Notes = ()

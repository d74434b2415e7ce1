"""Which layers of the target a head reads: numbers in a config, which two schools count differently.

"boundary": id j is hidden_states[j], our tap j. "output": id i is the output of layer i counted from 0, our tap i + 1. A
shift by one costs much acceptance and raises no error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from toolkit.heads.dialects.checkpoint import Checkpoint
from toolkit.heads.dialects.values import Conventions, Notes
from toolkit.protocols import Tap

if TYPE_CHECKING:
    from toolkit.models.hf import HFModel

School = Literal["boundary", "output"]


def tapped(c: Checkpoint, school: School, *names: str, default: tuple[Tap, ...]) -> tuple[Tap, ...]:
    """The taps that the first of these fields names, or the default. Raises ValueError for a field of another kind."""
    ids = c.option(*names)
    if ids is None:
        return default
    if not isinstance(ids, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise ValueError(f"{c.where} says {names[0]}={ids!r} in its config: it is to be a list of layer numbers")
    return tuple(i + 1 if school == "output" else i for i in ids)


def usual(target: HFModel) -> tuple[Tap, ...]:
    """EAGLE-3's own choice, for targets deep enough for it; else none."""
    taps = 2, target.layers // 2, target.layers - 3
    return taps if target.layers > 5 else ()


def spread(target: HFModel, count: int) -> tuple[Tap, ...]:
    """DFlash's own choice."""
    layers = target.layers
    if count == 1:
        return (layers // 2 + 1,)
    taps = tuple(2 + round(i * (layers - 4) / (count - 1)) for i in range(count)) if count else ()
    return taps if layers > 3 + count else ()


def checked(c: Checkpoint, target: HFModel, conventions: Conventions) -> Notes:
    """What there is to say about the taps. Raises ValueError for taps that the target or the weights do not have."""
    taps, width, size = conventions.taps or (), c.need("fc.weight").shape[1], int(target.config.hidden_size)
    if width % size:
        raise ValueError(
            f"{c.where} reads features of width {width}, which is no multiple of the target's hidden size {size}: it was made "
            f"for another target"
        )
    if not taps:
        raise ValueError(
            f"{c.where} reads {width // size} taps, and neither its config nor a default for {target.layers} layers says which: "
            f"load it with taps=(...)"
        )
    if len(taps) != width // size:
        raise ValueError(
            f"{c.where} has weights for {width // size} taps, and {len(taps)} are named {taps}: load it with taps=(...)"
        )
    if odd := [t for t in taps if t != "final" and not 0 <= t <= target.layers]:
        raise ValueError(f"tap {odd[0]} does not exist: this target has 0 (embeddings) to {target.layers}, and 'final'")
    return _doubts(target, conventions)


def _doubts(target: HFModel, conventions: Conventions) -> Notes:
    taps, layers, notes = conventions.taps or (), target.layers, []
    other = 1 if conventions.tap_ids == "boundary" else -1
    if usual(target) and taps == tuple(t - other for t in usual(target) if t != "final"):
        notes.append(
            f"the taps {taps} are the usual ones counted the other way: if few guesses are accepted, load with tap_shift={other}"
        )
    if layers in taps:
        notes.append(
            f"tap {layers} is the last layer's raw output, and transformers' hidden_states[{layers}] is the normed one: if few "
            f"guesses are accepted, load with 'final' in its place"
        )
    return tuple(notes)


def ids(taps: Sequence[Tap], school: School, layout: str, *, embeddings: bool = False) -> list[int]:
    """The numbers a layout names taps by. Raises ValueError for taps it has no number for."""
    if "final" in taps:
        raise ValueError(
            f"{layout} numbers layers, and has no number for the 'final' tap, which comes after the last norm"
        )
    numbers = [int(t) - (school == "output") for t in taps]
    if min(numbers) < 0 and not embeddings:
        raise ValueError(f"{layout} numbers layers from 0, and has no number for tap 0, the embeddings")
    return numbers

"""What the engine asks of drafters, which may be made of others: the question goes to the last ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolkit.protocols import LM, Drafter, Tap


def leaves(drafters: Iterable[Drafter]) -> list[Drafter]:
    """The drafters' parts that have no parts themselves, each once."""
    found: list[Drafter] = []
    for drafter in drafters:
        parts = getattr(drafter, "parts", ())
        found += leaves(parts) if parts else [drafter]
    return list({id(leaf): leaf for leaf in found}.values())


def taps_of(parts: Sequence[Drafter]) -> tuple[Tap, ...]:
    """The features that the drafters of a step want. Raises ValueError where two want different ones."""
    wanted = list(dict.fromkeys(t for d in parts if (t := tuple(getattr(d, "taps", ())))))
    if len(wanted) > 1:
        raise ValueError(
            f"the drafters of one step want the target's features {wanted[0]} and {wanted[1]}, and there is one set a step: "
            f"use heads with the same taps"
        )
    return wanted[0] if wanted else ()


def shares(parts: Sequence[Drafter], target: LM) -> bool:
    """Does a drafter read through the target's cache. Raises ValueError where it was made from another target."""
    shared = [lm for d in parts if (lm := getattr(d, "shares", None)) is not None]
    if any(lm is not target for lm in shared):
        raise ValueError(
            f"an early exit reads through the cache of the target it was made from, and that is another model than {target!r}: "
            f"make it from this one"
        )
    return bool(shared)


def same_vocabulary(parts: Sequence[Drafter], target: LM) -> None:
    """Raise ValueError for a drafter whose vocabulary is another one's."""
    for drafter in parts:
        head = getattr(getattr(drafter, "head", None), "config", None)
        known = (getattr(drafter, "model", None), "vocab"), (head, "vocab"), (drafter, "target_vocab")
        for part, name in known:
            if (vocab := getattr(part, name, target.vocab)) != target.vocab:
                raise ValueError(
                    f"the vocabulary of {type(drafter).__name__} has {vocab} tokens and the target's {target.vocab}: use a draft "
                    f"model or head made for this target, or Intersection or Reencode for a model with another tokenizer"
                )

"""Drafters and shapes by the names that the command line and the menus use."""

from __future__ import annotations

from collections.abc import Callable

from toolkit import shipped
from toolkit.drafting import (
    Adaptive,
    BestFirst,
    Chain,
    DraftModel,
    Dynamic,
    EarlyExit,
    Fixed,
    Lookahead,
    NGram,
    Nothing,
    Recycling,
    Sampled,
    Suffix,
)
from toolkit.models.early_exit import first_layers
from toolkit.models.hf import HFModel
from toolkit.protocols import LM, Drafter, Shape

DRAFTERS = ("none", "ngram", "suffix", "lookahead", "recycling", "early-exit", "draft-model", *shipped.NAMES)
SHAPES = ("chain", "dynamic", "best-first", "fixed")
PLAIN: dict[str, Callable[[], Drafter]] = {"suffix": Suffix, "lookahead": Lookahead, "recycling": Recycling}


def shape_named(name: str = "chain", *, length: int = 4, width: int = 4, depth: int = 5, budget: int = 16) -> Shape:
    """chain takes length; dynamic width, depth and budget; best-first depth and budget. ValueError for an unknown name."""
    if name == "chain":
        return Chain(length)
    if name == "dynamic":
        return Dynamic(width, depth, budget)
    if name == "best-first":
        return BestFirst(budget, depth)
    if name == "fixed":
        return Fixed()
    raise ValueError(f"unknown shape {name!r}: use one of {', '.join(SHAPES)}")


def shapes() -> dict[str, Shape]:
    """One of every kind, by name; the last draws its guesses at random, as rules for sampling like to have them."""
    return {**{name: shape_named(name) for name in SHAPES}, "sampled": Sampled()}


def drafter_named(
    name: str,
    target: LM,
    *,
    shape: Shape | None = None,
    exit_layer: int | None = None,
    draft: LM | None = None,
    length: int = 10,
    branches: int = 1,
) -> Drafter:
    """none; ngram (length, branches); suffix; lookahead; recycling; early-exit (the target's first `exit_layer` layers, a
    third of them by default); draft-model (`draft`); a head of the package (eagle3, eagle1, medusa, block, small). Raises
    ValueError for an unknown name and for what a drafter lacks."""
    if name == "none":
        return Nothing()
    if name == "ngram":
        return NGram(length=length, branches=branches)
    if name in PLAIN:
        return PLAIN[name]()
    if name == "early-exit":
        if not isinstance(target, HFModel):
            raise ValueError(f"early-exit needs a Hugging Face model as target; got {type(target).__name__}")
        layers = max(1, target.layers // 3) if exit_layer is None else exit_layer
        return EarlyExit(first_layers(target, layers), shape or Chain())
    if name in shipped.NAMES:
        if not isinstance(target, HFModel):
            raise ValueError(f"{name} needs a Hugging Face model as target; got {type(target).__name__}")
        return shipped.drafter(name, target, shape)
    if name == "draft-model":
        if draft is None:
            raise ValueError("draft-model needs the name or folder of a smaller model with the target's vocabulary")
        return DraftModel(draft, shape or Chain())
    raise ValueError(f"unknown drafter {name!r}: use one of {', '.join(DRAFTERS)}")


def menu(target: HFModel) -> dict[str, Drafter]:
    """The drafters that a target can have without further models, by what a menu calls them: the heads of the package are
    among them for the target that they were taught on."""
    found = {name: drafter_named(name, target) for name in ("none", "ngram", *PLAIN)}
    found["ngram, adaptive"] = Adaptive(drafter_named("ngram", target))
    if target.layers > 1:
        found["early exit, chain"] = drafter_named("early-exit", target)
        found["early exit, tree"] = drafter_named("early-exit", target, shape=shape_named("dynamic"))
    for name, label in (("eagle3", "EAGLE-3"), ("medusa", "Medusa"), ("block", "block")):
        if name in shipped.NAMES and shipped.fits(target):
            found[f"{label}, chain"] = shipped.drafter(name, target)
            found[f"{label}, tree"] = shipped.drafter(name, target, shipped.tree(name))
    return found

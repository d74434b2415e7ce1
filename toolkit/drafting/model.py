"""A smaller language model as the drafter."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from toolkit.drafting.growth import at, cache_for, catch_up, grow, no_guess, shape_of
from toolkit.drafting.shapes import Chain
from toolkit.protocols import LM, Context, KVCache, Proposal, Shape, ShapeChoice


@dataclass(slots=True)
class DraftModel:
    """Leviathan et al. 2023 with any tree shape. The model must share the target's vocabulary.

    Draws and probabilities follow each row's own sampling parameters, so q is what the tokens were really drawn from.
    """

    model: LM
    shape: Shape | ShapeChoice = field(default_factory=Chain)
    cache: KVCache | None = field(default=None, repr=False)

    def propose(self, context: Context) -> Proposal:
        model, shape = self.model, shape_of(self.shape, context)
        if shape is None:
            return no_guess(context)
        self.cache = cache = cache_for(model, self.cache, context)
        reading, pending = catch_up(model, cache, context)
        return grow(
            lambda tree, start: model.read(tree, cache, start).logits, shape, context, at(reading.logits, pending)
        )

    def release(self, who: Hashable) -> None:
        if self.cache is not None:
            self.cache.release(who)

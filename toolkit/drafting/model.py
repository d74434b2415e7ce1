"""A smaller language model as the drafter."""

from __future__ import annotations

from dataclasses import dataclass, field

from toolkit.drafting.growth import at, catch_up, grow, no_guess, shape_of
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
        model, cache, shape = self.model, self.cache, shape_of(self.shape, context)
        if shape is None:
            return no_guess(context)
        if cache is None or len(cache.filled) != context.rows:
            self.cache = cache = model.open(context.rows, context.token.shape[1])
        reading, pending = catch_up(model, cache, context)
        return grow(
            lambda tree, start: model.read(tree, cache, start).logits, shape, context, at(reading.logits, pending)
        )

"""The target's own first layers and LM head as the drafter, reading through the target's own cache.

LayerSkip (Elhoushi et al. 2024, section 4.3, self-speculative decoding) and Draft & Verify (Zhang et al. 2023). The first
layers give the same keys and values to drafter and target, so the drafter has no cache of its own and nothing to catch up
with: it reads the pending token and its guesses, in the provisional slots that the target fills again when it verifies.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from toolkit.drafting.growth import grow, no_guess, shape_of
from toolkit.drafting.shapes import Chain
from toolkit.protocols import LM, Context, Proposal, Shape, ShapeChoice
from toolkit.tree import TokenTree


@dataclass(slots=True)
class EarlyExit:
    """model: what `models.early_exit.first_layers` made of the engine's target; any shape.

    A model that was not trained for early exit guesses badly until its last layers. Raises ValueError for a model that is no
    part of another.
    """

    model: LM
    shape: Shape | ShapeChoice = field(default_factory=Chain)

    def __post_init__(self) -> None:
        if self.shares is None:
            raise ValueError(
                f"EarlyExit needs the first layers of a model, made by first_layers(target, n); got {self.model!r}"
            )

    @property
    def shares(self) -> LM | None:
        """The target whose cache it reads through."""
        return getattr(self.model, "part_of", None)

    def propose(self, context: Context) -> Proposal:
        model, cache = self.model, context.cache
        if cache is None:
            raise ValueError(
                "EarlyExit reads through the target's cache, and this context has none: use it in an Engine"
            )
        shape = shape_of(self.shape, context)
        if shape is None:
            return no_guess(context)
        root = TokenTree.chain(context.pending)
        return grow(
            lambda tree, start: model.read(tree, cache, start).logits,
            shape,
            context,
            model.read(root, cache).logits,
        )

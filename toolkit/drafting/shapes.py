"""How a tree grows from a drafter's predictions.

Letters: B rows, M nodes of the last level, W nodes of the next, N nodes so far, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.protocols import Draw, Sampler


@dataclass(frozen=True, slots=True)
class Chain:
    """One guess after another, drawn from the drafter's own distribution (at temperature 0 its most likely token).

    Leviathan et al. 2023. `coupled` draws with the noise of the target's own draw at each position, for the rule
    `Coupled` (Daliri, Musco, Suresh 2024). Raises ValueError for a length below one.
    """

    length: int = 4
    coupled: bool = False

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"Chain needs a length of at least 1; got {self.length}")

    @property
    def draw(self) -> Draw:
        return "coupled" if self.coupled else "independent"

    @property
    def depth(self) -> int:
        return self.length

    def level(self, depth: int, score: Tensor, probs: Tensor, sampler: Sampler) -> tuple[Tensor, Tensor] | None:
        token = sampler.guess_coupled(probs, depth) if self.coupled else sampler.guess(probs, depth)[:, 0]  # [B, 1]
        return torch.zeros_like(token), token

    def expand(self, depth: int, score: Tensor) -> Tensor:
        return torch.zeros_like(score, dtype=torch.long)

    def keep(self, score: Tensor) -> Tensor | None:
        return None


@dataclass(frozen=True, slots=True)
class Dynamic:
    """The tree of EAGLE-2 (Li et al. 2024, section 4): at each level the `width` likeliest nodes of the last level get
    their `width` likeliest children; in the end the `budget` likeliest nodes of all are sent, the root not counted.

    Likely means the product of the drafter's probabilities along the path. All nodes are deterministic given the
    context, so their draw is `certain`. Raises ValueError for counts below one.
    """

    width: int = 4
    depth: int = 5
    budget: int = 16

    def __post_init__(self) -> None:
        for name in ("width", "depth", "budget"):
            if getattr(self, name) < 1:
                raise ValueError(f"Dynamic needs {name} of at least 1; got {getattr(self, name)}")

    @property
    def draw(self) -> Draw:
        return "certain"

    def level(self, depth: int, score: Tensor, probs: Tensor, sampler: Sampler) -> tuple[Tensor, Tensor] | None:
        children = min(self.width, probs.shape[-1])
        slot = torch.arange(probs.shape[1], device=probs.device).repeat_interleave(children)  # [M * K]
        return slot.expand(probs.shape[0], -1), probs.topk(children, -1).indices.flatten(1)

    def expand(self, depth: int, score: Tensor) -> Tensor:
        return score.topk(min(self.width, score.shape[1]), 1).indices.sort(1).values

    def keep(self, score: Tensor) -> Tensor | None:
        if score.shape[1] <= self.budget + 1:
            return None
        # Stable, so that of equal scores the earlier node is kept: a child never beats its parent, and stands after it.
        order = score.sort(dim=1, descending=True, stable=True).indices[:, : self.budget + 1]
        return order.sort(1).values


@dataclass(frozen=True, slots=True)
class Fixed:
    """A tree given beforehand by ranks (Medusa, Cai et al. 2024, section 2.1.2; EAGLE-1): `(0, 2)` is the third
    likeliest child of the likeliest child of the root.

    Every prefix of a choice must be a choice too. All nodes are deterministic given the context: `certain`.
    Raises ValueError for an empty or broken list.
    """

    choices: tuple[tuple[int, ...], ...] = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0))

    def __post_init__(self) -> None:
        known = set(self.choices)
        if not known or any(not c or min(c) < 0 for c in known):
            raise ValueError(f"Fixed needs non-empty choices of ranks >= 0; got {self.choices}")
        if orphans := sorted(c for c in known if len(c) > 1 and c[:-1] not in known):
            raise ValueError(f"Fixed needs every prefix of a choice: {orphans[0]} is there without {orphans[0][:-1]}")

    @property
    def draw(self) -> Draw:
        return "certain"

    @property
    def depth(self) -> int:
        return max(map(len, self.choices))

    def at(self, depth: int) -> list[tuple[int, ...]]:
        """The choices of one depth, in the order in which their nodes stand."""
        return sorted({c for c in self.choices if len(c) == depth})

    def inner(self, depth: int) -> list[tuple[int, ...]]:
        """The choices of one depth that have children: only these are read by the drafter."""
        return sorted({c[:-1] for c in self.choices if len(c) == depth + 1})

    def level(self, depth: int, score: Tensor, probs: Tensor, sampler: Sampler) -> tuple[Tensor, Tensor] | None:
        above = {c: i for i, c in enumerate(self.inner(depth - 1))}
        slot = torch.tensor([above[c[:-1]] for c in self.at(depth)], device=probs.device)
        rank = torch.tensor([c[-1] for c in self.at(depth)], device=probs.device)
        token = probs.topk(max(c[-1] for c in self.at(depth)) + 1, -1).indices[:, slot, rank]  # [B, W]
        return slot.expand_as(token), token

    def expand(self, depth: int, score: Tensor) -> Tensor:
        place = {c: i for i, c in enumerate(self.at(depth))}
        chosen = torch.tensor([place[c] for c in self.inner(depth)], device=score.device)
        return chosen.expand(score.shape[0], -1)

    def keep(self, score: Tensor) -> Tensor | None:
        return None

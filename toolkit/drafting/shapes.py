"""How a tree grows from a drafter's predictions. A token of -1 is a node that could not be filled.

Letters: B rows, M nodes of the last level, W nodes of the next, N nodes so far, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.protocols import Draw, Sampler, Shape


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
        return _best_paths(score, self.budget)


@dataclass(frozen=True, slots=True)
class BestFirst:
    """The `budget` likeliest paths of all down to `depth`, however they are spread over the levels.

    Of each level the `budget` best nodes are kept, and of all these the `budget` best are sent: since a child is never
    likelier than its parent, these are the nodes that a heap would give one by one. Over a block drafter's marginals this is
    the tree of DDTree (2026); a draft model has to read `budget` nodes a level for it. Likely means the product of the
    drafter's probabilities along the path. All nodes are `certain`. Raises ValueError for counts below one.
    """

    budget: int = 32
    depth: int = 8

    def __post_init__(self) -> None:
        for name in ("budget", "depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"BestFirst needs {name} of at least 1; got {getattr(self, name)}")

    @property
    def draw(self) -> Draw:
        return "certain"

    def level(self, depth: int, score: Tensor, probs: Tensor, sampler: Sampler) -> tuple[Tensor, Tensor] | None:
        best = probs.topk(min(self.budget, probs.shape[-1]), -1)  # [B, M, K]
        path = (score[..., None] + best.values.double().log()).flatten(1)  # [B, M * K]
        chosen = path.topk(min(self.budget, path.shape[1]), 1).indices.sort(1).values
        return chosen // best.values.shape[-1], best.indices.flatten(1).gather(1, chosen)

    def expand(self, depth: int, score: Tensor) -> Tensor:
        return torch.arange(score.shape[1], device=score.device).expand_as(score)

    def keep(self, score: Tensor) -> Tensor | None:
        return _best_paths(score, self.budget)


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


@dataclass(frozen=True, slots=True)
class Sampled:
    """A tree of given widths whose nodes are all drawn: every node of depth d has `widths[d]` children from the drafter's
    own distribution after it.

    With replacement siblings are independent and may be equal (SpecInfer, Miao et al. 2024); with
    `distinct` they are drawn one after the other without replacement (Sequoia, Chen et al. 2024), which never
    spends two nodes on one token. Where fewer tokens have any probability the other nodes are padding. At
    temperature 0 the likeliest tokens stand for the draws. Raises ValueError for widths below one, or none.
    """

    widths: tuple[int, ...] = (3, 2, 1)
    distinct: bool = True

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"Sampled needs one width a level, each at least 1; got {self.widths}")

    @property
    def draw(self) -> Draw:
        return "distinct" if self.distinct else "independent"

    @property
    def depth(self) -> int:
        return len(self.widths)

    def level(self, depth: int, score: Tensor, probs: Tensor, sampler: Sampler) -> tuple[Tensor, Tensor] | None:
        width = self.widths[depth - 1]
        if sampler.greedy:
            token = probs.topk(min(width, probs.shape[-1]), -1).indices  # [B, M, width]
        elif self.distinct:
            token = _without_replacement(probs, depth, width, sampler)
        else:
            token = sampler.guess(probs, depth, width)
        slot = torch.arange(probs.shape[1], device=probs.device).repeat_interleave(token.shape[-1])
        return slot.expand(probs.shape[0], -1), token.flatten(1)

    def expand(self, depth: int, score: Tensor) -> Tensor:
        return torch.arange(score.shape[1], device=score.device).expand_as(score)

    def keep(self, score: Tensor) -> Tensor | None:
        return None


@dataclass(frozen=True, slots=True)
class Confident:
    """Another shape that stops growing as soon as no path of the last level is likelier than `threshold`, in any row.

    Dynamic speculation length by the drafter's confidence (Mamou et al. 2024; Hugging Face's
    `assistant_confidence_threshold` looks at one token, this at whole paths). What was drawn stays drawn: to stop is
    decided before the next level is, so the rule sees an honest proposal; a sure row keeps the batch going. Costs one host
    sync a level on a GPU.
    Raises ValueError for a threshold outside 0..1.
    """

    shape: Shape
    threshold: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold is a probability in 0..1; got {self.threshold}")

    @property
    def draw(self) -> Draw:
        return self.shape.draw

    @property
    def depth(self) -> int:
        return self.shape.depth

    def level(self, depth: int, score: Tensor, probs: Tensor, sampler: Sampler) -> tuple[Tensor, Tensor] | None:
        if depth > 1 and not bool((score.exp() >= self.threshold).any()):
            return None
        return self.shape.level(depth, score, probs, sampler)

    def expand(self, depth: int, score: Tensor) -> Tensor:
        return self.shape.expand(depth, score)

    def keep(self, score: Tensor) -> Tensor | None:
        return self.shape.keep(score)


def _best_paths(score: Tensor, budget: int) -> Tensor | None:
    """[B, budget + 1] rising indices of the root and the best nodes, None where that is all of them."""
    if score.shape[1] <= budget + 1:
        return None
    # Stable, so that of equal scores the earlier node is kept: a child never beats its parent, and stands after it.
    return score.sort(dim=1, descending=True, stable=True).indices[:, : budget + 1].sort(1).values


def _without_replacement(probs: Tensor, depth: int, width: int, sampler: Sampler) -> Tensor:
    """[B, M, width] in draw order, -1 where no token is left. The noise of a node is the same in every call, so the best of those that are left is
    the next of a race that all run once: Gumbel-top-k (Kool, van Hoof, Welling 2019)."""
    drawn = []
    for _ in range(width):
        token = sampler.guess(probs, depth)  # [B, M, 1]
        drawn.append(token.where(probs.gather(-1, token) > 0, -1))
        probs = probs.scatter(-1, token, 0)
    return torch.cat(drawn, -1)

"""Several drafters in one step: their guesses as branches of one tree, or one drafter a row; and a budget for each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from toolkit.drafting.joined import beside, branches
from toolkit.protocols import Context, Drafter, Proposal
from toolkit.tree import TokenTree


@dataclass(slots=True)
class Mixture:
    """All drafters' guesses in one tree, the first drafter's first; each guess keeps the q it was drawn from.

    Exact with `Rejection` and `Traversal`, which test siblings one after another, each against its own q. Drafters may be
    certain ones and sampled ones; the sampled ones must draw alike. Their noise is kept apart. Merging equal
    guesses asks the device once a level. Raises ValueError for no
    drafters.
    """

    drafters: Sequence[Drafter]

    def __post_init__(self) -> None:
        _check(self.drafters, "Mixture")

    @property
    def parts(self) -> tuple[Drafter, ...]:
        return tuple(self.drafters)

    def propose(self, context: Context) -> Proposal:
        return branches(list(_proposals(self.drafters, context)))


@dataclass(slots=True)
class PerRow:
    """Another drafter for each row: `drafters[b]` guesses for row b, one drafter as often as wished.

    A drafter proposes for the whole batch at once, so each costs as if all rows were its own. Raises ValueError when the
    batch has another number of rows, and as `Mixture` does.
    """

    drafters: Sequence[Drafter]

    def __post_init__(self) -> None:
        _check(self.drafters, "PerRow")

    @property
    def parts(self) -> tuple[Drafter, ...]:
        return tuple(_different(self.drafters))

    def propose(self, context: Context) -> Proposal:
        if len(self.drafters) != context.rows:
            raise ValueError(
                f"PerRow has {len(self.drafters)} drafters, and the batch has {context.rows} rows: give one a row"
            )
        some = _different(self.drafters)
        choice = [next(i for i, d in enumerate(some) if d is own) for own in self.drafters]
        rooms = [tuple(r if c == i else 0 for r, c in zip(context.room, choice, strict=True)) for i in range(len(some))]
        asked = [replace(context, room=room) for room in rooms]
        return beside([d.propose(c) for d, c in zip(some, asked, strict=True)], choice)


@dataclass(slots=True)
class Budgets:
    """At most `nodes[b]` guesses in row b: the likeliest paths of certain guesses, the first of sampled ones, for a drawn
    guess must not be dropped for what it says. Raises ValueError for negative numbers and a batch of other size."""

    drafter: Drafter
    nodes: Sequence[int]

    def __post_init__(self) -> None:
        if min(self.nodes, default=-1) < 0:
            raise ValueError(f"Budgets needs a number of nodes for each row, at least 0; got {list(self.nodes)}")

    @property
    def parts(self) -> tuple[Drafter, ...]:
        return (self.drafter,)

    def propose(self, context: Context) -> Proposal:
        if len(self.nodes) != context.rows:
            raise ValueError(
                f"Budgets has {len(self.nodes)} numbers, and the batch has {context.rows} rows: give one a row"
            )
        room = tuple(r if n else 0 for r, n in zip(context.room, self.nodes, strict=True))
        p = self.drafter.propose(replace(context, room=room))
        tree, most = p.tree, torch.tensor([n + 1 for n in self.nodes], device=p.tree.token.device)  # with the root
        worth = -torch.arange(tree.size, device=most.device).expand_as(tree.token).double()
        if p.q is None and p.confidence is not None:
            rate = p.confidence.double().clamp(min=1e-300).log()[:, None].expand(-1, tree.size, -1)
            worth = rate.where(tree.ancestors, 0).sum(-1)  # log-probability of the path
        # Stable: of equals the earlier stays, so no child without its parent, which is at least as likely.
        order = worth.where(tree.real, -torch.inf).argsort(dim=1, descending=True, stable=True)
        place = torch.zeros_like(order).scatter(1, order, torch.arange(tree.size, device=order.device).expand_as(order))
        real = tree.real & (place < most[:, None])
        left = TokenTree(tree.token, tree.parent.where(real, -1), real, linear=tree.linear)
        return Proposal(left, p.q, p.draw, p.q_row, p.confidence)


def _check(drafters: Sequence[Drafter], name: str) -> None:
    if not drafters:
        raise ValueError(f"{name} needs at least one drafter")


def _different(drafters: Sequence[Drafter]) -> list[Drafter]:
    return list({id(d): d for d in drafters}.values())


def _proposals(drafters: Sequence[Drafter], context: Context) -> Iterator[Proposal]:
    for i, drafter in enumerate(drafters):
        yield drafter.propose(replace(context, sampler=context.sampler.apart(i)))

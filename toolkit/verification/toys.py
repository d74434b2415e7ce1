"""Toy languages small enough to be looked at whole, and drafters that guess in them.

A table says what comes after a path. It is a function of the whole path, as a language model is: rules that mix up
contexts get away with tables that are the same everywhere.

Letters: B rows, N nodes, V vocabulary, C cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from toolkit.draws import mix, unit
from toolkit.protocols import Draw, Proposal, Sampler
from toolkit.tree import TokenTree

_STEP = -7046029254386353131  # odd, so that (token + 1) * _STEP is another summand for every token


@dataclass(frozen=True, slots=True)
class Paths:
    """Texts of a toy, as far as a table can tell them apart."""

    case: Tensor  # [...] int64, which pair of tables
    name: Tensor  # [...] int64, another one for every sequence of tokens
    last: Tensor  # [...] int64, the last token

    @classmethod
    def start(cls, case: Tensor) -> Paths:
        """Before the first token; the pending token is 0."""
        return cls(case, mix(case + 1), torch.zeros_like(case))

    def then(self, token: Tensor) -> Paths:
        """One token further."""
        return Paths(self.case, mix(self.name + (token + 1) * _STEP), token)


Table = Callable[[Paths], Tensor]
"""[..., V] float64 logits of the token that comes after each path [...]."""


def random_table(vocabulary: int, seed: int, spread: float = 1.0) -> Table:
    """Another distribution after every path and in every case: a uniform point of the simplex when `spread` is 1, nearer
    to the uniform distribution below, nearer to a single token above."""

    def table(paths: Paths) -> Tensor:
        key = mix(paths.name + mix(torch.tensor(seed)))
        bits = mix(key[..., None] + torch.arange(1, vocabulary + 1) * _STEP)
        return spread * (-unit(bits).log()).log()  # logarithms of exponential variates

    return table


def fixed_table(probs: Tensor) -> Table:
    """The same after every path: probs is [V], or [C, V] with a row a case."""
    logits = probs.double().log()
    return lambda paths: logits[paths.case] if logits.ndim == 2 else logits.expand(*paths.case.shape, -1)


def along(tree: TokenTree, root: Paths) -> Paths:
    """The paths to all nodes [B, N] of trees that stand on the paths `root` [B]."""
    rows = torch.arange(tree.rows)
    name = root.name[:, None].repeat(1, tree.size)
    for i in range(1, tree.size):
        above = name[rows, tree.parent[:, i].clamp(min=0)]
        name[:, i] = Paths(root.case, above, above).then(tree.token[:, i]).name
    return Paths(root.case[:, None].expand_as(name), name, tree.token)


class Draft(Protocol):
    """Guesses over the shape `parent` [B, N] (-1 at roots and padding) on the paths `root` [B], from the table's
    distributions as the sampler shapes them."""

    def __call__(self, table: Table, parent: Tensor, root: Paths, sampler: Sampler) -> Proposal: ...


@dataclass(frozen=True, slots=True)
class Drawn:
    """An honest drafter: what it says of its guesses is what it did."""

    draw: Draw

    def __call__(self, table: Table, parent: Tensor, root: Paths, sampler: Sampler) -> Proposal:
        tree, q = sample(self.draw, table, parent, root, sampler)
        return Proposal(tree, None if self.draw == "certain" else q, self.draw)


def sample(draw: Draw, table: Table, parent: Tensor, root: Paths, sampler: Sampler) -> tuple[TokenTree, Tensor]:
    """Guesses over the shape, and q [B, N, V] after every node.

    `certain` siblings are the likeliest tokens, in order. Where siblings must differ, those beyond the last possible
    token are padding. `coupled` guesses share the noise of the target's draw. Raises ValueError for them in a tree with
    branches.
    """
    rows, size = torch.arange(len(parent)), parent.shape[1]
    chain = bool(((parent == torch.arange(size) - 1) | (parent < 0)).all())
    if draw == "coupled" and not chain:
        raise ValueError("a coupled draft is a chain: siblings would all be the one token that the noise chooses")
    token, name = root.last[:, None].repeat(1, size), root.name[:, None].repeat(1, size)
    real = parent >= 0
    real[:, 0] = True
    q = [sampler.probs(table(root)[:, None], TokenTree.chain(token[:, :1]))]  # [B, 1, V] each
    fresh = torch.cat(q * size, 1)  # [B, N, V] q less the children that a node has, where they must differ
    for i in range(1, size):
        above = parent[:, i].clamp(min=0)
        law = fresh[rows, above] * (real[:, i] & real[rows, above])[:, None]  # [B, V]
        real[:, i] = law.sum(-1) > 0
        if draw == "certain":
            token[:, i] = law.argmax(-1)
        elif draw == "coupled":
            token[:, i] = sampler.guess_coupled(law[:, None], i)[:, 0]  # in a chain a node's index is its depth
        else:
            token[:, i] = sampler.guess(law[:, None], i)[:, 0, 0]
        if draw in ("certain", "distinct"):
            fresh[rows, above, token[:, i]] *= ~real[:, i]
        path = Paths(root.case, name[rows, above], token[rows, above]).then(token[:, i])
        name[:, i] = path.name
        q.append(sampler.probs(table(path)[:, None], TokenTree.chain(token[:, :1])))
        fresh[:, i] = q[-1][:, 0]
    return TokenTree(token, parent.where(real, -1), real, linear=chain), torch.cat(q, 1)

"""The token tree: which tokens are guessed, and which guess follows which.

Node 0 of every row is the *pending* token: committed, but not yet read by the target. A chain is a tree; plain
decoding is a tree of one node. Parents come before their children, so a path is a rising list of node indices and
its last node, the *tip*, names it.

Letters: B rows (requests), N nodes, M nodes added or kept, S slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TokenTree:
    """A rectangular batch of trees. Rows with fewer nodes are padded with `real=False` nodes that see only themselves.

    `linear` is knowledge of the host: every row's real nodes are one chain in index order, padding at the end.
    It saves the mask's closure and the move of kept cache slots; leaving it False is always correct.

    Raises ValueError when the shapes disagree. `check()` also looks at the values, which costs a sync on a GPU.
    """

    token: Tensor  # [B, N] int64
    parent: Tensor  # [B, N] int64, smaller than the node's own index; -1 at the root and at padding
    real: Tensor  # [B, N] bool
    linear: bool = False
    _memo: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)  # derived, made once

    def __post_init__(self) -> None:
        if self.token.ndim != 2 or not self.token.shape == self.parent.shape == self.real.shape:
            raise ValueError(
                f"a TokenTree needs token, parent and real of one shape [rows, nodes]; got {tuple(self.token.shape)}, "
                f"{tuple(self.parent.shape)} and {tuple(self.real.shape)}"
            )

    @classmethod
    def chain(cls, token: Tensor, real: Tensor | None = None) -> TokenTree:
        """A chain from tokens [B, N]. `real` [B, N] must be True up to some node of each row and False after it."""
        real = torch.ones_like(token, dtype=torch.bool) if real is None else real
        parent = torch.arange(-1, token.shape[1] - 1, device=token.device).expand_as(token).where(real, -1)
        return cls(token, parent, real, linear=True)

    @classmethod
    def from_paths(cls, pending: Tensor, paths: Sequence[Sequence[Sequence[int]]]) -> TokenTree:
        """Merge continuations into one tree a row: `paths[b]` lists guessed token sequences, the best first.

        pending is [B, 1]. Paths that begin alike share their nodes, so no node has two children with the same token.
        """
        rows = [_merge(guesses) for guesses in paths]
        size = 1 + max((len(row) for row in rows), default=0)
        token, parent, real, linear = [], [], [], True
        for row in rows:
            pad = size - 1 - len(row)
            token.append([t for t, _ in row] + [0] * pad)
            parent.append([-1, *(p for _, p in row), *[-1] * pad])
            real.append([True] * (1 + len(row)) + [False] * pad)
            linear = linear and all(p == i for i, (_, p) in enumerate(row))
        made = [torch.tensor(x, device=pending.device) for x in (parent, real)]
        guess = torch.tensor(token, dtype=pending.dtype, device=pending.device).view(len(rows), size - 1)
        return cls(torch.cat([pending, guess], 1), *made, linear=linear)

    @property
    def rows(self) -> int:
        return self.token.shape[0]

    @property
    def size(self) -> int:
        return self.token.shape[1]

    @property
    def ancestors(self) -> Tensor:
        """[B, N, N] bool: is node j on the path from the root to node i, i itself included."""
        if "ancestors" not in self._memo:
            self._memo["ancestors"] = self._closure()
        return self._memo["ancestors"]

    @property
    def depth(self) -> Tensor:
        """[B, N] edges between a node and the root; 0 at padding."""
        if "depth" not in self._memo:
            if self.linear:
                self._memo["depth"] = torch.arange(self.size, device=self.token.device) * self.real
            else:
                self._memo["depth"] = self.ancestors.sum(-1) - 1
        return self._memo["depth"]

    def _closure(self) -> Tensor:
        eye = torch.eye(self.size, dtype=torch.bool, device=self.token.device)
        if self.linear:
            return eye | (eye.new_ones(self.size, self.size).tril() & self.real[:, :, None])
        nodes = torch.arange(self.size, device=self.token.device)
        reach = (self.parent[..., None] == nodes) | eye
        for _ in range((self.size - 1).bit_length()):  # squaring doubles the number of hops covered
            reach = reach.float() @ reach.float() > 0
        return reach

    def path(self, tip: Tensor) -> Tensor:
        """[B, N] bool: the nodes from the root to `tip` [B], which are real."""
        if self.linear:
            return torch.arange(self.size, device=tip.device) <= tip[:, None]
        return self.ancestors[torch.arange(self.rows, device=tip.device), tip]

    def grow(self, parent: Tensor, token: Tensor, *, linear: bool = False) -> TokenTree:
        """Add nodes [B, M] at the end; `parent` holds indices into this tree. `linear` vouches that it stays a chain."""
        return TokenTree(
            torch.cat([self.token, token], 1),
            torch.cat([self.parent, parent], 1),
            torch.cat([self.real, torch.ones_like(token, dtype=torch.bool)], 1),
            linear=linear and self.linear,
        )

    def prune(self, keep: Tensor) -> TokenTree:
        """Keep the nodes [B, M] (rising indices, the root first, closed under parents) and renumber the parents."""
        place = torch.arange(keep.shape[1], device=keep.device).expand_as(keep)
        place = torch.full_like(self.token, -1).scatter(1, keep, place)
        old = self.parent.gather(1, keep)
        parent = place.gather(1, old.clamp(min=0)).where(old >= 0, -1)
        return TokenTree(self.token.gather(1, keep), parent, self.real.gather(1, keep), linear=self.linear)

    def after(self, token: Tensor, real: Tensor) -> TokenTree:
        """This tree with a chain of tokens [B, P] before its root. `real` is True up to some token of each row and
        False after it, where the root then follows at once."""
        if token.shape[1] == 0:
            return self
        before = TokenTree.chain(token, real)
        p, count = token.shape[1], real.sum(1, keepdim=True)  # [B, 1]
        parent = torch.where(self.parent >= 0, self.parent + p, -1)
        parent[:, :1] = count - 1
        return TokenTree(
            torch.cat([token, self.token], 1),
            torch.cat([before.parent, parent], 1),
            torch.cat([real, self.real], 1),
            linear=self.linear and self.rows == 1,
        )

    def limit(self, depth: Tensor) -> TokenTree:
        """Turn the nodes deeper than `depth` [B] into padding: they could never be committed."""
        real = self.real & (self.depth <= depth[:, None])
        return TokenTree(self.token, self.parent.where(real, -1), real, linear=self.linear)

    def check(self) -> None:
        """Raise ValueError unless the values make a tree: roots real, parents real and before their children."""
        nodes = torch.arange(self.size, device=self.token.device)
        if not self.real[:, 0].all() or (self.parent[:, 0] != -1).any():
            raise ValueError("node 0 of every row must be real and have parent -1: it is the pending token")
        above = self.real.gather(1, self.parent.clamp(min=0))
        bad = self.real & (nodes > 0) & ~((self.parent >= 0) & (self.parent < nodes) & above)
        if bad.any() or (self.parent.where(~self.real, -1) != -1).any():
            row = int((bad.any(1) | (self.parent.where(~self.real, -1) != -1).any(1)).int().argmax())
            raise ValueError(
                f"row {row} is not a tree: every real node needs a real parent with a smaller index and padding needs "
                f"parent -1; got parents {self.parent[row].tolist()} with real {self.real[row].tolist()}"
            )


def path_first(path: Tensor) -> Tensor:
    """[B, N] bool to [B, N] indices: the nodes on the path in order, then all the others in order."""
    return (~path).int().argsort(dim=1, stable=True)


def _merge(guesses: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Token and parent of each node but the root, in depth-first order of first appearance."""
    nodes: list[tuple[int, int]] = []
    seen: dict[tuple[int, int], int] = {}  # (parent, token) -> node
    for guess in guesses:
        at = 0
        for token in guess:
            key = (at, int(token))
            if key not in seen:
                nodes.append((int(token), at))
                seen[key] = len(nodes)
            at = seen[key]
    return nodes

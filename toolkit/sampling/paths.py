"""What stands before each node of a tree: the committed text, then the guesses on the node's own path.

The root is the last committed token, so it is counted with the text and not with the tree. No host sync.

Letters: B rows, S slots, N nodes, M nodes from `start` on, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Paths:
    """The histories of the nodes from `start` on."""

    token: Tensor  # [B, S] committed tokens, then junk
    length: Tensor  # [B] how many are committed
    prompt: Tensor  # [B] how many of them are the prompt
    tree: TokenTree
    start: int = 0

    @property
    def depth(self) -> Tensor:
        """[B, M]"""
        return self.tree.depth[:, self.start :]

    @property
    def size(self) -> Tensor:
        """[B, M] tokens of each history."""
        return self.length[:, None] + self.depth

    @property
    def fresh(self) -> Tensor:
        """[B, M] index of the token that comes after each node among the new tokens."""
        return self.size - self.prompt[:, None]

    def counts(self, vocab: int, *, prompt: bool) -> Tensor:
        """[B, M, V] float32: how often each token stands in the history, with or without the prompt. Ids beyond `vocab`
        are not counted: a draft model's vocabulary may be the smaller one."""
        slot = torch.arange(self.token.shape[1], device=self.token.device)
        settled = (slot < self.length[:, None]) & (self.token < vocab)
        if not prompt:
            settled &= slot >= self.prompt[:, None]
        text = torch.zeros(len(self.token), vocab, device=self.token.device)
        text = text.scatter_add(1, self.token.clamp(0, vocab - 1), settled.float())  # [B, V]
        on_path = self.tree.ancestors[:, self.start :, 1:] & self.tree.real[:, None, 1:]  # [B, M, N - 1]
        guess = self.tree.token[:, None, 1:].expand_as(on_path)
        on_path = on_path & (guess < vocab)
        out = text[:, None].repeat(1, on_path.shape[1], 1)
        return out.scatter_add(2, guess.clamp(0, vocab - 1), on_path.float())

    def tails(self, size: int) -> Tensor:
        """[B, M, size] the last tokens of each history, the last one last; -1 before its beginning."""
        rows = torch.arange(self.tree.rows, device=self.token.device)[:, None]
        node = torch.arange(self.start, self.tree.size, device=self.token.device).expand(self.tree.rows, -1)
        slot = (self.length[:, None] - 1).expand_as(node)
        out = []
        for _ in range(size):
            text = self.token.gather(1, slot.clamp(min=0)).where(slot >= 0, -1)
            out.append(torch.where(node > 0, self.tree.token[rows, node], text))
            slot = slot - (node == 0).long()
            node = self.tree.parent[rows, node].clamp(min=0)
        return torch.stack(out[::-1], -1)

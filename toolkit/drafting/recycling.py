"""Token recycling (Luo et al. 2024, "Turning Trash into Treasure"): what the target thought of before, it may think again.

After every pass, the target's `width` likeliest next tokens after each node are noted under that node's token; a tree of
fixed ranks is then read off the table, level by level. No model, and a table of [V, width] token ids.

Letters: B rows, N nodes, V vocabulary, W nodes of a level.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from toolkit.drafting.planned import from_ranks
from toolkit.drafting.shapes import Fixed
from toolkit.protocols import Context, Proposal, Verdict
from toolkit.tree import TokenTree


def wide_tree(nodes: int = 32, width: int = 8) -> Fixed:
    """A tree for guesses whose chance falls with rank and hardly with depth."""
    return from_ranks([[0.5 * 0.5**r for r in range(width)]] * 6, nodes)


@dataclass(slots=True)
class Recycling:
    """shape: which ranks are tried at which depth. The table is shared by all rows and kept from request to request; it
    begins empty, and what it holds only decides what is guessed. Nodes of no real row teach it nothing."""

    shape: Fixed = field(default_factory=wide_tree)
    table: Tensor | None = field(default=None, repr=False)  # [V + 1, width] next tokens, -1 for none; the last for junk

    @property
    def width(self) -> int:
        return 1 + max(max(c) for c in self.shape.choices)

    def propose(self, context: Context) -> Proposal:
        tree = TokenTree.chain(context.pending)
        if self.table is None:
            return Proposal(tree)
        front: dict[tuple[int, ...], int] = {(): 0}  # the node of each choice
        levels = min(self.shape.depth, max(context.room))
        known = torch.ones_like(tree.real)
        for depth in range(1, levels + 1):
            choices = self.shape.at(depth)
            above = torch.tensor([front[c[:-1]] for c in choices], device=tree.token.device)
            rank = torch.tensor([c[-1] for c in choices], device=tree.token.device)
            guess = self.table[tree.token[:, above], rank]  # [B, W]
            known = torch.cat([known, known[:, above] & (guess >= 0)], 1)
            front = {c: tree.size + i for i, c in enumerate(choices)}
            tree = tree.grow(above.expand_as(guess), guess.clamp(min=0))
        return Proposal(TokenTree(tree.token, tree.parent.where(known, -1), known))

    def observe(self, context: Context, proposal: Proposal, logits: Tensor, verdict: Verdict) -> None:
        vocab, width = logits.shape[-1], self.width
        if self.table is None or self.table.shape[0] != vocab + 1 or self.table.shape[1] < width:
            self.table = proposal.tree.token.new_full((vocab + 1, width), -1)
        best = logits.topk(self.table.shape[1], -1).indices.flatten(0, 1)  # [B * N, width]
        real = proposal.tree.real & torch.tensor(context.room, device=logits.device)[:, None].gt(0)
        token = proposal.tree.token.where(real, vocab).flatten()
        node = torch.arange(len(token), device=token.device)
        last = node.new_zeros(vocab + 1).scatter_reduce(0, token, node, "amax")
        self.table[token.where(last[token] == node, vocab)] = best  # of equal tokens the last one's list stays

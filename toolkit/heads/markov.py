"""What the token before says about a guess, for heads whose guesses are all made at once (DSpark, 2026).

Letters: B rows, M nodes, H hidden size, R rank, V vocabulary, W tokens that the head says.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

MarkovKind = Literal["vanilla", "gated", "rnn"]


class MarkovHead(nn.Module):
    """Adds a low-rank table of token pairs to the logits: second[next] . first[previous].

    kind  vanilla: the table alone. gated: the place's state decides how much of it counts. rnn: a memory of all tokens
          of the block before takes the table's first half's place
    said  tokens told apart, `vocab` of them by default; hidden: size of a place's state, for gated and rnn
    """

    def __init__(
        self, vocab: int, rank: int, *, said: int | None = None, hidden: int = 0, kind: MarkovKind = "vanilla"
    ) -> None:
        super().__init__()
        if kind not in get_args(MarkovKind):
            raise ValueError(f"there is no Markov head of kind {kind!r}: use {', '.join(get_args(MarkovKind))}")
        self.kind, self.rank = kind, rank
        self.markov_w1 = nn.Embedding(vocab, rank)
        self.markov_w2 = nn.Linear(rank, said or vocab, bias=False)
        self.gate_proj = nn.Linear(hidden + rank, rank) if kind == "gated" else None
        self.joint_proj = nn.Linear(2 * rank + hidden, 3 * rank) if kind == "rnn" else None
        nn.init.zeros_(self.markov_w2.weight)  # a new one changes nothing

    def forward(self, previous: Tensor) -> Tensor:
        """[B, N, W] for previous tokens [B, N]. Raises ValueError for kinds that ask for more than the token before."""
        if self.kind != "vanilla":
            raise ValueError(f"a {self.kind} Markov head also reads states: call step(previous, hidden, memory)")
        return self.markov_w2(self.markov_w1(previous))

    def step(self, previous: Tensor, hidden: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """What is added to the logits [B, M, W], and the memory [B, M, R] after it: from the tokens before [B, M], the states
        of the places [B, M, H] and the memories after the places before [B, M, R], zero at a block's start."""
        x = self.markov_w1(previous)
        if self.gate_proj is not None:
            x = self.gate_proj(torch.cat([hidden, x], -1)).sigmoid() * x
        elif self.joint_proj is not None:
            gate, new, out = self.joint_proj(torch.cat([memory, x, hidden], -1)).chunk(3, -1)
            gate, x = gate.sigmoid(), out.tanh()
            memory = gate * memory + (1 - gate) * new.tanh()
        return self.markov_w2(x), memory


class ConfidenceHead(nn.Module):
    """How likely a place's guess is to be accepted, from the place's state and, `rank` > 0, the token before."""

    def __init__(self, hidden: int, rank: int = 0) -> None:
        super().__init__()
        self.rank = rank
        self.proj = nn.Linear(hidden + rank, 1)

    def forward(self, hidden: Tensor, before: Tensor) -> Tensor:
        """[B, M] probabilities from states [B, M, H] and the Markov head's entries of the tokens before [B, M, R]."""
        x = torch.cat([hidden, before], -1) if self.rank else hidden
        return self.proj(x)[..., 0].sigmoid()

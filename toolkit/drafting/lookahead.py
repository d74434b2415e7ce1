"""Lookahead decoding (Fu et al. 2024, "Break the Sequential Dependency of LLM Inference Using Lookahead Decoding").

The target guesses several future places at once by Jacobi iteration, in the very pass that verifies: a window of columns,
each a short trail of guesses, goes out as further branches of the token tree. Column c stands c places ahead: its first
entries form a chain from the pending token, and its later ones hang below its first. What the target says after the last
entries becomes the next generation. Trails that held are kept as n-grams, and those that begin with the pending token are
guessed next time.

Letters: B rows, N nodes, C columns, L levels, V vocabulary.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from toolkit.protocols import Context, Proposal, Verdict
from toolkit.tree import TokenTree

Trail = tuple[int, ...]


@dataclass(slots=True)
class Lookahead:
    """columns: places looked ahead; size: tokens of an n-gram, the first one included; guesses: n-grams tried in a step.
    memory: n-grams kept for each first token, the latest.

    A step's tree has columns * (size - 1) + guesses * (size - 1) guesses at most: each is a row of the target's pass, which
    is where the method's price lies. The pool is kept from request to request; it only decides what is guessed. The first
    window copies tokens of the text. In a `Mixture` it learns when it is the first drafter. Works on the host with one copy of the window's arg-max tokens a step.
    Raises ValueError for counts below one and a size below two.
    """

    columns: int = 5
    size: int = 3
    guesses: int = 5
    memory: int = 16
    pool: dict[int, OrderedDict[Trail, None]] = field(default_factory=dict, repr=False)
    _window: list[list[list[int]]] = field(default_factory=list, init=False, repr=False)  # [B][L][C]
    _names: tuple[Hashable, ...] = field(default=(), init=False, repr=False)  # whose rows the windows are
    _place: list[int] = field(
        default_factory=list, init=False, repr=False
    )  # [B] the window's first node in the last tree

    def __post_init__(self) -> None:
        for name, least in (("columns", 1), ("size", 2), ("guesses", 1), ("memory", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"Lookahead needs {name} of at least {least}; got {getattr(self, name)}")

    @property
    def levels(self) -> int:
        return self.size - 1

    def propose(self, context: Context) -> Proposal:
        names = context.who or tuple(range(context.rows))
        if names != self._names:
            old = dict(zip(self._names, self._window, strict=True))
            self._window = [old.get(name) or self._begin(context.row(b)) for b, name in enumerate(names)]
            self._names = names
        rows = [self._row(context, b) for b in range(context.rows)]
        self._place = [1 + len(guesses) for guesses, _ in rows]
        size = 1 + max(len(guesses) + len(window) for guesses, window in rows)
        token = np.zeros((context.rows, size), np.int64)
        parent = np.full((context.rows, size), -1, np.int64)
        real = np.zeros((context.rows, size), bool)
        real[:, 0] = True
        for b, (guesses, window) in enumerate(rows):
            shift = len(guesses)
            nodes = guesses + [(t, p + shift if p else 0) for t, p in window]
            for i, (t, p) in enumerate(nodes, start=1):
                token[b, i], parent[b, i], real[b, i] = t, p, True
        guess, above, there = (torch.from_numpy(x).to(context.token.device) for x in (token, parent, real))
        return Proposal(TokenTree(torch.cat([context.pending, guess[:, 1:]], 1), above, there))

    def observe(self, context: Context, proposal: Proposal, logits: Tensor, verdict: Verdict) -> None:
        """Take the next generation from the target's pass, keep the trails, and move on by what was accepted."""
        if len(self._window) != context.rows or len(self._place) != context.rows:
            return
        tree = proposal.tree
        said, token, real = (x.cpu().numpy() for x in (logits.argmax(-1), tree.token, tree.real))  # [B, N]
        kept = tree.path(verdict.tip).sum(1).tolist()  # tokens committed: accepted ones and one more
        for b, room in enumerate(context.room):
            if room < 1:
                continue
            window, at = self._window[b], self._place[b]
            mine = slice(at, at + len(window) * self.columns)
            if token[b, mine].tolist() != [t for line in window for t in line] or not real[b, mine].all():
                continue  # in a mixture, or cut by a budget, the window may stand elsewhere or not at all
            last = at + (len(window) - 1) * self.columns
            fresh = said[b, last : last + self.columns].tolist()
            whole = [*window, fresh]
            by = kept[b]
            if len(window) == self.levels:
                for c in range(self.columns):
                    self._keep(tuple(line[c] for line in whole))
                whole, by = whole[1:], by - 1  # every level stands one place further ahead than the one before
            self._window[b] = [self._moved(line, by) for line in whole]

    def _row(self, context: Context, b: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Token and parent of the nodes of the guesses, and of the window's, whose parents are counted within it from 1."""
        if context.room[b] < 1:
            return [], []
        pending = int(context.row(b)[-1])
        trails = list(self.pool.get(pending, ()))[::-1][: self.guesses]
        tree = TokenTree.from_paths(torch.tensor([[pending]]), [[list(t) for t in trails]])
        guesses = list(zip(tree.token[0, 1:].tolist(), tree.parent[0, 1:].tolist(), strict=True))
        window: list[tuple[int, int]] = []
        for level, line in enumerate(self._window[b]):
            for c, token in enumerate(line):
                above = c if level == 0 else (level - 1) * self.columns + c + 1  # 0 is the pending token
                window.append((token, above))
        return guesses, window

    def _begin(self, text: np.ndarray) -> list[list[int]]:
        """A window of one level."""
        return [[int(text[-1 - c % len(text)]) for c in range(self.columns)]]

    def _moved(self, line: list[int], by: int) -> list[int]:
        """The line `by` places further on: what is behind goes, the end is repeated."""
        by = min(by, len(line) - 1)
        return line[by:] + line[-1:] * by

    def _keep(self, trail: Trail) -> None:
        known = self.pool.setdefault(trail[0], OrderedDict())
        known.pop(trail[1:], None)
        known[trail[1:]] = None
        while len(known) > self.memory:
            known.popitem(last=False)

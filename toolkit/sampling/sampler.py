"""The sampler of a batch: each row with its own parameters and its own keyed randomness.

Letters: B rows, M nodes, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from toolkit.argmax import argmax
from toolkit.draws import DRAFT, EMIT, Draws
from toolkit.sampling import filters
from toolkit.sampling.params import Sampling
from toolkit.sampling.paths import Paths
from toolkit.sampling.stages import Stage, stages_of
from toolkit.tree import TokenTree


@dataclass(frozen=True, slots=True)
class BatchSampler:
    """Answers the `Sampler` socket. Made once for a batch by `of`, bound to a step's text by `at`."""

    rows: tuple[Sampling, ...]
    draws: Draws
    length: Tensor  # [B] committed tokens: the root of a tree stands at position length - 1
    heat: Tensor  # [B, 1, 1] temperature
    top_k: Tensor  # [B, 1, 1]
    top_p: Tensor  # [B, 1, 1]
    min_p: Tensor  # [B, 1, 1]
    typical_p: Tensor  # [B, 1, 1]
    stages: tuple[Stage, ...] = ()  # before temperature; none that no row uses
    prompt: Tensor | None = None  # [B] tokens of the prompts
    token: Tensor | None = None  # [B, S] committed tokens, then junk
    salt: int = 0  # tells the guesses of several drafters apart

    @classmethod
    def of(
        cls,
        rows: Sequence[Sampling],
        device: torch.device | str = "cpu",
        *,
        prompts: Sequence[int] | None = None,
        ends: Sequence[Sequence[int]] | None = None,
    ) -> BatchSampler:
        """`prompts` are the lengths of the prompts and `ends` the stop tokens, one entry a row; none are 0 and ()."""

        def column(values: list[float] | list[int], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device).view(-1, 1, 1)

        return cls(
            tuple(rows),
            Draws(torch.tensor([r.seed for r in rows], device=device)),
            torch.ones(len(rows), dtype=torch.long, device=device),
            column([r.heat for r in rows], torch.float64),
            column([r.top_k for r in rows], torch.long),
            column([r.top_p for r in rows], torch.float64),
            column([r.min_p for r in rows], torch.float64),
            column([r.typical_p for r in rows], torch.float64),
            stages_of(rows, ends or [()] * len(rows), device),
            torch.tensor(list(prompts or [0] * len(rows)), device=device),
        )

    def at(self, length: Tensor, token: Tensor | None = None) -> BatchSampler:
        """The same sampler for rows of which `length` [B] tokens are committed, those of `token` [B, S]. Only stages that
        look at the text need it."""
        return replace(self, length=length, token=token)

    @property
    def greedy(self) -> bool:
        return all(r.heat == 0 for r in self.rows)

    def probs(self, logits: Tensor, tree: TokenTree, start: int = 0) -> Tensor:
        """[B, M, V], in float32, or float64 when the logits are. Row at temperature 0: all on the first arg-max."""
        logits = self.processed(logits if logits.dtype == torch.float64 else logits.float(), tree, start)
        if self.greedy:
            return self._certain(logits)
        warm = self.heat > 0
        out = logits / self.heat.where(warm, 1).to(logits.dtype)
        if most := max(r.top_k for r in self.rows):
            out = filters.top_k(out, self.top_k, most)
        if any(r.top_p < 1 for r in self.rows):
            out = filters.top_p(out, self.top_p)
        if any(r.min_p > 0 for r in self.rows):
            out = filters.min_p(out, self.min_p)
        if any(r.typical_p < 1 for r in self.rows):
            out = filters.typical_p(out, self.typical_p)
        if all(r.heat > 0 for r in self.rows):
            return out.softmax(-1)
        return out.softmax(-1).where(warm, self._certain(logits))

    def best(self, logits: Tensor, tree: TokenTree) -> Tensor:
        return argmax(self.processed(logits, tree))

    def processed(self, logits: Tensor, tree: TokenTree, start: int = 0) -> Tensor:
        """[B, M, V] logits before temperature: biases, penalties and constraints of each node's own path are in. Without
        any they come back as they are; half precision is widened first."""
        if not self.stages:
            return logits
        if self.token is None or self.prompt is None:
            raise ValueError(
                "penalties and constraints need the committed text: bind the sampler by `at(length, token)`"
            )
        logits = logits if logits.dtype == torch.float64 else logits.float()
        paths = Paths(self.token, self.length, self.prompt, tree, start)
        for stage in self.stages:
            logits = stage(logits, paths)
        return logits

    def _certain(self, logits: Tensor) -> Tensor:
        return one_hot(argmax(logits), logits.shape[-1]).to(logits.dtype)

    def coin(self, prob: Tensor, depth: Tensor, lane: Tensor | int = 0) -> tuple[Tensor, Tensor]:
        return self.draws.coin(prob, self.length - 1 + depth, lane)

    def emit(self, probs: Tensor, depth: Tensor) -> Tensor:
        if self.greedy:  # all on one token: nothing to draw
            return argmax(probs)
        return self.draws.pick(probs, EMIT, self.length - 1 + depth)

    def guess(self, probs: Tensor, depth: int, lanes: int = 1) -> Tensor:
        """Lanes number the nodes of a level and the draws at a node, so no two guesses share their noise.

        Nor do guesses of one position made in different steps, at different depths. A rule that looks at guesses beyond
        the accepted ones (block, traversal) learns something about their noise, and it must not come back.
        """
        if self.greedy:
            return argmax(probs)[..., None].expand(-1, -1, lanes)
        nodes = probs.shape[1]
        lane = (
            (self.salt << 48) + (depth << 32) + torch.arange(nodes * lanes, device=probs.device).view(nodes, lanes)
        )  # [M, lanes]
        position = (self.length - 1 + depth).view(-1, 1, 1).expand(-1, nodes, lanes)
        return self.draws.pick(probs[:, :, None], DRAFT, position, lane)

    def apart(self, salt: int) -> BatchSampler:
        return replace(self, salt=salt)

    def guess_coupled(self, probs: Tensor, depth: int) -> Tensor:
        """Shares `emit`'s stream on purpose: `Coupled` alone may verify it."""
        if self.greedy:
            return argmax(probs)
        position = (self.length - 1 + depth)[:, None].expand(-1, probs.shape[1])
        return self.draws.pick(probs, EMIT, position)

"""A batch of requests on its way: what is committed, the target's cache, when each row ends, and the trace.

Letters: B rows, S slots, N nodes, F features.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from toolkit.cache import fill
from toolkit.engine.crossing import cross
from toolkit.protocols import LM, Context, KVCache, Proposal, Reading, Tap, Verdict
from toolkit.sampling import BatchSampler, Sampling, TokenLogprob, logprobs
from toolkit.sampling.stopping import Judge
from toolkit.trace import RowRecord, Trace
from toolkit.tree import TokenTree, path_first

LEAVE = 256  # committed tokens at most that are read in one pass with the first tree, and so cost no pass of their own


@dataclass(slots=True)
class Session:
    """Made by `Engine.start`, moved by `Engine.step`. Reading its properties between steps is always safe."""

    lm: LM
    cache: KVCache
    sampler: BatchSampler
    judges: list[Judge]
    prompts: tuple[tuple[int, ...], ...]
    token: Tensor  # [B, S] committed tokens, then junk
    host: np.ndarray  # [B, S] the same on the host
    lengths: list[int]  # committed tokens, the prompt included
    taps: tuple[Tap, ...] = ()
    feature: Tensor | None = None  # [B, S, F] target hidden states of the settled tokens
    trace: Trace = field(default_factory=Trace)
    began: float = field(default_factory=time.perf_counter)
    behind: bool = True  # the target's cache may lack committed tokens
    scores: list[list[TokenLogprob]] = field(default_factory=list)  # of the new tokens of rows that asked for them
    unread: tuple[Tensor, Tensor] | None = None  # committed tokens [B, P] and which are real, read with the next tree

    @classmethod
    def of(
        cls, lm: LM, prompts: Sequence[Sequence[int]], samplings: Sequence[Sampling], judges: list[Judge]
    ) -> Session:
        """A session in which only the prompts are committed and nothing has been read."""
        lengths = [len(p) for p in prompts]
        slots = max(n + j.room for n, j in zip(lengths, judges, strict=True)) + 64
        host = np.zeros((len(prompts), slots), np.int64)
        for row, prompt in zip(host, prompts, strict=True):
            row[: len(prompt)] = prompt
        cache = lm.open(len(prompts), slots)
        token = torch.from_numpy(host.copy()).to(cache.length.device)
        ends = [j.stopping.tokens for j in judges]
        sampler = BatchSampler.of(samplings, token.device, prompts=lengths.copy(), ends=ends)
        kept = tuple(map(tuple, prompts))
        scores: list[list[TokenLogprob]] = [[] for _ in prompts]
        return cls(lm, cache, sampler, judges, kept, token, host, lengths, trace=Trace(kept), scores=scores)

    @property
    def rows(self) -> int:
        return len(self.lengths)

    @property
    def done(self) -> bool:
        """Has every request ended."""
        return all(j.reason for j in self.judges)

    @property
    def outputs(self) -> list[list[int]]:
        """The new tokens of each row."""
        return [
            self.host[b, len(p) : n].tolist() for b, (p, n) in enumerate(zip(self.prompts, self.lengths, strict=True))
        ]

    @property
    def logprobs(self) -> list[list[TokenLogprob] | None]:
        """One entry for each new token of a row whose `Sampling.logprobs` asks for them, None for other rows."""
        return [
            list(s) if r.logprobs is not None else None for s, r in zip(self.scores, self.sampler.rows, strict=True)
        ]

    @property
    def texts(self) -> list[str]:
        """The new text of each row, never ending in half a character; '' without a decoder."""
        return [j.text for j in self.judges]

    @property
    def reasons(self) -> list[str | None]:
        """Why each row ended, None while it goes on."""
        return [j.reason for j in self.judges]

    def context(self) -> Context:
        length = torch.tensor(self.lengths, device=self.token.device)
        room = tuple(max(0, j.room - 1) for j in self.judges)  # the bonus takes one
        return Context(
            self.token,
            length,
            self.host,
            tuple(self.lengths),
            room,
            self.sampler.at(length, self.token),
            self.feature,
            self.cache,
        )

    def read_up(self, lm: LM, taps: tuple[Tap, ...], *, whole: bool = False) -> None:
        """Make the target's cache hold the committed tokens but the pending one: the prefill, and whatever a change of
        target or of the features asked for makes necessary. The last of them may be left to the next tree's pass, unless the
        `whole` is wanted now."""
        if lm is not self.lm or taps != self.taps:
            self.feature = None  # another tensor tells a head that what it knows is another model's
        if lm is not self.lm or (taps and taps != self.taps):
            self.lm, self.cache, self.behind = lm, lm.open(self.rows, self.token.shape[1]), True
        self.taps = taps
        if self.behind or (whole and self.unread):
            self.unread = None
            context = self.context()
            # A drafter that wants features, or the cache itself, wants those of every token before its guess.
            leave = 0 if taps or whole else LEAVE
            fill(lm, self.cache, context, leave=leave, taps=taps, sink=self._file)
            lacking = np.array(context.lengths) - 1 - self.cache.filled
            slot = self.cache.length[:, None] + torch.arange(int(lacking.max()), device=self.token.device)  # [B, P]
            inside = slot.clamp(max=self.token.shape[1] - 1)
            self.unread = self.token.gather(1, inside), slot < context.length[:, None] - 1
            self.behind = False

    def read(self, tree: TokenTree) -> Reading:
        """The target's pass over a tree, and over what was left unread before it."""
        whole = tree.after(*self.unread) if self.unread else tree
        skipped = whole.size - tree.size
        reading = self.lm.read(whole, self.cache, taps=self.taps, last=tree.size if skipped else None)
        feature = None if reading.feature is None else reading.feature[:, skipped:]
        return Reading(reading.logits, feature)

    def commit(self, proposal: Proposal, reading: Reading, verdict: Verdict, top: int) -> tuple[RowRecord | None, ...]:
        """Make the accepted path and the bonus part of the past, as far as each request goes. The one sync of a step.

        Raises ValueError, with nothing committed, when the tree is none or the target's logits are not numbers.
        """
        tree = proposal.tree
        path = tree.path(verdict.tip)
        scored = any(r.logprobs is not None for r in self.sampler.rows)
        sampler = (
            self.sampler.at(torch.tensor(self.lengths, device=path.device), self.token) if scored else self.sampler
        )
        extra = logprobs.columns(sampler, reading.logits, tree, verdict.tip, verdict.bonus)
        crossed = cross(proposal, reading.logits, verdict, top, extra)
        for b, judge in enumerate(self.judges):
            if not judge.reason:
                crossed.check(b, self.lengths[b] - 1, int(self.host[b, self.lengths[b] - 1]))
        if reading.feature is not None:
            slot = self.cache.length[:, None] + torch.arange(tree.size, device=path.device)
            order = path_first(path)
            self._file(
                reading.feature.gather(1, order[..., None].expand_as(reading.feature)), slot, path.gather(1, order)
            )
        self.behind = True  # until the host has followed
        if self.unread:
            self.cache.keep(tree.after(*self.unread), torch.cat([self.unread[1], path], 1))
            self.unread = None
        else:
            self.cache.keep(tree, path)

        records: list[RowRecord | None] = []
        slot = np.array(self.lengths)[:, None] + np.arange(tree.size)  # [B, N] where new tokens go
        fresh = np.zeros_like(slot)
        for b, judge in enumerate(self.judges):
            if judge.reason:
                records.append(None)
                continue
            tokens, start = crossed.emitted(b), self.lengths[b]
            tokens = tokens[: judge.take(tokens)]
            self.scores[b] += logprobs.entries(self.sampler.rows[b], crossed.rows[b], crossed.path(b), tokens)
            self.host[b, start : start + len(tokens)] = tokens
            fresh[b, : len(tokens)] = tokens
            self.lengths[b] += len(tokens)
            records.append(crossed.record(b, start - 1, tokens, judge.reason))
        at = slot.clip(max=self.token.shape[1] - 1)  # past a row's end stands junk, so the rest may be written too
        where, what = (torch.from_numpy(x).to(self.token.device) for x in (at, fresh))
        self.token.scatter_(1, where, what)
        self.cache.trust(self.host, np.array(self.lengths) - 1)
        self.behind = False
        return tuple(records)

    def rewind(self, steps: int = 1) -> int:
        """Undo the last steps; return how many were undone. Every part's cache follows at its next use."""
        steps = min(steps, len(self.trace.steps))
        keep = len(self.trace.steps) - steps
        for b, judge in enumerate(self.judges):
            undone = sum(len(r.emitted) for s in self.trace.steps[keep:] if (r := s.rows[b]))
            if undone:
                self.lengths[b] -= undone
                judge.rewind(judge.count - undone)
                del self.scores[b][judge.count :]
        self.behind = True
        self.trace.rewind(keep)
        return steps

    def _file(self, feature: Tensor, slot: Tensor, real: Tensor) -> None:
        """Keep features [B, M, F] of the tokens at slots [B, M] where `real`."""
        if self.feature is None:
            self.feature = feature.new_zeros(*self.token.shape, feature.shape[-1])
        slot = slot.clamp(max=self.token.shape[1] - 1)
        at = slot[..., None].expand_as(feature)
        old = self.feature.gather(1, at)
        self.feature.scatter_(1, at, torch.where(real[..., None], feature, old))

"""A batch of requests on its way: what is committed, the target's cache, and the trace.

Letters: B rows, S slots, N nodes, F features, P unread tokens.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from toolkit.cache import fill
from toolkit.engine.crossing import cross
from toolkit.engine.entry import SPARE, Entry
from toolkit.engine.evidence import Gathered
from toolkit.protocols import LM, Context, KVCache, Paging, Reading, Tap, Verdict
from toolkit.sampling import BatchSampler, TokenLogprob, logprobs
from toolkit.sampling.stopping import Judge
from toolkit.trace import RowRecord, Trace
from toolkit.tree import TokenTree, path_first

LEAVE = 256  # committed tokens at most that are read in one pass with the first tree, and so cost no pass of their own


@dataclass(slots=True)
class Session:
    """Made by `Engine.start`, moved by `Engine.step`. Reading its properties between steps is always safe."""

    lm: LM
    cache: KVCache
    entries: list[Entry] = field(default_factory=list)
    trace: Trace = field(default_factory=Trace)
    taps: tuple[Tap, ...] = ()
    paging: Paging | None = None
    chunk: int = 256  # tokens that a pass over a prompt reads at most
    named: bool = False  # do rows come and go, so that caches must know whose they are
    began: float = field(default_factory=time.perf_counter)
    behind: bool = True  # the target's cache may lack committed tokens
    asked: tuple[Entry, ...] = ()  # whose own part, text or numbers are being looked at: theirs is what goes wrong now
    origin: object = field(default_factory=object)
    token: Tensor = field(init=False)  # [B, S] committed tokens, then junk
    host: np.ndarray = field(init=False)  # [B, S] the same on the host
    feature: Tensor | None = field(default=None, init=False)  # [B, S, F] target hidden states of the settled tokens
    unread: tuple[Tensor, Tensor] | None = None  # committed tokens [B, P] and which are real, read with the next tree
    _samplers: dict[tuple[int, ...], BatchSampler] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        entries, self.entries = self.entries, []
        self.seat(entries)

    @classmethod
    def of(cls, lm: LM, entries: Sequence[Entry]) -> Session:
        """A session of requests whose rows stay as they are, each in memory of its own. Nothing has been read."""
        cache = lm.open(len(entries), max(len(e.text) for e in entries))
        return cls(lm, cache, list(entries), Trace(tuple(e.prompt for e in entries)))

    def seat(self, entries: Sequence[Entry]) -> None:
        """Make these the rows, in this order. Rows that leave take their features along."""
        old, feature = {e: b for b, e in enumerate(self.entries)}, self.feature
        for e, b in old.items():
            if feature is not None and e not in entries:
                e.feature = feature[b, : e.length - 1].clone()
        self.entries, self.behind, self.unread, self.feature = list(entries), True, None, None
        self._copy_texts()
        for b, e in enumerate(entries):
            kept = feature[old[e], : e.length - 1] if feature is not None and e in old else e.feature
            if kept is not None:
                self._room_for(kept)[b, : len(kept)] = kept
            e.feature = None
        self._samplers.clear()

    @property
    def rows(self) -> int:
        return len(self.entries)

    @property
    def lengths(self) -> list[int]:
        """Committed tokens of each row, the prompt included."""
        return [e.length for e in self.entries]

    @property
    def judges(self) -> list[Judge]:
        return [e.judge for e in self.entries]

    @property
    def prompts(self) -> tuple[tuple[int, ...], ...]:
        return tuple(e.prompt for e in self.entries)

    @property
    def done(self) -> bool:
        """Has every request ended."""
        return all(e.judge.reason for e in self.entries)

    @property
    def outputs(self) -> list[list[int]]:
        """The new tokens of each row."""
        return [e.output for e in self.entries]

    @property
    def logprobs(self) -> list[list[TokenLogprob] | None]:
        """One entry for each new token of a row whose `Sampling.logprobs` asks for them, None for other rows."""
        return [list(e.scores) if e.sampling.logprobs is not None else None for e in self.entries]

    @property
    def texts(self) -> list[str]:
        """The new text of each row, never ending in half a character; '' without a decoder."""
        return [e.judge.text for e in self.entries]

    @property
    def reasons(self) -> list[str | None]:
        """Why each row ended, None while it goes on."""
        return [e.judge.reason for e in self.entries]

    @property
    def sampler(self) -> BatchSampler:
        """Of all rows, bound to what is committed."""
        return self._sampler(tuple(range(self.rows)), torch.tensor(self.lengths, device=self.token.device), self.token)

    def context(self, rows: Sequence[int] | None = None) -> Context:
        """What is committed, of all rows or of some."""
        chosen = tuple(range(self.rows)) if rows is None else tuple(rows)
        entries = [self.entries[b] for b in chosen]
        lengths = tuple(e.length for e in entries)
        length = torch.tensor(lengths, device=self.token.device)
        token, host, feature = self.token, self.host, self.feature
        if len(chosen) < self.rows:
            index = torch.tensor(chosen, device=token.device)
            token, host = token[index], host[list(chosen)]
            feature = None if feature is None else feature[index]
        who: tuple[Hashable, ...] = tuple(entries) if self.named else ()
        return Context(
            token,
            length,
            host,
            lengths,
            tuple(e.room for e in entries),
            self._sampler(chosen, length, token),
            feature,
            self.cache,
            who=who,
            paging=self.paging,
            origin=self.origin,
            chunk=self.chunk,
        )

    def fit(self, lm: LM, taps: tuple[Tap, ...]) -> None:
        """Follow another target, or a wish for other features: what is known of the old is of no use."""
        if lm is not self.lm or taps != self.taps:
            self.feature, self.origin = None, object()
            for e in self.entries:
                e.feature = None
        if lm is not self.lm or (taps and taps != self.taps):
            self.lm, self.behind = lm, True
            self.cache = lm.open(self.rows, self.token.shape[1], self.paging)
        self.taps = taps

    def read_up(self, *, whole: bool = False) -> None:
        """Make the target's cache hold the committed tokens but the pending one: the prefill, and whatever `fit` and `seat`
        make necessary. The last of them may be left to the next tree's pass, unless the `whole` is wanted now."""
        if self.behind:  # also after an interrupt in the middle of a commit
            self._copy_texts()
        if self.behind or (whole and self.unread):
            self.unread = None
            # A drafter that wants features, or the cache itself, wants those of every token before its guess.
            self.prefill(leave=0 if self.taps or whole else LEAVE)
            lacking = np.array(self.lengths) - 1 - self.cache.filled
            if lacking.max(initial=0):
                slot = self.cache.length[:, None] + torch.arange(int(lacking.max()), device=self.token.device)  # [B, P]
                real = slot < torch.tensor(self.lengths, device=slot.device)[:, None] - 1
                self.unread = self.token.gather(1, slot.clamp(max=self.token.shape[1] - 1)), real
            self.behind = False

    def prefill(self, *, leave: int = 0, passes: int | None = None) -> None:
        """Read what the target's cache lacks, in so many passes at most."""
        fill(self.lm, self.cache, self.context(), leave=leave, passes=passes, taps=self.taps, sink=self._file)
        for b, e in enumerate(self.entries):
            if self.taps and not e.recalled and (found := self.cache.found.get(e, 0)):
                known = self.cache.recall(b, found)  # [n, F]
                self._room_for(known)[b, :found] = known
            e.recalled = True

    def read(self, tree: TokenTree) -> Reading:
        """The target's pass over a tree, and over what was left unread before it."""
        whole = tree.after(*self.unread) if self.unread else tree
        skipped = whole.size - tree.size
        reading = self.lm.read(whole, self.cache, taps=self.taps, last=tree.size if skipped else None)
        feature = None if reading.feature is None else reading.feature[:, skipped:]
        return Reading(reading.logits, feature)

    def commit(
        self,
        tree: TokenTree,
        confidence: Tensor | None,
        reading: Reading,
        verdict: Verdict,
        top: int,
        evidence: Gathered | None = None,
    ) -> tuple[RowRecord | None, ...]:
        """Make the accepted path and the bonus part of the past, as far as each request goes. The one sync of a step.

        Raises ValueError, with nothing committed, when the tree is none or the target's logits are not numbers.
        """
        path = tree.path(verdict.tip)
        extra = {}
        if any(e.sampling.logprobs is not None for e in self.entries):
            extra = logprobs.columns(self.sampler, reading.logits, tree, verdict.tip, verdict.bonus)
        crossed = cross(tree, confidence, reading.logits, verdict, top, extra, evidence)
        for b, e in enumerate(self.entries):
            if not e.judge.reason:
                self.asked = (e,) if e.drafter or not crossed.sound[b] else ()
                crossed.check(b, e.length - 1, int(e.text[e.length - 1]))
        length = self.cache.length
        self.behind = True  # until the host has followed
        if self.unread:
            self.cache.keep(tree.after(*self.unread), torch.cat([self.unread[1], path], 1))
            self.unread = None
        else:
            self.cache.keep(tree, path)
        if reading.feature is not None:
            slot = length[:, None] + torch.arange(tree.size, device=path.device)
            order = path_first(path)
            kept = reading.feature.gather(1, order[..., None].expand_as(reading.feature))
            self._file(kept, slot, path.gather(1, order))

        records: list[RowRecord | None] = []
        slots = np.array(self.lengths)[:, None] + np.arange(tree.size)  # [B, N] where new tokens go
        fresh = np.zeros_like(slots)
        starts = [e.length for e in self.entries]
        try:
            for b, (e, start) in enumerate(zip(self.entries, starts, strict=True)):
                if e.judge.reason:
                    records.append(None)
                    continue
                self.asked = (e,)
                tokens = crossed.emitted(b)
                tokens = tokens[: e.take(tokens)]
                e.scores += logprobs.entries(e.sampling, crossed.rows[b], crossed.path(b), tokens)
                self.host[b, start : start + len(tokens)] = tokens
                fresh[b, : len(tokens)] = tokens
                records.append(crossed.record(b, start - 1, tokens, e.judge.reason))
        except BaseException:  # all or none: what is committed must be told in a record
            for e, start in zip(self.entries, starts, strict=True):
                e.undo(e.length - start)
            raise
        self.asked = ()
        at = slots.clip(max=self.token.shape[1] - 1)  # past a row's end stands junk, so the rest may be written too
        where, what = (torch.from_numpy(x).to(self.token.device) for x in (at, fresh))
        self.token.scatter_(1, where, what)
        self.cache.trust(self.host, np.array(self.lengths) - 1)
        self.behind = False
        return tuple(records)

    def rewind(self, steps: int = 1) -> int:
        """Undo the last steps; return how many were undone. Every part's cache follows at its next use."""
        steps = min(steps, len(self.trace.steps))
        keep = len(self.trace.steps) - steps
        for b, e in enumerate(self.entries):
            e.undo(sum(len(r.emitted) for s in self.trace.steps[keep:] if (r := s.rows[b])))
        self.behind = True
        self.trace.rewind(keep)
        return steps

    def ask(self, rows: Sequence[int], part: Literal["drafter", "rule"]) -> None:
        """Note that these rows' drafter or rule is asked now, if it is their own."""
        entries = tuple(self.entries[b] for b in rows)
        self.asked = entries if all(getattr(e, part) is not None for e in entries) else ()

    def _copy_texts(self) -> None:
        """What the rows have committed, to the host's and the device's array."""
        slots = max((len(e.text) for e in self.entries), default=SPARE)
        self.host = np.zeros((self.rows, slots), np.int64)
        for row, e in zip(self.host, self.entries, strict=True):
            row[: e.length] = e.text[: e.length]
        self.token = torch.from_numpy(self.host.copy()).to(self.cache.length.device)

    def _sampler(self, rows: tuple[int, ...], length: Tensor, token: Tensor) -> BatchSampler:
        if rows not in self._samplers:
            entries = [self.entries[b] for b in rows]
            self._samplers[rows] = BatchSampler.of(
                [e.sampling for e in entries],
                token.device,
                prompts=[len(e.prompt) for e in entries],
                ends=[e.judge.stopping.tokens for e in entries],
            )
        return self._samplers[rows].at(length, token)

    def _file(self, feature: Tensor, slot: Tensor, real: Tensor) -> None:
        """Keep features [B, M, F] of the tokens at slots [B, M] where `real`."""
        kept = self._room_for(feature)
        inside = slot.clamp(max=self.token.shape[1] - 1)
        at = inside[..., None].expand_as(feature)
        kept.scatter_(1, at, torch.where(real[..., None], feature, kept.gather(1, at)))
        if self.paging:
            self.cache.file(feature, slot, real)

    def _room_for(self, like: Tensor) -> Tensor:
        """The features of all rows, of the width and dtype of `like`."""
        if self.feature is None:
            self.feature = like.new_zeros(*self.token.shape, like.shape[-1])
        return self.feature

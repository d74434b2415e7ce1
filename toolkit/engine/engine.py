"""The loop. Every part is a field; assign another between any two steps to swap it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar

import torch

from toolkit.drafting import Nothing
from toolkit.engine.session import Session
from toolkit.protocols import LM, Drafter, Proposal, Rule, Tap
from toolkit.sampling import Sampling, Stopping, check
from toolkit.sampling.processors import refuse_stateful
from toolkit.sampling.stopping import Judge
from toolkit.sampling.text import Decode
from toolkit.trace import StepRecord
from toolkit.trace.clock import Clock
from toolkit.verification import Rejection
from toolkit.verification.check import check_draw


@dataclass(slots=True)
class Engine:
    """Speculative decoding of a batch of requests.

    target    the model whose output is wanted
    drafter   guesses; `Nothing()` is plain decoding
    rule      decides which guesses are kept
    sampling, stopping  what requests ask for unless they say otherwise in `start`
    decode    token ids to text, for stop strings and `Session.texts`
    top       how many of the target's likeliest next tokens to record after each node; 0 costs nothing
    """

    target: LM
    drafter: Drafter = field(default_factory=Nothing)
    rule: Rule = field(default_factory=Rejection)
    sampling: Sampling = field(default_factory=Sampling)
    stopping: Stopping = field(default_factory=Stopping)
    decode: Decode | None = field(default=None, repr=False)
    top: int = 0

    def start(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        sampling: Sampling | Sequence[Sampling] | None = None,
        stopping: Stopping | Sequence[Stopping] | None = None,
        n: int = 1,
    ) -> Session:
        """Check the requests and make a session of them. Nothing is read yet: the first step does the prefill.

        prompts: token ids, one sequence a row; rows may differ in length. sampling and stopping: one for all rows or
        one a prompt. n: samples of each prompt, side by side; the i-th is what a request of its own with
        `sampling.sample(i)` gives. Raises ValueError for empty prompts, ids outside the vocabulary, prompts that fill the
        context, and sampling parameters that contradict the vocabulary or the stopping.
        """
        limit, vocab = self.target.limit, self.target.vocab
        if not prompts:
            raise ValueError("there is no prompt: give at least one sequence of token ids")
        for b, prompt in enumerate(prompts):
            if len(prompt) == 0:
                raise ValueError(f"prompt {b} is empty: give at least one token, for instance the begin-of-text token")
            if len(prompt) >= limit:
                raise ValueError(
                    f"prompt {b} has {len(prompt)} tokens, and the target's context holds {limit} with at least one new: "
                    f"shorten it to {limit - 1}"
                )
            if min(prompt) < 0 or max(prompt) >= vocab:
                bad = next(t for t in prompt if not 0 <= t < vocab)
                raise ValueError(f"prompt {b} holds token {bad}, outside the target's vocabulary 0..{vocab - 1}")
        samplings = _one_a_row(sampling or self.sampling, len(prompts), "sampling")
        stoppings = _one_a_row(stopping or self.stopping, len(prompts), "stopping")
        if n < 1:
            raise ValueError(f"n is the number of samples of each prompt, at least 1; got {n}")
        for s, stop in zip(samplings, stoppings, strict=True):
            check.request(s, stop, vocab)
        samplings = [s.sample(i) for s in samplings for i in range(n)]
        stoppings = [s for s in stoppings for _ in range(n)]
        prompts = [p for p in prompts for _ in range(n)]
        judges = [
            Judge(stop, limit - len(p), self.decode, s.grammar)
            for stop, p, s in zip(stoppings, prompts, samplings, strict=True)
        ]
        _same_vocabulary(_leaves(self.drafter), self.target)
        _shares(_leaves(self.drafter), self.target)
        with torch.inference_mode():
            session = Session.of(self.target, prompts, samplings, judges)
            for prompt, s in zip(prompts, samplings, strict=True):
                for processor in s.processors:
                    refuse_stateful(processor, prompt, vocab, session.token.device)
        session.trace.about.update(engine=repr(self), sampling=repr(samplings[0]), stopping=repr(stoppings[0]))
        return session

    @torch.inference_mode()
    def step(self, session: Session) -> StepRecord:
        """One target pass for every row. Each field is read once, so parts may be assigned from another thread."""
        target, drafter, rule, top = self.target, self.drafter, self.rule, self.top
        parts = _leaves(drafter)
        taps = _taps(parts)
        _same_vocabulary(parts, target)
        began = perf_counter()
        session.read_up(target, taps, whole=_shares(parts, target))
        clock = Clock(session.token.device)
        context = session.context()
        proposal = _fit(drafter.propose(context), context.room, context.rows, type(drafter).__name__)
        check_draw(rule, proposal)
        clock.mark("draft")
        reading = session.read(proposal.tree)
        clock.mark("target")
        verdict = rule(proposal, reading.logits, context.sampler)
        clock.mark("verify")
        for leaf in parts:
            if observe := getattr(leaf, "observe", None):
                observe(context, proposal, reading.logits, verdict)
                clock.mark("draft")
        rows = session.commit(proposal, reading, verdict, top)
        clock.mark("commit")
        record = StepRecord(
            len(session.trace.steps),
            rows,
            type(drafter).__name__,
            type(rule).__name__,
            proposal.tree.size,
            clock.ms(),
            began - session.began,
        )
        session.trace.append(record)
        return record

    def run(self, session: Session) -> Iterator[StepRecord]:
        """Step until every request has ended. Leave the loop to pause, call again to go on."""
        while not session.done:
            yield self.step(session)
        session.trace.notify(force=True)

    def generate(self, prompts: Sequence[Sequence[int]], **options: Any) -> Session:
        """Run requests to their end; `options` as in `start`."""
        session = self.start(prompts, **options)
        for _ in self.run(session):
            pass
        return session


T = TypeVar("T")


def _one_a_row(value: T | Sequence[T], rows: int, name: str) -> list[T]:
    if isinstance(value, Sequence):
        if len(value) != rows:
            raise ValueError(f"{name} has {len(value)} entries for {rows} prompts: give one for all, or one a prompt")
        return list(value)
    return [value] * rows


def _leaves(drafter: Drafter) -> list[Drafter]:
    """A drafter's parts that have no parts themselves, each once."""
    parts = getattr(drafter, "parts", ())
    found = [leaf for part in parts for leaf in _leaves(part)] if parts else [drafter]
    return list({id(leaf): leaf for leaf in found}.values())


def _taps(parts: Sequence[Drafter]) -> tuple[Tap, ...]:
    wanted = list(dict.fromkeys(t for d in parts if (t := tuple(getattr(d, "taps", ())))))
    if len(wanted) > 1:
        raise ValueError(
            f"the drafters of one step want the target's features {wanted[0]} and {wanted[1]}, and there is one set a step: "
            f"use heads with the same taps"
        )
    return wanted[0] if wanted else ()


def _shares(parts: Sequence[Drafter], target: LM) -> bool:
    """Does a drafter read through the target's cache."""
    shared = [lm for d in parts if (lm := getattr(d, "shares", None)) is not None]
    if any(lm is not target for lm in shared):
        raise ValueError(
            f"an early exit reads through the cache of the target it was made from, and that is another model than {target!r}: "
            f"make it from this one"
        )
    return bool(shared)


def _same_vocabulary(parts: Sequence[Drafter], target: LM) -> None:
    for drafter in parts:
        head = getattr(getattr(drafter, "head", None), "config", None)
        known = (getattr(drafter, "model", None), "vocab"), (head, "vocab"), (drafter, "target_vocab")
        for part, name in known:
            if (vocab := getattr(part, name, target.vocab)) != target.vocab:
                raise ValueError(
                    f"the vocabulary of {type(drafter).__name__} has {vocab} tokens and the target's {target.vocab}: use a draft "
                    f"model or head made for this target, or Intersection or Reencode for a model with another tokenizer"
                )


def _fit(proposal: Proposal, room: tuple[int, ...], rows: int, name: str) -> Proposal:
    """Refuse a proposal of the wrong batch; turn nodes into padding that no request could commit any more."""
    tree = proposal.tree
    if tree.rows != rows:
        raise ValueError(f"{name} proposed trees for {tree.rows} rows, and the batch has {rows}")
    if tree.size == 1:
        return proposal
    depth = torch.tensor(room, device=tree.token.device)
    return Proposal(tree.limit(depth), proposal.q, proposal.draw, proposal.source, proposal.confidence)

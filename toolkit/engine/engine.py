"""The loop. Every part is a field; assign another between any two steps to swap it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, TypeVar

import torch

from toolkit.drafting import Nothing
from toolkit.engine import refuse
from toolkit.engine.entry import Entry
from toolkit.engine.evidence import gather
from toolkit.engine.groups import Draft, grouped, guess, joined, judge, own
from toolkit.engine.leaves import leaves, same_vocabulary, shares, taps_of
from toolkit.engine.session import Session
from toolkit.protocols import LM, Drafter, Rule
from toolkit.sampling import Sampling, Stopping, check
from toolkit.sampling.processors import refuse_stateful
from toolkit.sampling.stopping import Judge
from toolkit.sampling.text import Decode
from toolkit.trace import StepRecord
from toolkit.trace.clock import Clock
from toolkit.verification import Rejection


@dataclass(slots=True)
class Engine:
    """Speculative decoding of a batch of requests.

    target    the model whose output is wanted
    drafter   guesses; `Nothing()` is plain decoding
    rule      decides which guesses are kept
    sampling, stopping  what requests ask for unless they say otherwise in `start`
    decode    token ids to text, for stop strings and `Session.texts`
    top       how many of the target's likeliest next tokens to record after each node; 0 costs nothing
    evidence  how many of the likeliest tokens of target and drafter to record with all that a verdict depends on, so that
              `toolkit.whatif` can judge the step again; 0 costs nothing, 64 some kilobytes a step and row
    """

    target: LM
    drafter: Drafter = field(default_factory=Nothing)
    rule: Rule = field(default_factory=Rejection)
    sampling: Sampling = field(default_factory=Sampling)
    stopping: Stopping = field(default_factory=Stopping)
    decode: Decode | None = field(default=None, repr=False)
    top: int = 0
    evidence: int = 0

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
        if not prompts:
            raise ValueError("there is no prompt: give at least one sequence of token ids")
        samplings = _one_a_row(sampling or self.sampling, len(prompts), "sampling")
        stoppings = _one_a_row(stopping or self.stopping, len(prompts), "stopping")
        n = refuse.whole(n, "n, the number of samples of each prompt,")
        entries = []
        for b, (prompt, s, stop) in enumerate(zip(prompts, samplings, stoppings, strict=True)):
            self.check(prompt, s, stop, f"prompt {b}")
            entries += [self.entry(prompt, s.sample(i), stop) for i in range(n)]
        self.check_drafters([self.drafter])
        with torch.inference_mode():
            session = Session.of(self.target, entries)
        session.trace.about.update(engine=repr(self), sampling=repr(samplings[0]), stopping=repr(stoppings[0]))
        return session

    def check(self, prompt: Sequence[int], sampling: Sampling, stopping: Stopping, name: str = "the prompt") -> None:
        """Raise ValueError for a request that cannot be served: see `start`."""
        refuse.kind(sampling, Sampling, "sampling")
        refuse.kind(stopping, Stopping, "stopping")
        prompt = refuse.token_ids(prompt, name)
        limit, vocab = self.target.limit, self.target.vocab
        if len(prompt) == 0:
            raise ValueError(f"{name} is empty: give at least one token, for instance the begin-of-text token")
        if len(prompt) >= limit:
            raise ValueError(
                f"{name} has {len(prompt)} tokens, and the target's context holds {limit} with at least one new: "
                f"shorten it to {limit - 1}"
            )
        if min(prompt) < 0 or max(prompt) >= vocab:
            bad = next(t for t in prompt if not 0 <= t < vocab)
            raise ValueError(f"{name} holds token {bad}, outside the target's vocabulary 0..{vocab - 1}")
        check.request(sampling, stopping, vocab)
        with torch.inference_mode():
            for processor in sampling.processors:
                refuse_stateful(processor, prompt, vocab, getattr(self.target, "device", torch.device("cpu")))

    def check_drafters(self, drafters: Iterable[Drafter]) -> None:
        """Raise ValueError for drafters that cannot guess for this target."""
        parts = leaves(drafters)
        for part in parts:
            refuse.answers(part, "propose", "a drafter")
        same_vocabulary(parts, self.target)
        shares(parts, self.target)

    def entry(self, prompt: Sequence[int], sampling: Sampling, stopping: Stopping) -> Entry:
        """A request of which only the prompt is committed."""
        room = self.target.limit - len(prompt)
        return Entry.of(prompt, sampling, Judge(stopping, room, self.decode, sampling.grammar))

    def step(self, session: Session) -> StepRecord:
        """One target pass for every row. Each field is read once, so parts may be assigned from another thread."""
        record = self.verify(session, self.draft(session))
        session.trace.append(record)
        return record

    @torch.inference_mode()
    def draft(self, session: Session, *, plain: bool = False) -> Draft:
        """Bring the target's cache up to date, and let every drafter guess for its rows; `plain` lets nobody guess."""
        began, target = perf_counter(), self.target
        session.asked = ()
        groups = grouped(session.entries, self.drafter, self.rule)
        if plain:
            nobody = Nothing()
            groups = [replace(g, drafter=nobody) for g in groups]
        parts = leaves(g.drafter for g in groups)
        same_vocabulary(parts, target)
        through = shares(parts, target)
        if not session.named:  # else whoever lets rows come and go has seen to it, for rows that wait have wishes too
            session.fit(target, taps_of(parts))
        session.read_up(whole=through)
        clock = Clock(session.token.device)
        made = [guess(session, g, alone=len(groups) == 1) for g in groups]
        if through and len(groups) > 1:
            session.cache.agree(session.context())  # a drafter had seated its own rows alone
        clock.mark("draft")
        return Draft.of(made, clock, began)

    @torch.inference_mode()
    def verify(self, session: Session, draft: Draft) -> StepRecord:
        """Let the target read the trees, judge and commit."""
        clock = draft.clock
        reading = session.read(draft.tree)
        clock.mark("target")
        verdicts = judge(session, draft, reading.logits)
        clock.mark("verify")
        for part, verdict in zip(draft.parts, verdicts, strict=True):
            for leaf in leaves([part.group.drafter]):
                if observe := getattr(leaf, "observe", None):
                    session.ask(part.group.rows, "drafter")
                    observe(part.context, part.proposal, own(part, draft, reading.logits), verdict)
                    clock.mark("draft")
        seen, session.asked = None, ()
        if self.evidence:
            seen = gather(draft, reading.logits, verdicts, [e.sampling for e in session.entries], self.evidence)
        rows = session.commit(draft.tree, draft.confidence, reading, joined(verdicts, draft), self.top, seen)
        clock.mark("commit")
        return StepRecord(
            len(session.trace.steps),
            rows,
            _names(part.group.drafter for part in draft.parts),
            _names(part.group.rule for part in draft.parts),
            draft.tree.size,
            clock.ms(),
            draft.began - session.began,
        )

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


def _names(parts: Iterable[object]) -> str:
    """What a record calls the drafters or rules of a step."""
    return ", ".join(dict.fromkeys(type(part).__name__ for part in parts))

"""Whatever happens to a server, in whatever order: everything adds up, and who finishes has what it gives alone."""

from __future__ import annotations

import functools

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from test_server import DRAFTERS, alone
from tiny import V, lm

from toolkit.drafting import Nothing
from toolkit.engine import Engine, InTurn, Overtaking, Server
from toolkit.sampling import Sampling, Stopping
from toolkit.verification import Coupled, Rejection

HOT = Sampling(0.8, top_k=12, seed=7)
FEATURES = ("eagle", "medusa")  # the same taps, so that they can serve in one batch
KINDS = ("nothing", "ngram", "recycling", "draft model, tree", "early exit", *FEATURES)


@functools.cache
def sampled(prompt: tuple[int, ...], n: int, seed: int) -> list[int]:
    sampling = Sampling(0.8, top_k=12, seed=seed)
    return Engine(lm(0), rule=Coupled(), stopping=Stopping(n)).generate([prompt], sampling=sampling).outputs[0]


class Life(RuleBasedStateMachine):
    @initialize(
        page=st.sampled_from([1, 2, 4, 7]),
        slots=st.integers(34, 90),
        rows=st.integers(1, 5),
        chunk=st.sampled_from([1, 3, 16]),
        share=st.booleans(),
        policy=st.sampled_from([InTurn(4), InTurn(None), Overtaking(7)]),
    )
    def begin(self, page, slots, rows, chunk, share, policy):
        engine = Engine(lm(0), Nothing(), Rejection(), stopping=Stopping(12))
        self.server = Server(
            engine, pages=-(-slots // page), page=page, rows=rows, chunk=chunk, share=share, policy=policy
        )
        self.tickets = []
        self.drafters = {
            kind: DRAFTERS[kind]() for kind in KINDS
        }  # what they keep of one request must not hurt the next

    @rule(
        begin=st.sampled_from([[], [3] * 9, [1, 2, 3, 4, 5, 6, 7, 8]]),
        rest=st.lists(st.integers(0, V - 1), min_size=1, max_size=12),
        n=st.integers(1, 12),
        kind=st.sampled_from([None, *KINDS]),
        hot=st.booleans(),
        priority=st.integers(0, 1),
        twin=st.booleans(),
    )
    def add(self, begin, rest, n, kind, hot, priority, twin):
        options = {"drafter": kind and self.drafters[kind], "priority": priority, "stopping": Stopping(n)}
        if hot:
            options |= {"sampling": HOT, "rule": Coupled()}
        other = self.tickets[-1] if twin and self.tickets else None
        self.tickets.append(self.server.add([*begin, *rest], twin=other, **options))

    @rule(n=st.integers(2, 3), prompt=st.lists(st.integers(0, V - 1), min_size=1, max_size=14))
    def add_samples(self, n, prompt):
        self.tickets += self.server.add_samples(prompt, n, sampling=HOT, rule=Coupled(), stopping=Stopping(8))

    @rule(steps=st.integers(1, 5))
    def step(self, steps):
        for _ in range(steps):
            if not self.server.done:
                self.server.step()

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def abort(self, data):
        self.server.abort(data.draw(st.sampled_from(self.tickets)))

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def preempt(self, data):
        self.server.preempt(data.draw(st.sampled_from(self.tickets)))

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def fork(self, data):
        ticket = data.draw(st.sampled_from(self.tickets))
        if ticket.entry.length + 2 < 34:
            self.tickets.append(self.server.fork(ticket))

    @precondition(lambda self: any(not t.done for t in self.tickets))
    @rule(data=st.data(), tokens=st.integers(0, 9))
    def rewind(self, data, tokens):
        self.server.rewind(data.draw(st.sampled_from([t for t in self.tickets if not t.done])), tokens)

    @rule(kind=st.sampled_from(KINDS))
    def swap(self, kind):
        self.server.engine.drafter = self.drafters[kind]

    @rule(policy=st.sampled_from([InTurn(1), InTurn(None), Overtaking(5)]))
    def change_policy(self, policy):
        self.server.policy = policy

    @rule()
    def reset(self):
        self.server.reset()

    @invariant()
    def all_adds_up(self):
        self.server.check()
        shot = self.server.snapshot()
        assert {name for page in shot.pages for name in page} <= {*shot.prefilling, *shot.running}

    @invariant()
    def who_has_finished_has_what_it_gives_alone(self):
        for t in [t for t in self.tickets if t.done]:
            self.tickets.remove(t)
            if t.state == "finished":
                self.right(t)

    def right(self, t) -> None:
        e = t.entry
        n = e.judge.stopping.max_new_tokens
        hot = e.sampling.heat > 0
        assert t.output == (sampled(e.prompt, n, e.sampling.seed) if hot else alone(e.prompt, n)), t

    def teardown(self):
        if not hasattr(self, "server"):
            return
        for n, _ in enumerate(self.server.run()):
            self.server.check()
            assert n < 2000, "the server does not come to an end"
        for t in self.tickets:
            assert t.done
            if t.state == "finished":
                self.right(t)
        assert self.server.accounts.held == 0


def live(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )


def test_a_few_lives_of_a_server():
    live(12, 25)


@pytest.mark.slow
def test_many_long_lives_of_a_server():
    """At least 3,000 events, most of them several steps."""
    live(60, 60)

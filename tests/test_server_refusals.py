"""Whatever cannot work is refused in one sentence, before any work, and leaves nothing behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_server import alone, serve, server
from tiny import lm

from toolkit.drafting import NGram
from toolkit.engine import Engine, InTurn, Live, Server
from toolkit.sampling import Sampling, Stopping
from toolkit.verification import Rejection

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("name", ["pages", "page", "rows", "chunk"])
@pytest.mark.parametrize("value", [0, -3, NAN, INF, 2.5, 2.0, "8", None])
def test_numbers_of_a_server(name, value):
    with pytest.raises(ValueError, match=f"^{name} of a server must be .*at least 1; got {value!r}$"):
        server(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("pages", 10**12), ("page", 10**9)])
def test_pages_that_the_machine_has_no_memory_for(name, value):
    """The system would kill the process: nothing asked for so much before."""
    with pytest.raises(ValueError, match=rf"{value} .*GiB, and this machine has [\d.]+: give fewer or smaller pages"):
        server(**{name: value})


@pytest.mark.parametrize(
    ("engine", "policy", "says"),
    [
        (None, None, "engine of a server must be of the class Engine; got None"),
        (Engine(lm(0)), 3, "the policy must have a method `next`; got 3"),
        (Engine(lm(0)), InTurn, r"the policy is the class InTurn: give an object of it, as InTurn\(\) makes"),
    ],
)
def test_parts_of_a_server(engine, policy, says):
    with pytest.raises(ValueError, match=says):
        Server(engine, policy=policy)


@pytest.mark.parametrize("value", [0, NAN, 2.5, "x"])
def test_tokens_of_a_policy(value):
    with pytest.raises(ValueError, match=r"tokens of prompts a step must be .*at least 1; got"):
        InTurn(value)


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        5,
        "abc",
        [1.5],
        [NAN],
        [None],
        [[1, 2]],
        {1: 2},
        {1},
        pytest.param((x for x in "1"), id="a generator"),
        [1.0],
        torch.tensor([[1, 2]]),
    ],
    ids=str,
)
def test_prompts_that_are_none(prompt):
    s = server()
    with pytest.raises(ValueError, match=r"the prompt must be one sequence of token ids; got .*encode a text"):
        s.add(prompt)
    with pytest.raises(ValueError, match="prompt 0 must be one sequence of token ids"):
        s.engine.start([prompt])
    assert s.done and not s.trace.steps


def test_arrays_are_prompts_and_become_plain_numbers():
    s = server()
    tickets = [s.add(p) for p in (np.array([1, 2]), torch.tensor([1, 2]), range(1, 3))]
    serve(s)
    assert all(t.entry.prompt == (1, 2) and type(t.entry.prompt[0]) is int for t in tickets)
    assert all(t.output == alone((1, 2)) for t in tickets)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sampling": {"temperature": 1}}, "sampling must be of the class Sampling; got {'temperature': 1}"),
        ({"stopping": 3}, "stopping must be of the class Stopping; got 3"),
        ({"drafter": 3}, "a drafter must have a method `propose`; got 3"),
        ({"drafter": NGram}, r"a drafter is the class NGram: give an object of it, as NGram\(\) makes"),
        ({"rule": 3}, "the rule must be a function; got 3"),
        ({"rule": Rejection}, "the rule is the class Rejection"),
        ({"priority": NAN}, "priority must be a whole number.*got nan"),
        ({"priority": None}, "priority must be a whole number.*got None"),
        ({"name": 3}, "the name of a request must be of the class str; got 3"),
        ({"twin": 3}, "a request must be of the class Ticket; got 3"),
    ],
)
def test_options_of_a_request(options, says):
    """Most of them came out of a step, or never, and then took all requests along."""
    s = server()
    with pytest.raises(ValueError, match=says):
        s.add([1, 2], **options)
    assert s.done and not s.trace.steps


@pytest.mark.parametrize("n", [0, -1, 2.5, NAN, "2", None])
def test_counts_of_samples_and_tokens_to_rewind(n):
    s = server()
    with pytest.raises(ValueError, match=r"number of samples of a prompt, must be .*at least 1; got"):
        s.add_samples([1], n)
    assert s.done
    if n == 0:
        return
    t = s.add([1])
    with pytest.raises(ValueError, match=r"tokens to rewind must be .*at least 0; got"):
        s.rewind(t, n)


def test_samples_are_added_all_or_none():
    """The second one's name was found to be taken when the first one was in already."""
    s = server()
    taken = s.add([1, 2], name="a.1")
    with pytest.raises(ValueError, match=r"named 'a.1' already: choose another name for the first"):
        s.add_samples([1], 2, name="a")
    assert s.waiting == [taken]


def test_a_name_of_ones_own_choice_does_not_get_in_the_way_of_those_that_are_given():
    s = server()
    s.add([1], name="r1")
    assert [s.add([2]).name, s.add([3]).name] == ["r2", "r3"]


def test_requests_of_another_server_are_refused_by_every_call():
    one, other = server(), server()
    mine, theirs = one.add([1, 2]), other.add([3, 4])
    calls = [other.abort, other.preempt, other.rewind, other.fork, lambda t: other.add([1], twin=t)]
    for call in calls:
        with pytest.raises(ValueError, match="request of another server: give it to the one"):
            call(mine)
        with pytest.raises(ValueError, match="must be of the class Ticket; got 'r0'"):
            call("r0")
    serve(one)
    serve(other)
    assert mine.output == alone((1, 2)) and theirs.output == alone((3, 4))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_new_tokens": NAN}, "whole number of at least 1; got nan"),
        ({"max_new_tokens": INF}, "whole number of at least 1; got inf"),
        ({"max_new_tokens": None}, "whole number of at least 1; got None"),
        ({"max_new_tokens": "3"}, "whole number of at least 1; got '3'"),
        ({"strings": "stop"}, "stop strings must be several.*got 'stop'"),  # it ended at the first s, t, o or p
        ({"strings": (3,)}, "stop strings must be several"),
        ({"tokens": 2}, "stop tokens must be several token ids.*got 2"),
        ({"tokens": (1.5,)}, "stop tokens must be several token ids"),
    ],
)
def test_ends_that_are_none(options, says):
    with pytest.raises(ValueError, match=says):
        Stopping(**options)
    assert Stopping(max_new_tokens=np.int64(3), tokens=[np.int64(2)], strings=["a"])


def test_a_live_loop_refuses_steps_and_delays_that_are_none():
    s = server()
    s.add([1], sampling=Sampling())
    for steps in (0, 2.5, NAN):
        with pytest.raises(ValueError, match=r"steps must be .*at least 1; got"):
            Live(s).step(steps)
    for delay in (-1, NAN):
        with pytest.raises(ValueError, match=r"delay is a number of seconds.*at least 0; got"):
            Live(s, delay=delay)

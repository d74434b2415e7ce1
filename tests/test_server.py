"""Batches whose requests come and go: every output is what the request would give alone, and every page comes back."""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_heads import drafter as with_head
from tiny import PROMPTS, V, greedy, lm, noisy_lm, reference, tiny
from transformers import MistralConfig, MistralForCausalLM

from toolkit.drafting import (
    Adaptive,
    Chain,
    DraftModel,
    Dynamic,
    EarlyExit,
    Lookahead,
    Mixture,
    NGram,
    Nothing,
    Recycling,
    Sampled,
    Suffix,
)
from toolkit.engine import Engine, InTurn, Live, Overtaking, Server
from toolkit.models.early_exit import first_layers
from toolkit.models.hf import HFModel
from toolkit.sampling import Sampling, Stopping
from toolkit.trace import metrics
from toolkit.trace.requests import requests
from toolkit.verification import Coupled, Rejection

STOP = Stopping(20)


@functools.cache
def alone(prompt: tuple[int, ...], n: int = 20, seed: int = 0) -> list[int]:
    return reference(tiny(seed), prompt, n)


def server(drafter=None, *, stopping: Stopping = STOP, rule=None, target=None, **options) -> Server:
    options = {"pages": 64, "page": 4, "rows": 4, "chunk": 8, **options}
    engine = Engine(target or lm(0), drafter or Nothing(), rule or Rejection(), stopping=stopping)
    return Server(engine, **options)


def serve(s: Server, most: int = 3000) -> None:
    """To the end, with everything added up after each step; the count is the watchdog."""
    for n, _ in enumerate(s.run()):
        s.check()
        assert n < most, "the server does not come to an end"


def texts(count: int, seed: int = 0, longest: int = 30) -> list[list[int]]:
    g = np.random.default_rng(seed)
    return [g.integers(0, V, g.integers(1, longest)).tolist() for _ in range(count)]


DRAFTERS = {
    "nothing": Nothing,
    "ngram": lambda: NGram(branches=2),
    "suffix": Suffix,
    "recycling": Recycling,
    "lookahead": Lookahead,
    "draft model, chain": lambda: DraftModel(noisy_lm(0), Chain(3)),
    "draft model, tree": lambda: DraftModel(noisy_lm(0), Dynamic(3, 3, 8)),
    "early exit": lambda: EarlyExit(first_layers(lm(0), 1), Dynamic(2, 3, 5)),
    "mixture": lambda: Mixture((NGram(), DraftModel(noisy_lm(0), Chain(2)))),
    "adaptive": lambda: Adaptive(NGram()),
    "eagle": lambda: with_head("eagle", Chain(3)),
    "eagle 3, tree": lambda: with_head("eagle 3", Dynamic(3, 3, 8)),
    "mtp": lambda: with_head("mtp", Chain(2)),
    "medusa": lambda: with_head("medusa", Dynamic(3, 3, 8)),
    "block": lambda: with_head("block", Chain(3)),
}


@pytest.mark.parametrize("pages", [64, 14])
@pytest.mark.parametrize("name", DRAFTERS)
def test_every_output_is_what_the_request_gives_alone(name, pages):
    """Eight requests for four rows and, the second time, so few pages that some must give way."""
    s = server(DRAFTERS[name](), pages=pages)
    tickets = [s.add(p) for p in texts(8)]
    serve(s)
    for t in tickets:
        assert t.output == alone(t.entry.prompt) and t.reason == "length" and t.state == "finished"
    assert s.accounts.held == 0 and (pages == 64 or sum(t.preemptions for t in tickets))


@pytest.mark.parametrize("page", [3, *(pytest.param(page, marks=pytest.mark.slow) for page in (1, 16))])
@pytest.mark.parametrize("draw", ["coupled", "certain", "distinct"])
def test_coupled_samples_do_not_depend_on_the_batch(page, draw):
    shape = {"coupled": Chain(3, coupled=True), "certain": Dynamic(3, 3, 8), "distinct": Sampled((2, 2))}[draw]
    samplings = [Sampling(0.9, top_k=9, seed=3), Sampling(0), Sampling(top_p=0.8, seed=-4), Sampling(1.7, seed=3)] * 2
    prompts = texts(8, 1)
    want = Engine(lm(0), rule=Coupled(), stopping=STOP).generate(prompts, sampling=samplings).outputs
    s = server(DraftModel(noisy_lm(0), shape), rule=Coupled(), page=page, pages=64 // page)
    tickets = [s.add(p, sampling=x) for p, x in zip(prompts, samplings, strict=True)]
    serve(s)
    assert [t.output for t in tickets] == want


def test_one_batch_of_many_drafters_rules_and_samplings():
    """Drawn and certain guesses in one step, each group under its own rule: exact or, for the coupled, reproducible."""
    drafters = [NGram(), DraftModel(noisy_lm(0), Chain(3)), None, with_head("eagle", Dynamic(3, 3, 8))]
    coupled = DraftModel(noisy_lm(0), Chain(3, coupled=True))
    hot = Sampling(0.8, seed=5)
    prompts = texts(8, 2)
    want_hot = Engine(lm(0), rule=Coupled(), stopping=STOP).generate(prompts[4:], sampling=[hot] * 4).outputs
    s = server(rows=8, chunk=3)
    greedy_ones = [s.add(p, drafter=d) for p, d in zip(prompts[:4], drafters, strict=True)]
    hot_ones = [s.add(p, drafter=coupled, rule=Coupled(), sampling=hot) for p in prompts[4:]]
    serve(s)
    assert [t.output for t in greedy_ones] == [alone(tuple(p)) for p in prompts[:4]]
    assert [t.output for t in hot_ones] == want_hot
    assert any("NGram" in r.drafter and "DraftModel" in r.drafter and "Coupled" in r.rule for r in s.trace.steps)


def test_groups_keep_the_law_of_a_lossless_rule():
    """Rejection at temperature 1 with its draws in one group beside another: the very tokens that it gives alone."""
    hot = [Sampling(1.0, seed=i) for i in range(3)]
    tree = DraftModel(noisy_lm(0), Sampled((2, 2)))
    prompts = texts(3, 4)
    want = [
        Engine(lm(0), tree, stopping=STOP).generate([p], sampling=x).outputs[0]
        for p, x in zip(prompts, hot, strict=True)
    ]
    s = server(rows=6)
    tickets = [s.add(p, drafter=tree, sampling=x) for p, x in zip(prompts, hot, strict=True)]
    others = [s.add(p, drafter=NGram()) for p in texts(3, 5)]
    serve(s)
    assert [t.output for t in tickets] == want and all(t.output == alone(t.entry.prompt) for t in others)


# Prefixes.


@pytest.mark.parametrize("name", ["nothing", "draft model, tree", "eagle", "eagle 3, tree", "mtp", "medusa", "block"])
def test_a_prefix_hit_equals_a_cold_run(name):
    """The same beginning again, and the whole text again: found in pages of 4, and not one token differs. The guesses are
    the same ones, so the head had the features of what was found."""
    begin = texts(1, 7)[0] * 3
    prompts = [[*begin, 1, 2], [*begin, 3], begin[:9], [*begin, 1, 2]]
    cold = [server(DRAFTERS[name]()) for _ in prompts]
    first = []
    for s, p in zip(cold, prompts, strict=True):
        first.append(s.add(p))
        serve(s)
    warm = server(DRAFTERS[name]())
    for n, p in enumerate(prompts):
        t = warm.add(p)
        serve(warm)
        assert t.output == first[n].output == alone(tuple(p))
        found = next(
            e.tokens for r in warm.trace.steps for e in r.events if e.kind == "admitted" and e.request == t.name
        )
        assert found == (0 if n == 0 else (len(p) - 1) // 4 * 4 if n == 3 else min(len(begin), len(p) - 1) // 4 * 4)
        guesses = [r.token for r in metrics.row_steps(warm.trace.steps, t.name)]
        assert guesses == [r.token for r in metrics.row_steps(cold[n].trace.steps, first[n].name)]
    assert warm.accounts.cached > 0


def test_rejected_tokens_never_enter_the_prefix_cache():
    s = server(DraftModel(noisy_lm(0), Dynamic(3, 3, 8)), page=2, rows=4)
    tickets = [s.add(p) for p in texts(6, 3)]
    for _ in s.run():
        known = [t.entry.text[: t.entry.length].tolist() for t in tickets]
        paths = {id(s.accounts.pages.prefixes.root): []}
        for node in s.accounts.pages.prefixes.nodes():
            paths[id(node)] = paths[id(node.above)] + list(node.tokens)
            assert any(text[: len(paths[id(node)])] == paths[id(node)] for text in known)
    assert any(o == 2 for r in metrics.row_steps(s.trace.steps) for o in r.outcome), "nothing was rejected"


def test_the_least_recently_used_prefix_goes_first():
    s = server(stopping=Stopping(1), pages=6, page=4)
    a, b, c = ([i] * 9 for i in (1, 2, 3))  # two full pages each
    for prompt in (a, b, a):
        s.add(prompt)
        serve(s)
    s.add(c)  # needs three pages and finds two free ones: the last page of b goes
    serve(s)
    known = Counter(node.tokens for node in s.accounts.pages.prefixes.nodes())
    assert known == {(1,) * 4: 1, (2,) * 4: 1, (3,) * 4: 1} | {(1,) * 4: 2, (3,) * 4: 2}


@pytest.mark.parametrize("window", [False, True])
def test_a_row_goes_on_when_the_nodes_it_stood_on_are_given_up(window):
    """Two rows read the same text at once, each into pages of its own; the one whose pages the tree keeps ends, and the tree
    gives them up while the other is still running. A third then finds what is really there."""
    target = windowed() if window else lm(0)
    s = server(target=target, page=2, pages=60, rows=2, stopping=Stopping(16))
    first, second = s.add([5] * 12, stopping=Stopping(1)), s.add([5] * 12)
    while not first.done:
        s.step()
    for _ in range(4):
        s.step()
    while s.accounts.pages.give_up():
        s.check()
    for _ in range(4):
        s.step()
        s.check()
    third = s.add([5] * 12 + second.output[:2])
    serve(s)
    want = reference(target.model, [5] * 12, 18)
    assert second.output == want[:16] and third.output == want[2:18] and first.output == want[:1]


def test_pages_that_somebody_uses_are_never_given_up():
    s = server(stopping=Stopping(12), pages=9, page=2, rows=2)
    long = s.add([5] * 6)
    for _ in range(3):
        s.step()
    for i in range(6):
        s.add([i] * 5, stopping=Stopping(2))
    while not long.done:
        assert s.accounts.found(long.entry.text[:6])[0] == 3, "nor does the tree forget them"
        s.step()
        s.check()
    serve(s)
    assert long.output == alone((5,) * 6, 12) and long.preemptions == 0


def test_without_sharing_nothing_is_found():
    s = server(share=False)
    for _ in range(2):
        s.add([3] * 17)
        serve(s)
    assert s.accounts.cached == 0 and all(
        e.tokens == 0 for r in s.trace.steps for e in r.events if e.kind == "admitted"
    )


# Prompts in pieces.


@pytest.mark.parametrize("name", ["nothing", "draft model, tree", "eagle", "medusa", "block"])
def test_every_chunk_size_reads_the_same(name):
    prompt = texts(1, 11, 12)[0] + [4, 9, 2]
    session = Engine(lm(0), DRAFTERS[name](), stopping=STOP).generate([prompt])
    want = [r.token for r in metrics.row_steps(session.trace.steps)]
    for chunk in [*range(1, len(prompt) + 2), 256]:
        s = server(DRAFTERS[name](), chunk=chunk, policy=InTurn(chunk))
        other, t = s.add([7, 8, 9]), s.add(prompt)
        serve(s)
        assert other.output == alone((7, 8, 9)) and t.output == alone(tuple(prompt))
        guesses = [r.token for r in metrics.row_steps(s.trace.steps, t.name)]
        assert guesses == want, "drafters see the same features whatever the pieces are"


def test_a_long_prompt_does_not_hold_up_the_others():
    s = server(stopping=Stopping(30), policy=InTurn(4), chunk=4)
    running = s.add([1, 2])
    s.step()
    s.add([9] * 41)
    before = len(running.output)
    for _ in range(6):
        s.step()
    assert len(running.output) == before + 6, "a token a step, while the prompt is being read"
    assert all(r.load.prefilled <= 4 for r in s.trace.steps[1:7]) and any(r.load.prefilled for r in s.trace.steps[1:7])
    first = server(stopping=Stopping(30), policy=InTurn(None), chunk=4)
    running = first.add([1, 2])
    first.step()
    first.add([9] * 41)
    first.step()
    assert first.trace.steps[-1].load.prefilled == 40 and len(running.output) == 2


# Pressure.


@pytest.mark.parametrize("name", ["nothing", "ngram", "draft model, tree", "early exit", "eagle"])
@pytest.mark.parametrize("page", [1, 4])
def test_the_smallest_pool_finishes_or_refuses(name, page):
    """Just the pages that the largest request may need: each runs, mostly alone, and none waits for ever."""
    prompts = texts(6, 5, 12)
    most = max(len(p) for p in prompts) + 20 - 1
    s = server(DRAFTERS[name](), pages=-(-most // page), page=page, rows=8)
    tickets = [s.add(p) for p in prompts]
    with pytest.raises(ValueError, match=rf"shorten the prompt to {-(-most // page) * page}"):
        s.add([1] * (most + 2 * page))
    serve(s)
    assert [t.output for t in tickets] == [alone(tuple(p)) for p in prompts]


def test_what_can_never_fit_is_refused_before_anything_is_done():
    s = server(pages=5, page=4)
    with pytest.raises(ValueError, match=r"may come to 29 tokens.*5 pages hold 20.*lower max_new_tokens to 11"):
        s.add([1] * 10)
    assert s.done and not s.trace.steps
    s.add([1] * 10, stopping=Stopping(11))
    serve(s)


def test_who_gives_way_is_the_youngest_of_the_lowest_priority_and_nothing_is_lost():
    s = server(pages=10, page=4, rows=4, stopping=Stopping(24))
    low, high, late = (s.add(p, priority=x) for p, x in (([1] * 5, 0), ([2] * 5, 1), ([3] * 5, 1)))
    serve(s)
    assert high.preemptions == 0 and low.preemptions > 0
    for t in (low, high, late):
        assert t.output == alone(t.entry.prompt, 24)
    kinds = [e.kind for r in s.trace.steps for e in r.events if e.request == low.name]
    assert kinds[0] == "added" and kinds[-1] == "finished" and "preempted" in kinds
    assert kinds.count("admitted") == kinds.count("prefilled") == 1 + kinds.count("preempted")


def test_pages_for_guesses_are_given_up_before_requests_are():
    s = server(DraftModel(noisy_lm(0), Chain(7)), pages=10, page=4, rows=2, stopping=Stopping(15))
    tickets = [s.add([i] * 5) for i in (1, 2)]  # five pages each, and guesses would need more
    serve(s)
    assert all(t.preemptions == 0 and t.output == alone(t.entry.prompt, 15) for t in tickets)
    assert len({r.nodes for r in s.trace.steps}) > 1, "trees were cut"


def test_a_preempted_request_finds_its_pages_again_if_they_are_still_there():
    s = server(page=4, stopping=Stopping(24))
    t = s.add([6] * 9)
    for _ in range(8):
        s.step()
    s.preempt(t)
    assert t.state == "waiting" and s.accounts.held == 0
    s.check()
    serve(s)
    admitted = [e.tokens for r in s.trace.steps for e in r.events if e.kind == "admitted"]
    assert admitted == [0, 16] and t.output == alone((6,) * 9, 24)
    assert requests(s.trace.steps)[0].preemptions == 1


def test_tokens_read_again_are_told_apart_from_those_read_for_the_first_time():
    s = server(share=False, stopping=Stopping(10), chunk=4)
    t = s.add([6] * 9)
    for _ in range(5):
        s.step()
    settled = s.accounts.settled(t.entry)
    s.preempt(t)
    serve(s)
    assert settled == 13 and sum(r.load.reread for r in s.trace.steps) == settled
    assert sum(r.load.prefilled for r in s.trace.steps) == 8 + settled
    assert requests(s.trace.steps)[0].reread == settled


@settings(deadline=None, max_examples=80)
@given(st.sampled_from([1, 2, 4, 16]), st.integers(0, 40), st.integers(1, 20), st.booleans())
def test_needed_pages_are_those_that_are_taken(page, settled, nodes, shared):
    """max(0, ceil((nodes - slack) / page)) against what reserving really takes, and one for a copy of a shared page."""
    s = server(page=page, pages=80, stopping=Stopping(1), share=shared)
    entry = s.engine.entry([1] * (settled + 1), Sampling(), STOP)
    s.scheduler.reading.seat([entry])
    with torch.inference_mode():
        s.scheduler.reading.prefill()
    if shared and settled:
        s.accounts.fork(entry, "another")
    need, free = s.accounts.needed(entry, nodes), len(s.accounts.pages.pools[0].free)
    s.cache.layout.reserve(s.cache.bound, nodes)
    assert free - len(s.accounts.pages.pools[0].free) == need
    s.accounts.check()


# Coming and going.


@pytest.mark.parametrize("name", ["nothing", "draft model, tree", "early exit", "eagle 3, tree", "medusa"])
def test_aborting_in_a_loop_gives_everything_back(name):
    d = DRAFTERS[name]()
    s = server(d, pages=40, share=False)
    for turn in range(30):
        tickets = [s.add(p) for p in texts(5, turn)]
        for _ in range(turn % 4):
            s.step()
        for t in tickets:
            s.abort(t)
        assert all(t.state == "aborted" and t.reason == "aborted" for t in tickets)
        s.check()
        assert s.done and s.accounts.held == 0 and s.accounts.spare == 40
    assert not s.scheduler.reading.entries and not s.scheduler.going.entries and s.trace.steps[-1].load.running == 0
    t = s.add([1, 2, 3])
    serve(s)
    assert t.output == alone((1, 2, 3))


def test_samples_of_one_prompt_share_its_pages():
    hot = Sampling(1.0, seed=9)
    prompt = [4] * 33
    want = [
        Engine(lm(0), rule=Coupled(), stopping=STOP).generate([prompt], sampling=hot.sample(i)).outputs[0]
        for i in range(4)
    ]
    s = server(DraftModel(noisy_lm(0), Chain(3, coupled=True)), rule=Coupled())
    tickets = s.add_samples(prompt, 4, sampling=hot)
    while not all(t.state == "running" for t in tickets):
        s.step()
        s.check()
    assert s.accounts.held < 8 + 4 * 4, "eight shared pages, and a few of each one's own"
    assert sum(r.load.prefilled for r in s.trace.steps) == 32, "the prompt was read once"
    serve(s)
    assert [t.output for t in tickets] == want and len({tuple(t.output) for t in tickets}) > 1


@pytest.mark.parametrize("name", ["nothing", "eagle", "draft model, chain"])
def test_a_fork_goes_on_from_where_the_other_is(name):
    s = server(DRAFTERS[name](), stopping=Stopping(24), page=4)
    t = s.add([3, 1, 4, 1, 5])
    for _ in range(5):
        s.step()
    at = t.entry.length
    twin = s.fork(t)
    s.step()
    assert twin.state == "running" and twin.entry.prompt == tuple(t.entry.text[:at])
    before = s.trace.steps[-1].load.prefilled
    serve(s)
    whole = alone((3, 1, 4, 1, 5), 24)
    assert before == 0 and t.output == whole and twin.output == whole[at - 5 :]


def test_a_request_is_rewound_by_itself():
    s = server(DraftModel(noisy_lm(0), Chain(3)))
    one, two = s.add([1, 2, 3]), s.add([4, 5])
    for _ in range(4):
        s.step()
    length = len(two.output)
    assert s.rewind(one, 3) == 3 and len(two.output) == length
    s.check()
    serve(s)
    assert one.output == alone((1, 2, 3)) and two.output == alone((4, 5))
    with pytest.raises(ValueError, match="has finished"):
        s.rewind(one)


def test_parts_are_swapped_while_requests_run():
    """Another drafter, one that wants features, another target and back: all in the middle of eight requests."""
    s = server(stopping=Stopping(30))
    tickets = [s.add(p) for p in texts(6, 8)]
    order = ["ngram", "eagle", "eagle 3, tree", "draft model, tree", "medusa", "early exit", "nothing"]
    for n, _ in enumerate(s.run()):
        s.engine.drafter = DRAFTERS[order[n // 2 % len(order)]]()
        s.check()
    assert all(t.output == alone(t.entry.prompt, 30) for t in tickets)


def test_another_target_reads_everything_again():
    s = server(stopping=Stopping(12))
    t = s.add([1, 2, 3])
    for _ in range(6):
        s.step()
    half = t.output
    s.engine.target = lm(5)
    serve(s)
    assert t.output[: len(half)] == half and t.output[len(half) :] == alone((1, 2, 3, *half), 12 - len(half), 5)


def test_a_reset_empties_everything_and_the_server_goes_on():
    s = server(DraftModel(noisy_lm(0), Chain(3)))
    tickets = [s.add(p) for p in texts(6)]
    for _ in range(5):
        s.step()
    s.reset()
    s.check()
    assert s.done and s.accounts.held == s.accounts.cached == 0 and all(t.done for t in tickets)
    t = s.add([1, 2, 3])
    serve(s)
    assert t.output == alone((1, 2, 3))


def test_requests_come_and_go_from_other_threads():
    s = server(NGram(), rows=3, pages=30)
    kept, dropped, errors = [], [], []

    def client(seed: int) -> None:
        try:
            for n, p in enumerate(texts(8, seed, 15)):
                t = s.add(p, name=f"{seed}-{n}")
                if n % 3:
                    kept.append(t)
                else:
                    dropped.append(t)
                    s.abort(t)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(3)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads) or not s.done:
        if not s.done:
            s.step()
            s.check()
    assert not errors and len(kept) == 15 and all(t.output == alone(t.entry.prompt) for t in kept)
    assert all(t.done for t in dropped) and s.accounts.held == 0


def test_a_live_loop_serves():
    s = server(NGram())
    tickets = [s.add(p) for p in PROMPTS]
    live = Live(s)
    live.step(2).wait(20)
    assert len(s.trace.steps) == 2
    assert live.run().wait(60) == "done"
    assert [t.output for t in tickets] == [g[:20] for g in greedy()]


def test_penalties_constraints_and_logprobs_are_each_requests_own():
    prompts = texts(5, 12)
    samplings = [
        Sampling(repetition_penalty=1.4),
        Sampling(frequency_penalty=0.7, presence_penalty=0.3, logprobs=2),
        Sampling(allowed=(3, 5, 8, 13, 21)),
        Sampling(logit_bias={7: 4.0, (7, 9): 6.0}, bad_words=[[9, 9]]),
        Sampling(0.9, top_k=5, seed=4, forced={2: 11}),
    ]
    engine = Engine(lm(0), rule=Coupled(), stopping=STOP)
    want = [engine.generate([p], sampling=x) for p, x in zip(prompts, samplings, strict=True)]
    s = server(DraftModel(noisy_lm(0), Dynamic(3, 3, 8)), rule=Coupled(), rows=3, pages=30)
    tickets = [s.add(p, sampling=x) for p, x in zip(prompts, samplings, strict=True)]
    serve(s)
    assert [t.output for t in tickets] == [w.outputs[0] for w in want]
    ours, theirs = tickets[1].entry.scores, want[1].logprobs[0]
    assert [x.token for x in ours] == [x.token for x in theirs]
    assert max(abs(a.logprob - b.logprob) for a, b in zip(ours, theirs, strict=True)) < 1e-9


def test_an_error_in_a_step_leaves_the_server_usable():
    class Broken:
        def propose(self, context):
            raise OSError("no more ideas")

    s = server(Broken())
    good, bad = s.add([1, 2, 3]), s.add([4, 5])
    with pytest.raises(OSError, match="no more ideas"):
        serve(s)
    s.check()
    s.abort(bad)
    s.engine.drafter = Nothing()
    serve(s)
    assert good.output == alone((1, 2, 3)) and s.accounts.held == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may hit a finaliser
@pytest.mark.parametrize("part", range(0, 40, 4))
def test_an_interrupt_anywhere_in_a_step_loses_nothing(part):
    """An interrupt at any fortieth of the calls into the engine's and the cache's code, then on as if nothing had been."""

    def calls(s: Server, stop: int | None) -> int:
        """Make a step, and interrupt it at the `stop`-th call; returns how many calls there were."""
        count = 0

        def trace(frame, event, _):
            nonlocal count
            if event == "call" and ("/engine/" in frame.f_code.co_filename or "/cache/" in frame.f_code.co_filename):
                count += 1
                if count == stop:
                    sys.settrace(None)
                    raise KeyboardInterrupt

        sys.settrace(trace)
        try:
            s.step()
        except KeyboardInterrupt:
            assert stop is not None
        finally:
            sys.settrace(None)
        return count

    def begun() -> Server:
        s = server(DraftModel(noisy_lm(0), Dynamic(3, 3, 8)), rows=3, pages=30)
        for p in texts(3, 13):
            s.add(p)
        for _ in range(3):
            s.step()
        return s

    s = begun()
    tickets = list(s.running)
    assert len(tickets) == 3
    calls(s, 1 + calls(begun(), None) * part // 40)
    serve(s)
    assert all(t.output == alone(t.entry.prompt) for t in tickets) and s.accounts.held == 0


# Windows.


@functools.cache
def windowed() -> HFModel:
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=V,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        sliding_window=7,
        pad_token_id=0,
        eos_token_id=None,
    )
    model = MistralForCausalLM(config).double().eval()
    for p in model.parameters():
        p.data.mul_(3 if p.ndim > 1 else 1)
    return HFModel(model)


@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("drafter", [Nothing(), NGram(branches=2)])
def test_layers_with_a_window_keep_what_it_shows_and_no_more(page, drafter):
    s = server(drafter, target=windowed(), page=page, pages=160 // page, stopping=Stopping(30))
    tickets = [s.add(p) for p in texts(5, 6)]
    most = 0
    for _ in s.run():
        s.check()
        for t in s.running:
            found = s.accounts.row(t.entry)
            assert found
            most = max(most, sum(page != 0 for page in found[0].pages[0]))
    for t in tickets:
        assert t.output == reference(windowed().model, t.entry.prompt, 30)
    assert most <= -(-(7 + 8 + 1) // page) + 2, "a long text would take more than the window does"
    again = s.add(tickets[0].entry.prompt)
    serve(s)
    assert again.output == tickets[0].output


# Records.


def test_records_events_and_outputs_agree():
    s = server(DraftModel(noisy_lm(0), Dynamic(3, 3, 8)), pages=20, rows=3)
    tickets = [s.add(p) for p in texts(7, 9)]
    dropped = s.add([1] * 20)
    s.step()
    s.abort(dropped)
    serve(s)
    told = {r.id: r for r in requests(s.trace.steps)}
    for t in tickets:
        emitted = [x for r in metrics.row_steps(s.trace.steps, t.name) for x in r.emitted]
        assert emitted == t.output == alone(t.entry.prompt) and told[t.name].reason == "length"
        assert told[t.name].preemptions == t.preemptions
    assert told[dropped.name].reason == "aborted"
    for r in s.trace.steps:
        assert len(r.ids) == len(r.rows) and r.load.held + r.load.cached <= r.load.pages == 20


def test_a_snapshot_tells_who_holds_what():
    s = server(page=4, rows=2, stopping=Stopping(9))
    for p, n in (([1] * 9, "a"), ([1] * 9, "b"), ([2] * 3, "c")):
        s.add(p, name=n)
    s.step()
    shot = s.snapshot()
    assert shot.waiting == ("c",) and set(shot.running + shot.prefilling) == {"a", "b"}
    assert len(shot.pages) == 64 and shot.size == 4
    held = Counter(name for page in shot.pages for name in page)
    assert held["a"] >= 3 and "c" not in held
    assert {n.tokens for n in shot.prefix} == {(1,) * 4} and all(n.held for n in shot.prefix if n.parent < 0)
    serve(s)
    assert not any(s.snapshot().pages) and s.snapshot().settled == {}


def test_bad_requests_and_numbers_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="pages of a server must be at least 1; got 0"):
        server(pages=0)
    with pytest.raises(ValueError, match="tokens of prompts a step must be at least 1; got 0"):
        InTurn(0)
    s = server(NGram())
    s.add([1, 2], name="x")
    for prompt, options, says in (
        ([], {}, "is empty"),
        ([V], {}, "outside the target's vocabulary"),
        ([1], {"name": "x"}, "named 'x' already"),
        ([1], {"drafter": DraftModel(lm(0, vocab=32))}, "vocabulary"),
    ):
        with pytest.raises(ValueError, match=says):
            s.add(prompt, **options)
    one = s.add([3, 4], drafter=with_head("eagle", Chain(2)))
    with pytest.raises(ValueError, match="features"):
        s.add([3, 4], drafter=with_head("eagle 3", Chain(2)))
    with pytest.raises(ValueError, match="at least 1; got 0"):
        s.add_samples([1], 0)
    serve(s)
    assert one.output == alone((3, 4))


def test_small_requests_may_overtake_a_large_one():
    def order(policy) -> list[str]:
        s = server(pages=12, page=4, rows=3, policy=policy, stopping=Stopping(8))
        for n, p in (("first", [1] * 20), ("large", [2] * 30), ("small", [3] * 3)):
            s.add(p, name=n)
        serve(s)
        return [e.request for r in s.trace.steps for e in r.events if e.kind == "finished"]

    assert order(InTurn()).index("large") < order(InTurn()).index("small")
    assert order(Overtaking()).index("small") < order(Overtaking()).index("large")

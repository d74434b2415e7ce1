"""What one request does to itself does nothing to the others: parts that raise, numbers that are none, texts that fail."""

from __future__ import annotations

import functools
import gc
import weakref

import pytest
import torch
from test_server import alone, serve, server, texts
from tiny import V, lm, noisy_lm, reference, tiny

from toolkit.drafting import Chain, DraftModel, Dynamic, NGram
from toolkit.engine import Engine, Server
from toolkit.models.hf import HFModel
from toolkit.sampling import Sampling, Stopping
from toolkit.trace import metrics, perfetto
from toolkit.trace.requests import requests
from toolkit.verification import Rejection

SICK = V - 1  # a token that the sick model has no numbers for


@functools.cache
def sick() -> HFModel:
    """The target, but for one token whose embedding is no number."""
    model = type(tiny(0))(tiny(0).config).double().eval()
    model.load_state_dict(tiny(0).state_dict())
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    model.model.embed_tokens.weight.data[SICK] = float("nan")
    return HFModel(model)


class Late:
    """A drafter or rule that raises when it is asked for the `at`-th time."""

    def __init__(self, at: int, part=None) -> None:
        self.left, self.part = at, part or NGram()

    def _count(self) -> None:
        self.left -= 1
        if self.left < 1:
            raise OSError("no more ideas")

    def propose(self, context):
        self._count()
        return self.part.propose(context)

    def __call__(self, *arguments):
        self._count()
        return self.part(*arguments)


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("part", ["drafter", "rule"])
def test_a_part_that_raises_ends_its_own_requests_alone(part, at, capsys):
    s = server(DraftModel(noisy_lm(0), Dynamic(3, 3, 8)), pages=24)
    late = Late(at, NGram() if part == "drafter" else Rejection())
    bad = [s.add(p, **{part: late}) for p in texts(2, 20)]
    good = [s.add(p) for p in texts(4, 21)]
    serve(s)
    assert all(t.output == alone(t.entry.prompt) and t.error is None for t in good)
    for t in bad:
        assert t.done and t.reason == "failed" and isinstance(t.error, OSError)
        assert t.output == alone(t.entry.prompt)[: len(t.output)], "what it has written stays right"
        assert (
            f"request {t.name} failed and is left out: OSError('no more ideas')" in capsys.readouterr().err
            or t is bad[1]
        )
    told = {r.id: r.reason for r in requests(s.trace.steps)}
    assert [told[t.name] for t in bad] == ["failed"] * 2 and s.accounts.held == 0
    assert '"why":"failed"' in perfetto.text(s.trace)


def test_a_part_that_all_share_still_raises_for_all_and_may_be_changed():
    s = server(Late(3))
    tickets = [s.add(p) for p in texts(3, 22)]
    with pytest.raises(OSError, match="no more ideas"):
        serve(s)
    s.check()
    s.engine.drafter = NGram()
    serve(s)
    assert all(t.output == alone(t.entry.prompt) for t in tickets)


@pytest.mark.parametrize("share", [True, False])
def test_logits_that_are_no_numbers_end_one_request_and_poison_no_page(share):
    """What is no number times a weight of nothing is no number: pages that the sick one leaves are taken up by others."""
    s = server(target=sick(), pages=14, share=share, rows=3)
    good, bad = [], []
    for i, p in enumerate(texts(9, 23)):
        p = [t % SICK for t in p]
        if i % 3 == 1:
            bad.append(s.add([*p, SICK, *p[:3]]))
        else:
            good.append(s.add(p))
    serve(s)
    assert all(t.reason == "failed" and "not finite numbers" in str(t.error) and not t.output for t in bad)
    for t in good:
        want = reference(sick().model, t.entry.prompt, 20)
        assert SICK not in want and t.output == want, "it was poisoned"
    assert s.accounts.held == 0


def test_a_prompt_that_leaves_while_it_is_read_poisons_no_page():
    s = server(target=sick(), pages=12, chunk=4, share=False)
    t = s.add([SICK] * 27)
    other = s.add([3], stopping=Stopping(12))
    for _ in range(3):
        s.step()
    s.abort(t)
    after = s.add([5] * 14)
    serve(s)
    assert after.output == reference(sick().model, [5] * 14, 20) and other.reason == "length"


def test_a_text_that_cannot_be_told_ends_its_request_and_the_step_of_others_is_told_once():
    """The others had taken their tokens when it raised: the record of that step was lost, and they went on without it."""
    prompts = texts(3, 24)
    unsayable = alone(tuple(prompts[1]))[6]
    assert unsayable not in alone(tuple(prompts[0])) + alone(tuple(prompts[2]))

    def decode(ids, *_):
        if unsayable in ids:
            raise UnicodeError("cannot be said")
        return "x" * len(ids)

    engine = Engine(lm(0), DraftModel(noisy_lm(0), Chain(3)), stopping=Stopping(20, strings=("stop",)), decode=decode)
    s = Server(engine, pages=64, page=4, rows=4)
    tickets = [s.add(p) for p in prompts]
    serve(s)
    assert isinstance(tickets[1].error, UnicodeError) and 0 < len(tickets[1].output) <= 6
    assert len(tickets[0].output) == len(tickets[2].output) == 20
    for t in tickets:
        emitted = [x for r in metrics.row_steps(s.trace.steps, t.name) for x in r.emitted]
        assert emitted == t.output == alone(t.entry.prompt)[: len(emitted)]


def test_sampled_requests_go_on_beside_one_without_numbers():
    hot = Sampling(0.8, seed=3)
    p = [1, 2, 3]
    want = (
        Engine(sick(), DraftModel(noisy_lm(0), Chain(2)), stopping=Stopping(6)).generate([p], sampling=hot).outputs[0]
    )
    s = server(DraftModel(noisy_lm(0), Chain(2)), target=sick(), stopping=Stopping(6))
    good, bad = s.add(p, sampling=hot), s.add([4, SICK, 5], sampling=hot)
    serve(s)
    assert bad.reason == "failed" and good.output == want


class Own(DraftModel):
    """A drafter that can be watched as it goes."""


def test_a_server_can_go_on_for_ever():
    """Every drafter that a request brought along was kept, and asked at the end of every later request."""
    s = server(stopping=Stopping(3))
    ended, brought = [], []
    for turn in range(12):
        drafter = Own(noisy_lm(0), Chain(2))
        brought.append(weakref.ref(drafter))
        t = s.add([1 + turn, 2], drafter=drafter)
        del drafter
        serve(s)
        ended.append(t.output == alone((1 + turn, 2), 3))
        del t
        s.trace.rewind(0)
    gc.collect()
    assert all(ended) and not s.scheduler.users and not s.trace.steps
    assert sum(ref() is not None for ref in brought) <= 1

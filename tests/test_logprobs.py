import pytest
import torch
from tiny import PROMPTS, RandomTrees, greedy, lm, noisy_lm, tiny

from toolkit.drafting import Chain, DraftModel, Dynamic, NGram, Nothing
from toolkit.engine import Engine
from toolkit.sampling import Sampling, Stopping

DRAFTERS = {
    "nothing": lambda: Nothing(),
    "ngram": lambda: NGram(shortest=1, branches=3),
    "chain": lambda: DraftModel(noisy_lm(), Chain(4)),
    "dynamic": lambda: DraftModel(noisy_lm(), Dynamic(3, 4, 9)),
    "random trees": lambda: RandomTrees(greedy(), [len(p) for p in PROMPTS]),
}


def plain(prompt: list[int], out: list[int]) -> torch.Tensor:
    """[len(out), V] log-probabilities of one plain pass over the whole text."""
    with torch.inference_mode():
        logits = tiny(0)(torch.tensor([[*prompt, *out]]), use_cache=False).logits[0]
    return logits.log_softmax(-1)[len(prompt) - 1 : -1]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_raw_logprobs_equal_a_plain_pass(drafter, temperature):
    samplings = [
        Sampling(temperature, seed=b, repetition_penalty=1.2, logprobs=k) for b, k in enumerate((5, 0, None, 2))
    ]
    session = Engine(lm(0), DRAFTERS[drafter](), stopping=Stopping(20)).generate(PROMPTS, sampling=samplings)
    for b, (prompt, out, found) in enumerate(zip(PROMPTS, session.outputs, session.logprobs, strict=True)):
        if b == 2:
            assert found is None
            continue
        right, k = plain(prompt, out), (5, 0, None, 2)[b]
        assert [e.token for e in found] == out
        torch.testing.assert_close(
            torch.tensor([e.logprob for e in found]).double(), right[range(len(out)), out], atol=1e-5, rtol=0
        )
        best = right.topk(k, -1)
        assert [[t for t, _ in e.top] for e in found] == best.indices.tolist()
        values = torch.tensor([[v for _, v in e.top] for e in found]).double().view(len(out), k)
        torch.testing.assert_close(values, best.values, atol=1e-5, rtol=0)


def test_processed_logprobs_are_of_what_the_token_was_drawn_from():
    sampling = Sampling(0.7, top_k=3, seed=4, logprobs=5, logprobs_of="processed")
    session = Engine(lm(0), DRAFTERS["dynamic"](), stopping=Stopping(20), sampling=sampling).generate(PROMPTS[:1])
    out, found = session.outputs[0], session.logprobs[0]
    logits = plain(PROMPTS[0], out) / 0.7
    right = logits.masked_fill(logits < logits.topk(3, -1).values[:, -1:], -torch.inf).log_softmax(-1)
    torch.testing.assert_close(
        torch.tensor([e.logprob for e in found]).double(), right[range(20), out], atol=1e-5, rtol=0
    )
    assert all(e.top[3][1] == e.top[4][1] == -torch.inf for e in found)
    cold = Sampling(logprobs=1, logprobs_of="processed")
    session = Engine(lm(0), DRAFTERS["dynamic"](), stopping=Stopping(9), sampling=cold).generate(PROMPTS[:1])
    assert all(e.logprob == 0 and e.top == ((e.token, 0.0),) for e in session.logprobs[0])


def test_a_stop_inside_an_accepted_run_and_a_rewind_cut_the_logprobs_too():
    end = greedy()[0][10]
    engine = Engine(lm(0), RandomTrees(greedy(), [len(p) for p in PROMPTS]), stopping=Stopping(40, (end,)))
    session = engine.start(PROMPTS, sampling=Sampling(logprobs=1))
    while not session.done:
        engine.step(session)
        assert [[e.token for e in row] for row in session.logprobs] == session.outputs
        if len(session.trace.steps) == 5:
            session.rewind(2)
            assert [[e.token for e in row] for row in session.logprobs] == session.outputs
            for _ in range(3):
                engine.step(session)
    assert session.reasons[0] == "stop_token" and session.logprobs[0][-1].token == end


def test_logprobs_change_no_token():
    sampled = [Sampling(0.9, seed=b) for b in range(4)]
    asked = [Sampling(0.9, seed=b, logprobs=3, logprobs_of="processed") for b in range(4)]
    engine = Engine(lm(0), DRAFTERS["chain"](), stopping=Stopping(20))
    assert engine.generate(PROMPTS, sampling=sampled).outputs == engine.generate(PROMPTS, sampling=asked).outputs


def test_several_samples_of_one_prompt_are_requests_of_their_own():
    sampling = Sampling(1.0, seed=11)
    engine = Engine(lm(0), DRAFTERS["chain"](), stopping=Stopping(16))
    together = engine.generate(PROMPTS[:2], sampling=[sampling, Sampling(0.8, seed=3)], n=3)
    assert together.prompts == tuple(tuple(p) for p in PROMPTS[:2] for _ in range(3))
    for i in range(3):
        assert engine.generate(PROMPTS[:1], sampling=sampling.sample(i)).outputs[0] == together.outputs[i]
    assert len({tuple(o) for o in together.outputs}) == 6
    assert sampling.sample(0) == sampling and len({sampling.sample(i).seed for i in range(50)}) == 50
    with pytest.raises(ValueError, match="n, the number of samples"):
        engine.start(PROMPTS, n=0)

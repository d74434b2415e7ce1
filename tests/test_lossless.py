"""The test of whole engines: it passes true ones and refutes biased ones."""

import pytest
import torch
from tiny import lm, noisy_lm

from toolkit import bench
from toolkit.bench.lossless import biased
from toolkit.drafting import Chain, DraftModel, Dynamic, NGram, Nothing
from toolkit.engine import Engine
from toolkit.sampling import Sampling, Stopping
from toolkit.verification import Block, Coupled, Rejection, Traversal, Typical

PROMPTS = [[1, 2, 3, 4], [9, 9, 9, 9, 9]]
HOT = Sampling(1.5, top_k=12, seed=3)


def engine(drafter=None, rule=None, sampling=HOT, **parts) -> Engine:
    return Engine(lm(0), drafter or DraftModel(noisy_lm(0), Chain(3)), rule or Rejection(), sampling=sampling, **parts)


@pytest.mark.parametrize(
    ("drafter", "rule", "sampling"),
    [
        (DraftModel(noisy_lm(0), Chain(3)), Rejection(), HOT),
        (DraftModel(noisy_lm(0), Chain(3)), Block(), HOT),
        (DraftModel(noisy_lm(0), Chain(3, coupled=True)), Coupled(), HOT),
        (DraftModel(noisy_lm(0), Dynamic(2, 2, 5)), Traversal(), HOT),
        (NGram(longest=3, length=3), Rejection(), Sampling(1.5, repetition_penalty=1.3, presence_penalty=0.4, seed=5)),
    ],
    ids=["rejection", "block", "coupled", "traversal", "penalties"],
)
def test_true_engines_pass(drafter, rule, sampling):
    report = bench.test_lossless(engine(drafter, rule, sampling), PROMPTS, 400)
    assert report.holds and report.tested > 100, str(report)
    assert all(c.n == 400 and c.first.p_value > 0 and c.later is not None for c in report.checks)
    assert "not refuted: 2 prompts, 400 samples each" in str(report)


@pytest.mark.parametrize("rule", [Typical(epsilon=0.2, delta=0.4)], ids=["typical"])
def test_a_lossy_rule_is_refuted(rule):
    report = bench.test_lossless(engine(rule=rule), PROMPTS, 400)
    assert not report.holds and str(report).startswith("REFUTED"), str(report)


def test_a_fault_at_later_tokens_alone_is_refuted():
    """The first step is plain; from the second token on the most likely guess is always kept."""

    class Late:
        def __call__(self, proposal, logits, sampler):
            verdict = Rejection()(proposal, logits, sampler)
            first = (sampler.length == len(PROMPTS[0])) | (sampler.length == len(PROMPTS[1]))
            top = logits[torch.arange(len(logits)), verdict.tip].argmax(-1)
            return type(verdict)(verdict.tip, torch.where(first, verdict.bonus, top), verdict.tests)

    report = bench.test_lossless(engine(Nothing(), Late()), PROMPTS, 300)
    assert not report.holds and report.tested == 0
    assert all(c.first.holds() and not c.later.holds() for c in report.checks if c.later)


def test_bounds_and_sample_counts():
    report = bench.test_lossless(engine(Nothing()), PROMPTS[:1], 400, bias=0.15)
    (check,) = report.checks
    assert 0 == check.tv[0] < check.tv[1] < 0.3
    few = bench.test_lossless(engine(Nothing()), PROMPTS[:1], 20, bias=0.15)
    assert few.checks[0].needed == check.needed > 20 and f"too few: {check.needed}" in str(few)
    assert bench.test_lossless(engine(Nothing()), PROMPTS[:1], 20, bias=0.3).checks[0].needed < check.needed


def test_a_bias_has_the_size_asked_for():
    for law in (torch.tensor([0.5, 0.3, 0.2]).double(), torch.full((25,), 0.04).double()):
        law = law / law.sum()
        for bias in (0.02, 0.1):
            out = biased(law, bias)
            assert abs(float((out - law).abs().sum()) / 2 - bias) < 1e-9 and abs(float(out.sum()) - 1) < 1e-9
            assert (out >= 0).all()


def test_ended_rows_and_bad_input():
    stop = tuple(range(0, 64, 3))
    report = bench.test_lossless(engine(stopping=Stopping(8, stop)), PROMPTS, 200)
    assert report.holds, str(report)
    with pytest.raises(ValueError, match="temperature 0 nothing is drawn"):
        bench.test_lossless(engine(sampling=Sampling()), PROMPTS)
    with pytest.raises(ValueError, match="got 0, 4 and 50"):
        bench.test_lossless(engine(), PROMPTS, 0)
    with pytest.raises(ValueError, match="bias is a total variation"):
        bench.test_lossless(engine(), PROMPTS, 1, bias=1.5)

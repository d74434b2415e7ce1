import itertools

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from toolkit.sampling import BatchSampler, Sampling
from toolkit.tree import TokenTree

SETTINGS = [
    Sampling(*values)
    for values in itertools.product((0.3, 1.0, 2.0), (0, 1, 5, 500), (1.0, 0.9, 0.05), (0.0, 0.1, 1.0))
]


def tree(rows: int, nodes: int) -> TokenTree:
    return TokenTree.chain(torch.zeros(rows, nodes).long())


def hf_probs(logits: torch.Tensor, s: Sampling) -> torch.Tensor:
    """transformers' own processors in the order of its generate."""
    stages = [TemperatureLogitsWarper(s.heat)]
    stages += [TopKLogitsWarper(s.top_k)] if s.top_k else []
    stages += [TopPLogitsWarper(s.top_p)] if s.top_p < 1 else []
    stages += [MinPLogitsWarper(s.min_p)] if s.min_p else []
    return LogitsProcessorList(stages)(None, logits).softmax(-1)


def test_every_row_equals_transformers_processors():
    """All settings in one batch, so that each row must keep to its own."""
    torch.manual_seed(0)
    logits = torch.randn(len(SETTINGS), 3, 64) * 3
    probs = BatchSampler.of(SETTINGS).probs(logits, tree(len(SETTINGS), 3))
    for b, s in enumerate(SETTINGS):
        torch.testing.assert_close(probs[b], hf_probs(logits[b], s), rtol=0, atol=1e-6)
        assert torch.equal(probs[b] > 0, hf_probs(logits[b], s) > 0), s


def test_greedy_rows_are_one_hot_among_sampled_ones():
    logits = torch.randn(2, 4, 16, dtype=torch.float64)
    sampler = BatchSampler.of([Sampling(0), Sampling(1.0)])
    probs = sampler.probs(logits, tree(2, 4))
    assert not sampler.greedy and probs.dtype == torch.float64
    assert torch.equal(probs[0].argmax(-1), logits[0].argmax(-1)) and (probs[0].amax(-1) == 1).all()
    torch.testing.assert_close(probs[1], logits[1].softmax(-1))


def test_best_is_where_the_mass_is_at_temperature_0():
    logits = torch.randn(3, 5, 16)
    sampler = BatchSampler.of([Sampling(0)] * 3)
    assert torch.equal(sampler.best(logits, tree(3, 5)), sampler.probs(logits, tree(3, 5)).argmax(-1))


def test_a_filter_alone_means_temperature_1():
    assert Sampling().heat == 0
    assert Sampling(top_k=4).heat == Sampling(top_p=0.9).heat == Sampling(min_p=0.1).heat == 1
    assert Sampling(temperature=0, top_k=4).heat == 0


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"temperature": -1}, "temperature .*-1"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_k": -3}, "top_k .*-3"),
        ({"top_k": 2.5}, "top_k .*2.5"),
        ({"top_p": 0}, r"top_p .*\(0, 1\].*0"),
        ({"top_p": 1.1}, "top_p .*1.1"),
        ({"min_p": -0.1}, "min_p .*-0.1"),
        ({"min_p": 2}, "min_p .*2"),
        ({"seed": 2**63}, "seed"),
    ],
)
def test_bad_parameters_are_refused_by_name_and_value(bad, says):
    with pytest.raises(ValueError, match=says):
        Sampling(**bad)


def test_guesses_of_one_level_share_no_noise():
    """Two nodes with the same distribution draw independently, and so do two lanes of one node."""
    sampler = BatchSampler.of([Sampling(1.0, seed=s) for s in range(4000)]).at(torch.full((4000,), 9))
    guesses = sampler.guess(torch.full((4000, 2, 2), 0.5), 1, lanes=2).flatten(1).double()
    assert (torch.corrcoef(guesses.T) - torch.eye(4)).abs().max() < 5 / 4000**0.5

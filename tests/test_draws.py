import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from toolkit.argmax import argmax
from toolkit.draws import ACCEPT, DRAFT, EMIT, Draws

N = 40_000


def positions(n: int = N) -> torch.Tensor:
    return torch.arange(n)[None]


def test_uniform_is_uniform_along_positions_seeds_and_lanes():
    many = Draws(torch.arange(N))
    one = Draws(torch.tensor([7]))
    for u in (
        one.uniform(ACCEPT, positions()),
        many.uniform(ACCEPT, torch.full((N,), 3)),
        one.uniform(ACCEPT, torch.zeros(1, N).long(), torch.arange(N)[None]),
    ):
        assert u.min() > 0 and u.max() < 1
        assert kstest(u.flatten().numpy(), "uniform").pvalue > 1e-4


def test_keys_are_told_apart_and_repeat():
    one = Draws(torch.tensor([7]))
    u = one.uniform(ACCEPT, positions())
    assert torch.equal(u, Draws(torch.tensor([7])).uniform(ACCEPT, positions()))
    others = (
        one.uniform(DRAFT, positions()),
        one.uniform(ACCEPT, positions(), 1),
        one.uniform(ACCEPT, positions() + 1),
        Draws(torch.tensor([8])).uniform(ACCEPT, positions()),
    )
    for v in others:
        assert abs(torch.corrcoef(torch.cat([u, v]))[0, 1]) < 5 / N**0.5
        assert not torch.equal(u, v)


def test_a_row_draws_the_same_in_any_batch():
    seeds = torch.tensor([3, 5, 9])
    probs = torch.rand(3, 50).softmax(-1)
    at = torch.tensor([4, 40, 400])
    together = Draws(seeds).pick(probs, EMIT, at)
    alone = [Draws(seeds[b : b + 1]).pick(probs[b : b + 1], EMIT, at[b : b + 1]) for b in range(3)]
    assert together.tolist() == torch.cat(alone).tolist()


def test_pick_has_the_law_and_the_test_would_see_another():
    probs = torch.tensor([0.3, 0.22, 0.15, 0.12, 0.09, 0.06, 0.04, 0.02], dtype=torch.float64)
    picked = Draws(torch.tensor([1])).pick(probs.expand(1, N, 8), EMIT, positions())
    counts = torch.bincount(picked.flatten(), minlength=8).numpy()
    assert chisquare(counts, N * probs.numpy()).pvalue > 1e-4
    other = probs + torch.tensor([0.02, -0.02, 0, 0, 0, 0, 0, 0])
    assert chisquare(counts, N * other.numpy()).pvalue < 1e-4


def test_coin_is_fair_and_certain_at_its_ends():
    draws = Draws(torch.tensor([1]))
    taken, u = draws.coin(torch.full((1, N), 0.3), positions())
    assert abs(taken.double().mean() - 0.3) < 5 * (0.21 / N) ** 0.5
    assert torch.equal(taken, u < 0.3)
    assert draws.coin(torch.ones(1, N), positions())[0].all()
    assert not draws.coin(torch.zeros(1, N), positions())[0].any()


def test_zeros_are_never_picked():
    probs = torch.zeros(1, N, 5)
    probs[..., 3] = 1e-30
    assert (Draws(torch.tensor([0])).pick(probs, EMIT, positions()) == 3).all()


@given(st.integers(1, 2600), st.integers(0, 2**32 - 1), st.booleans())
def test_argmax_in_blocks_is_the_first_largest(vocab: int, seed: int, broken: bool) -> None:
    source = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 4, (2, 3, vocab), generator=source).double()  # many ties
    if broken:
        x[torch.rand(x.shape, generator=source) < 2 / vocab] = torch.nan
    assert torch.equal(argmax(x), x.argmax(-1))


@given(st.integers(0, 2**31 - 1), st.integers(1, 40), st.integers(1, 3))
def test_few_tokens_are_picked_as_among_all(seed: int, left: int, lanes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    probs = torch.rand(2, 3, 1, 320, dtype=torch.float64, generator=generator)
    few = torch.zeros_like(probs).scatter(-1, probs.topk(left, -1).indices, 1) * probs
    draws = Draws(torch.tensor([seed, seed + 1]))
    lane = torch.arange(3 * lanes).view(3, lanes)
    position = torch.full((2, 3, lanes), 7)
    whole = (few / draws.race(320, EMIT, position, lane)).argmax(-1)
    assert torch.equal(draws.pick(few, EMIT, position, lane), whole)

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import lm, tiny

from toolkit.cache import LayerSpec, Paged, Slab, Store, fill
from toolkit.protocols import Context, Paging
from toolkit.sampling import BatchSampler, Sampling
from toolkit.tree import TokenTree

SPECS = {
    0: LayerSpec(2, 4, 4, torch.device("cpu"), torch.float64),
    1: LayerSpec(2, 4, 4, torch.device("cpu"), torch.float64),
    2: LayerSpec(1, 6, 3, torch.device("cpu"), torch.float64),  # another kind: its own memory
}


def context(texts: list[list[int]]) -> Context:
    lengths = [len(t) for t in texts]
    host = np.zeros((len(texts), max(lengths) + 8), np.int64)
    for row, text in zip(host, texts, strict=True):
        row[: len(text)] = text
    length = torch.tensor(lengths)
    sampler = BatchSampler.of([Sampling()] * len(texts)).at(length)
    return Context(torch.from_numpy(host.copy()), length, host, tuple(lengths), (9,) * len(texts), sampler)


def keys(token: torch.Tensor, spec: LayerSpec, size: int, layer: int) -> torch.Tensor:
    """A key that tells its token and layer: [B, H, N, size]."""
    return (token * 10.0 + layer).double()[:, None, :, None].expand(-1, spec.heads, -1, size)


def write(store: Store, token: torch.Tensor, start: int = 0) -> None:
    for layer, spec in SPECS.items():
        store.write(layer, start, keys(token, spec, spec.key, layer), keys(token, spec, spec.value, layer) + 0.5)


def holds(store: Store, b: int) -> list[list[float]]:
    """What each layer's settled slots of row b hold, by token."""
    n = int(store.length[b])
    out = []
    for layer in SPECS:
        store.layout.reserve(store.bound, 1)
        keys, values = store.layout.view(layer, store.used + 1)
        assert torch.equal(values[b, 0, :n, 0], keys[b, 0, :n, 0] + 0.5)
        out.append(((keys[b, 0, :n, 0] - layer) / 10).tolist())
    return out


LAYOUTS = [Slab, lambda: Paged(1), lambda: Paged(2, shared=False), lambda: Paged(4, 40)]


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(deadline=None, max_examples=30)
@given(st.data())
def test_keep_settles_the_path_in_order_on_every_layer(layout, data):
    """Steps of random trees over rows of different lengths, with so few slots that the memory must grow."""
    store = Store.empty(layout(), SPECS, 3, 2, "cpu")
    kept: list[list[int]] = [[], [], []]
    for step in range(data.draw(st.integers(1, 5))):
        n = data.draw(st.integers(1, 5))
        parent = [[-1] + [data.draw(st.integers(0, i - 1)) for i in range(1, n)] for _ in range(3)]
        token = torch.arange(3 * n).view(3, n) + 100 * step
        tree = TokenTree(token, torch.tensor(parent), torch.ones(3, n).bool())
        first = data.draw(st.integers(1, n))
        write(store, token[:, :first])
        if first < n:
            write(store, token[:, first:], first)
        path = tree.path(torch.tensor([data.draw(st.integers(0, n - 1)) for _ in range(3)]))
        store.keep(tree, path)
        for b in range(3):
            kept[b] += token[b][path[b]].tolist()
        if data.draw(st.booleans()):
            texts = [[*k, 7] for k in kept]
            store.trust(context(texts).host, np.array([len(k) for k in kept]))
        for b in range(3):
            assert holds(store, b) == [kept[b]] * 3
        assert store.used >= int(store.length.max())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_chain_moves_nothing_and_ends_where_its_path_ends(layout):
    store = Store.empty(layout(), SPECS, 2, 8, "cpu")
    tree = TokenTree.chain(torch.tensor([[1, 2, 3], [4, 5, 6]]))
    write(store, tree.token)
    store.keep(tree, tree.path(torch.tensor([2, 0])))
    assert holds(store, 0) == [[1, 2, 3]] * 3 and holds(store, 1) == [[4]] * 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_agree_trusts_the_common_prefix_only(layout):
    store = Store.empty(layout(), SPECS, 2, 8, "cpu")
    tree = TokenTree.chain(torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]))
    write(store, tree.token)
    store.keep(tree, tree.real)
    store.trust(context([[1, 2, 3, 4, 9], [5, 6, 7, 8, 9]]).host, np.array([4, 4]))
    store.agree(context([[1, 2, 3, 4, 9, 9], [5, 6, 7, 8, 9]]))
    assert store.filled.tolist() == [4, 4]
    store.agree(context([[1, 2, 30, 4, 9], [5, 6]]))
    assert store.filled.tolist() == [2, 1], "another token, and the pending one left out"
    store.agree(context([[1, 2, 3, 4, 9], [5, 6, 7, 8, 9]]))
    assert store.filled.tolist() == [2, 1], "what was given up does not come back by itself"


def test_pages_without_features_are_not_found_once_features_are_wanted():
    store = Store.empty(Paged(2, 20), SPECS, 1, 8, "cpu")
    tree = TokenTree.chain(torch.tensor([[1, 2, 3, 4]]))

    def settle(who: str) -> None:
        store.agree(replace(context([[1, 2, 3, 4, 9]]), who=(who,)))
        if not store.filled[0]:
            write(store, tree.token)
            if who > "b":
                store.file(tree.token[..., None].double(), torch.arange(4)[None], tree.real)
            store.keep(tree, tree.real)
            store.trust(context([[1, 2, 3, 4, 9]]).host, np.array([4]))

    for who in "abcd":
        settle(who)
    assert store.found == {"a": 0, "b": 4, "c": 4, "d": 4}
    store = Store.empty(Paged(2, 20), SPECS, 1, 8, "cpu")
    settle("a")
    store.layout.file(tree.token[..., None].double(), torch.arange(4)[None], tree.real)
    settle("c")
    settle("d")
    assert store.found == {"a": 0, "c": 0, "d": 4} and store.recall(0, 4).flatten().tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("paging", [None, Paging(1), Paging(4, 9)])
@pytest.mark.parametrize("chunk", [*range(1, 13), 256])
def test_every_chunk_size_fills_the_same(chunk, paging):
    texts = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [2, 7, 1], [8]]
    cache = lm(0).open(3, 4, paging)
    fill(lm(0), cache, replace(context(texts), chunk=chunk))
    assert cache.filled.tolist() == [10, 2, 0]
    tree = TokenTree.chain(torch.tensor([[5], [1], [8]]))
    logits = lm(0).read(tree, cache).logits
    for b, text in enumerate(texts):
        with torch.inference_mode():
            want = tiny(0)(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1]
        torch.testing.assert_close(logits[b, 0], want)


def test_one_pass_over_a_tree_equals_single_steps():
    """The logits of a many-token read against one token at a time: rounding, and nothing more."""
    whole, single = lm(0).open(1, 16), lm(0).open(1, 16)
    tree = TokenTree.chain(torch.tensor([[3, 1, 4, 1, 5, 9]]))
    together = lm(0).read(tree, whole).logits
    for i in range(6):
        one = TokenTree.chain(tree.token[:, i : i + 1])
        logits = lm(0).read(one, single).logits
        single.keep(one, one.real)
        assert (logits[0, 0] - together[0, i]).abs().max() < 1e-9

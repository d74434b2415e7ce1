import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from toolkit.tree import TokenTree, path_first


def tree_of(parents: list[list[int]], real: list[list[bool]] | None = None) -> TokenTree:
    parent = torch.tensor(parents)
    return TokenTree(
        torch.arange(parent.numel()).view_as(parent),
        parent,
        torch.ones_like(parent).bool() if real is None else torch.tensor(real),
    )


@st.composite
def parents(draw, most=14):
    n = draw(st.integers(1, most))
    return [-1, *(draw(st.integers(0, i - 1)) for i in range(1, n))]


def ancestors(parent: list[int], i: int) -> set[int]:
    out = {i}
    while parent[i] >= 0:
        i = parent[i]
        out.add(i)
    return out


@given(parents())
def test_ancestors_depth_and_path_equal_brute_force(parent):
    tree = tree_of([parent])
    for i in range(len(parent)):
        want = ancestors(parent, i)
        assert set(tree.ancestors[0, i].nonzero().flatten().tolist()) == want
        assert tree.depth[0, i] == len(want) - 1
        assert set(tree.path(torch.tensor([i]))[0].nonzero().flatten().tolist()) == want


@given(parents(), st.data())
def test_prune_keeps_paths(parent, data):
    """Whatever closed set of nodes is kept, each kept node's path keeps its tokens."""
    tips = data.draw(st.lists(st.integers(0, len(parent) - 1)))
    keep = sorted({0}.union(*(ancestors(parent, t) for t in tips)))
    tree = tree_of([parent])
    small = tree.prune(torch.tensor([keep]))
    small.check()
    for new, old in enumerate(keep):
        was = tree.token[0][tree.ancestors[0, old]].tolist()
        assert small.token[0][small.ancestors[0, new]].tolist() == was


@given(st.lists(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=5), min_size=1, max_size=3))
def test_from_paths_holds_each_path_once(rows):
    tree = TokenTree.from_paths(torch.full((len(rows), 1), 9), rows)
    tree.check()
    for b, paths in enumerate(rows):
        prefixes = {tuple(p[:n]) for p in paths for n in range(1, len(p) + 1)}
        real = tree.real[b].nonzero().flatten().tolist()
        found = [tuple(tree.token[b][tree.ancestors[b, i]].tolist()[1:]) for i in real if i]
        assert sorted(found) == sorted(prefixes)


def test_linear_is_only_claimed_of_chains():
    chain = TokenTree.from_paths(torch.zeros(2, 1).long(), [[[1, 2, 3]], [[4]]])
    fork = TokenTree.from_paths(torch.zeros(1, 1).long(), [[[1, 2], [3]]])
    assert chain.linear and not fork.linear
    plain = TokenTree(chain.token, chain.parent, chain.real)
    assert torch.equal(chain.ancestors, plain.ancestors) and torch.equal(chain.depth, plain.depth)


def test_grow_then_prune_a_ragged_batch():
    tree = TokenTree.chain(torch.tensor([[1], [2]])).grow(
        torch.tensor([[0, 0], [0, 0]]), torch.tensor([[3, 4], [5, 6]])
    )
    tree = tree.grow(torch.tensor([[1], [2]]), torch.tensor([[7], [8]]))
    assert tree.depth.tolist() == [[0, 1, 1, 2], [0, 1, 1, 2]]
    assert tree.prune(torch.tensor([[0, 1, 3], [0, 2, 3]])).parent.tolist() == [[-1, 0, 1], [-1, 0, 1]]


def test_limit_makes_deep_nodes_padding():
    tree = TokenTree.from_paths(torch.zeros(2, 1).long(), [[[1, 2, 3], [4]], [[5, 6]]]).limit(torch.tensor([1, 0]))
    tree.check()
    assert tree.real.sum(1).tolist() == [3, 1]


@pytest.mark.parametrize(
    ("parent", "real"),
    [
        ([[0, 0]], [[True, True]]),
        ([[-1, 1]], [[True, True]]),
        ([[-1, -1]], [[True, True]]),
        ([[-1, -1, 1]], [[True, False, True]]),
    ],
)
def test_check_finds_what_is_no_tree(parent, real):
    with pytest.raises(ValueError, match=r"tree|root|node 0"):
        tree_of(parent, real).check()


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="one shape"):
        TokenTree(torch.zeros(1, 2).long(), torch.zeros(1, 3).long(), torch.ones(1, 2).bool())


def test_path_first():
    assert path_first(torch.tensor([[True, False, True, False]])).tolist() == [[0, 2, 1, 3]]

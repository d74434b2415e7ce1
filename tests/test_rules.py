"""Rules on hand-made proposals, without a model."""

import pytest
import torch
from scipy.stats import chisquare

from toolkit.protocols import Proposal
from toolkit.sampling import BatchSampler, Sampling
from toolkit.tree import TokenTree, path_first
from toolkit.verification import Greedy, Rejection
from toolkit.verification.check import check_draw

P8 = torch.tensor([0.30, 0.22, 0.15, 0.12, 0.09, 0.06, 0.04, 0.02], dtype=torch.float64)
Q8 = torch.tensor([0.10, 0.34, 0.05, 0.20, 0.06, 0.10, 0.05, 0.10], dtype=torch.float64)
N = 40_000


def sampler(rows: int, first: int = 0) -> BatchSampler:
    return BatchSampler.of([Sampling(1.0, seed=first + s) for s in range(rows)]).at(torch.full((rows,), 10))


def siblings(draw: str, k: int, rows: int = N) -> torch.Tensor:
    """[rows, k] children of one node."""
    generator = torch.Generator().manual_seed(1)
    if draw == "certain":
        return torch.tensor([3, 0, 5])[:k].expand(rows, k)
    return torch.multinomial(Q8.expand(rows, 8), k, replacement=draw == "independent", generator=generator)


def emitted(draw: str, label: str, k: int = 3) -> torch.Tensor:
    """Counts of the first token when siblings drawn one way are verified under a label."""
    token = torch.cat([torch.zeros(N, 1).long(), siblings(draw, k)], 1)
    tree = TokenTree(token, torch.tensor([-1] + [0] * k).expand(N, -1), torch.ones_like(token).bool())
    q = None if label == "certain" else Q8.expand(N, k + 1, 8)
    verdict = Rejection()(Proposal(tree, q, label), P8.log().expand(N, k + 1, 8), sampler(N))
    first = torch.where(verdict.tip > 0, token.gather(1, verdict.tip[:, None])[:, 0], verdict.bonus)
    return torch.bincount(first, minlength=8)


@pytest.mark.parametrize("draw", ["certain", "independent", "distinct"])
def test_rejection_emits_the_targets_law(draw):
    assert chisquare(emitted(draw, draw).numpy(), N * P8.numpy()).pvalue > 1e-4


@pytest.mark.parametrize(("draw", "label"), [("distinct", "independent"), ("independent", "distinct")])
def test_a_mislabelled_draw_is_seen(draw, label):
    """The negative control: the same test on proposals that were drawn another way than they say."""
    assert chisquare(emitted(draw, label).numpy(), N * P8.numpy()).pvalue < 1e-4


def test_a_certain_label_on_sampled_siblings_is_exact_but_wasteful():
    counts = emitted("distinct", "certain")
    assert chisquare(counts.numpy(), N * P8.numpy()).pvalue > 1e-4


def test_certain_and_sampled_siblings_may_stand_under_one_parent():
    """Two n-gram guesses around two drawn ones: q_row says whose is whose."""
    drawn = siblings("distinct", 2)
    token = torch.stack([torch.zeros(N).long(), torch.full((N,), 2), drawn[:, 0], torch.full((N,), 6), drawn[:, 1]], 1)
    tree = TokenTree(token, torch.tensor([-1, 0, 0, 0, 0]).expand(N, -1), torch.ones_like(token).bool())
    source = torch.tensor([-1, -1, 0, -1, 0]).expand(N, -1)
    proposal = Proposal(tree, Q8.expand(N, 1, 8), "distinct", source)
    verdict = Rejection()(proposal, P8.log().expand(N, 5, 8), sampler(N))
    first = torch.where(verdict.tip > 0, token.gather(1, verdict.tip[:, None])[:, 0], verdict.bonus)
    assert chisquare(torch.bincount(first, minlength=8).numpy(), N * P8.numpy()).pvalue > 1e-4


def random_proposals(rows: int, seed: int, vocab: int = 5) -> tuple[TokenTree, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 14, (1,), generator=generator))
    parent = [[-1] + [int(torch.randint(0, i, (1,), generator=generator)) for i in range(1, n)] for _ in range(rows)]
    token = torch.randint(0, vocab, (rows, n), generator=generator)
    tree = TokenTree(token, torch.tensor(parent), torch.ones(rows, n).bool())
    return tree, torch.randn(rows, n, vocab, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(40))
def test_greedy_is_a_walk_along_the_arg_max(seed):
    """Against a readable sequential walk; twin siblings included, of which the first counts."""
    tree, logits = random_proposals(32, seed)
    cold = BatchSampler.of([Sampling(0)] * 32).at(torch.full((32,), 3))
    verdict = Greedy()(Proposal(tree), logits, cold)
    assert Rejection()(Proposal(tree), logits, cold).tip.tolist() == verdict.tip.tolist()
    best = logits.argmax(-1)
    for b in range(32):
        longest, stack = (0, 0), [(0, 0)]
        while stack:  # the deepest right path, the first among equals
            at, depth = stack.pop()
            if depth > longest[0]:
                longest = depth, at
            right = [i for i in range(1, tree.size) if tree.parent[b, i] == at and tree.token[b, i] == best[b, at]]
            stack += [(i, depth + 1) for i in right]
        deep = [i for i in range(tree.size) if tree.depth[b, i] == longest[0] and _right(tree, best, b, i)]
        assert verdict.tip[b] == deep[0]
        assert verdict.bonus[b] == best[b, verdict.tip[b]]


def _right(tree: TokenTree, best: torch.Tensor, b: int, i: int) -> bool:
    while i > 0:
        above = int(tree.parent[b, i])
        if tree.token[b, i] != best[b, above]:
            return False
        i = above
    return True


@pytest.mark.parametrize(
    ("p", "q", "x"),
    [
        (Q8, Q8, 1),  # p == q: never rejected, residual empty
        (torch.eye(8, dtype=torch.float64)[4], Q8, 4),  # all on the draft
        (torch.eye(8, dtype=torch.float64)[4], Q8, 2),  # all elsewhere
        (P8, torch.eye(8, dtype=torch.float64)[0], 3),  # q is zero at the drafted token
        (torch.full((8,), 0.125, dtype=torch.float64), torch.full((8,), 0.125, dtype=torch.float64), 7),
    ],
)
@pytest.mark.parametrize("draw", ["independent", "distinct", "certain"])
def test_degenerate_distributions_still_give_a_token_of_the_target(p, q, x, draw):
    tree = TokenTree.chain(torch.tensor([[0, x]] * 50))
    proposal = Proposal(tree, None if draw == "certain" else q.expand(50, 2, 8), draw)
    verdict = Rejection()(proposal, p.log().expand(50, 2, 8), sampler(50))
    out = torch.where(verdict.tip > 0, x, verdict.bonus)
    assert (p[out] > 0).all() and verdict.bonus.max() < 8
    if torch.equal(p, q) and draw != "certain":
        assert (verdict.tip == 1).all()


def test_padding_is_never_accepted():
    tree = TokenTree.chain(torch.tensor([[0, 3, 3]]), torch.tensor([[True, False, False]]))
    certain = torch.full((1, 3, 8), -torch.inf, dtype=torch.float64)
    certain[..., 3] = 0
    for rule, heat in ((Greedy(), 0), (Rejection(), 0), (Rejection(), 1.0)):
        bound = BatchSampler.of([Sampling(heat)]).at(torch.tensor([2]))
        verdict = rule(Proposal(tree), certain, bound)
        assert verdict.tip.tolist() == [0] and verdict.bonus.tolist() == [3]


def test_a_rule_refuses_draws_it_is_not_made_for():
    class OnlyCertain:
        draws = frozenset(("certain",))

    proposal = Proposal(TokenTree.chain(torch.tensor([[0, 1]])), torch.rand(1, 2, 8).softmax(-1), "independent")
    with pytest.raises(ValueError, match=r"OnlyCertain is made for \['certain'\].*'independent'"):
        check_draw(OnlyCertain(), proposal)
    check_draw(Rejection(), proposal)


def test_a_proposal_says_what_it_lacks():
    tree = TokenTree.chain(torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match="'independent' needs q"):
        Proposal(tree, None, "independent")
    with pytest.raises(ValueError, match="'certain' has no use for q"):
        Proposal(tree, torch.rand(1, 2, 8), "certain")
    with pytest.raises(ValueError, match="3 rows for 2 nodes"):
        Proposal(tree, torch.rand(1, 3, 8), "distinct")


@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_rules_compile_to_one_graph(heat):
    """No host sync and no branch on data: the whole rule is one graph."""
    tree, logits = random_proposals(3, 5)
    bound = BatchSampler.of([Sampling(heat, seed=b) for b in range(3)]).at(torch.full((3,), 7))
    q = logits.softmax(-1)

    def run(token, parent, real, logits, q):
        tree = TokenTree(token, parent, real)
        verdict = Rejection()(Proposal(tree, q, "independent"), logits, bound)
        return verdict.tip, verdict.bonus

    inputs = tree.token, tree.parent, tree.real, logits, q
    compiled = torch.compile(run, fullgraph=True, backend="eager")(*inputs)
    assert [c.tolist() for c in compiled] == [c.tolist() for c in run(*inputs)]


def test_the_kept_path_and_the_bonus_are_what_is_emitted():
    tree = TokenTree.from_paths(torch.tensor([[9]]), [[[1, 2], [3]]])
    order = path_first(tree.path(torch.tensor([2])))
    assert tree.token.gather(1, order).tolist() == [[9, 1, 2, 3]]

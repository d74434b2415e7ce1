"""Training: what a head is taught is what it will do while it drafts; runs resume to the same bits; data is written once."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from taught import HEADS, TAPS, drafter, greedy_texts, new_head, plan, taught
from tiny import lm
from torch import nn

from toolkit.engine import Engine
from toolkit.heads.whole import rolled, rolled_plainly
from toolkit.sampling import Sampling, Stopping
from toolkit.training import DPace, Objective, Plan, Reader, Shards, capture, fit, simulate, size_of
from toolkit.training import losses as L
from toolkit.training.lessons import Joined
from toolkit.training.optimizers import optimizers, set_rate
from toolkit.training.plan import Look, StepReport
from toolkit.training.teach import all_anchors, draw_anchors

QUICK = ("eagle 3, reduced", "medusa", "block")  # one of each socket; teaching the others takes half a minute
KINDS = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in HEADS]


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_learns(kind: str) -> None:
    _, reports = taught(kind)
    looks, steps = [r for r in reports if isinstance(r, Look)], [r for r in reports if isinstance(r, StepReport)]
    assert steps[-1].loss < 0.9 * steps[0].loss
    assert max(look.simulated.acceptance_length for look in looks) > looks[0].simulated.acceptance_length + 0.1
    assert [s.step for s in steps] == list(range(1, len(steps) + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_simulation_makes_the_engines_very_steps(kind: str) -> None:
    """So what is taught is aligned as it will be while drafting, at every depth, and held-out texts tell the truth."""
    head = copy.deepcopy(taught(kind)[0]).double()
    engine = Engine(lm(0), drafter(kind, head, 3), sampling=Sampling(0))
    accepted = 0
    for text in greedy_texts()[:12]:
        ((start, end),) = text.answers
        found = simulate(head, Reader(lm(0), [text], head.taps), [0], depth=3)
        session = engine.generate([text.tokens[: start + 1]], stopping=Stopping(end - start - 1))
        assert session.outputs[0] == list(text.tokens[start + 1 : end])
        assert found.steps == len(session.trace.steps)
        accepted += found.tokens - found.steps
    assert accepted > 10


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("eagle 3, reduced", {}), ("eagle 3, reduced", {"optimizer": "muon", "short": 0.5}), ("block", {"prompts": True})],
)
def test_a_run_goes_on_to_the_same_bits(kind: str, changes, tmp_path) -> None:
    def run(folder, most: int | None = None) -> nn.Module:
        head = new_head(kind)
        source = Reader(lm(0), greedy_texts(), head.taps)
        for i, _ in enumerate(fit(head, lm(0).unembedding, source, plan(epochs=4, every=5, **changes), folder=folder)):
            if most is not None and i >= most:
                break
        return head

    whole = run(tmp_path / "a").state_dict()
    for most in (3, 9, 17, 17, 26):
        run(tmp_path / "b", most)
    again = run(tmp_path / "b").state_dict()
    assert all(torch.equal(whole[k], again[k]) for k in whole)


def test_a_run_by_another_plan_is_not_gone_on_with(tmp_path) -> None:
    head = new_head("medusa")
    source = Reader(lm(0), greedy_texts(), head.taps)
    list(fit(head, lm(0).unembedding, source, plan(epochs=1), folder=tmp_path))
    with pytest.raises(ValueError, match="another plan"):
        list(fit(head, lm(0).unembedding, source, plan(epochs=2), folder=tmp_path))


def test_a_capture_says_what_the_target_says(tmp_path) -> None:
    texts = greedy_texts()[:11]
    size = size_of(lm(0), texts, TAPS)
    wrote = list(capture(lm(0), texts, TAPS, tmp_path, shard_tokens=90, rows=3))
    assert wrote[-1] == size and len(wrote) > 2
    on_disk = sum(f.stat().st_size for f in tmp_path.glob("*.safetensors"))
    assert size.bytes < on_disk < 1.1 * size.bytes + 1000 * len(wrote)
    shards, reader = Shards(tmp_path), Reader(lm(0), texts, TAPS)
    for a, b in zip(shards.told([7, 0, 10]), reader.told([7, 0, 10]), strict=True):
        assert a.text == b.text and torch.equal(a.best, b.best)
        assert torch.allclose(a.feature, b.feature, atol=1e-9) and torch.allclose(a.state, b.state, atol=1e-9)
    with pytest.raises(ValueError, match="other texts or taps"):
        list(capture(lm(0), texts, (1,), tmp_path))
    next(tmp_path.glob("*.safetensors")).unlink()
    with pytest.raises(ValueError, match="lacks shard"):
        Shards(tmp_path)


def test_a_capture_grows_with_its_texts(tmp_path) -> None:
    texts = greedy_texts()[:11]
    list(capture(lm(0), texts[:7], TAPS, tmp_path, shard_tokens=90, rows=3))
    before = {f.name: f.stat().st_mtime_ns for f in tmp_path.glob("*.safetensors")}
    list(capture(lm(0), texts, TAPS, tmp_path, shard_tokens=90, rows=3))
    after = {f.name: f.stat().st_mtime_ns for f in tmp_path.glob("*.safetensors")}
    assert len(before) == 2 and len(after) == 3
    assert [name for name in before if before[name] == after[name]] == sorted(before)[:1]  # the last was not full
    for a, b in zip(Shards(tmp_path).told(range(11)), Reader(lm(0), texts, TAPS).told(range(11)), strict=True):
        assert a.text == b.text and torch.equal(a.best, b.best)
    with pytest.raises(ValueError, match="other texts or taps"):
        list(capture(lm(0), texts[1:], TAPS, tmp_path, shard_tokens=90))


def test_sources_are_joined_evenly() -> None:
    texts = greedy_texts()
    joined = Joined([Reader(lm(0), texts[:8], TAPS), Reader(lm(0), texts[8:12], TAPS)])
    assert [texts.index(t) for t in joined.texts] == [0, 8, 1, 2, 9, 3, 4, 10, 5, 6, 11, 7]
    assert [t.text for t in joined.told([4, 1])] == [joined.texts[4], joined.texts[1]]


def test_muon_moves_the_maps_and_adamw_the_tables() -> None:
    head = new_head("eagle 3, reduced")
    muon, adam = optimizers(head, Plan(optimizer="muon", rate=1e-2, table_rate=0.1))
    names = {id(p): name for name, p in head.named_parameters()}
    (maps,) = muon.param_groups
    tables, rest = adam.param_groups
    assert [names[id(p)] for p in tables["params"]] == ["lm_head.weight"]
    assert all(p.ndim == 2 for p in maps["params"]) and all(p.ndim == 1 for p in rest["params"])
    assert len(maps["params"]) + 1 + len(rest["params"]) == len(names)
    for optimizer in (muon, adam):
        set_rate(optimizer, 5e-3)
    assert [g["lr"] for g in (maps, tables, rest)] == [5e-3, 5e-4, 5e-3]
    with pytest.raises(ValueError, match="'sgd'"):
        Plan(optimizer="sgd")


def test_prompts_are_taught_when_asked_for_and_chains_grow_after_the_short_part() -> None:
    head, texts = new_head("eagle 3, reduced"), greedy_texts()
    source = Reader(lm(0), texts, head.taps)
    told = [
        r
        for r in fit(head, lm(0).unembedding, source, plan(epochs=1, prompts=True, short=0.5))
        if isinstance(r, StepReport)
    ]
    depths = [len([d for d in r.by_depth if d]) for r in told]
    assert depths == [1] * (len(told) // 2) + [3] * (len(told) // 2)
    assert told[-1].tokens == sum(len(t.tokens) - 1 for t in texts[: len(told) * 4])


def test_losses() -> None:
    generator = torch.Generator().manual_seed(0)
    p, q = torch.randn(50, 9, generator=generator).double(), torch.randn(50, 9, generator=generator).double()
    best = p.argmax(-1)
    alpha = torch.minimum(p.softmax(-1), q.softmax(-1)).sum(-1)
    assert torch.allclose(L.tv(q, p, best), 1 - alpha)
    assert torch.allclose(L.negative_log_acceptance(q, p, best), -alpha.log())
    entropy = -(p.softmax(-1) * p.log_softmax(-1)).sum(-1)
    assert torch.allclose(L.soft_ce(q, p, best), L.kl(q, p, best) + entropy)
    assert torch.allclose(L.reverse_kl(q, p, best), L.kl(p, q, best))
    assert torch.allclose(L.hard_ce(q, p, best), -q.log_softmax(-1).gather(1, best[:, None])[:, 0])
    share = (-3 * alpha).exp()
    assert torch.allclose(L.lk_hybrid(q, p, best), share * L.kl(q, p, best) + (1 - share) * (1 - alpha))
    assert L.hard_ce(q, p, torch.full_like(best, -1)).abs().max() == 0
    for loss in L.LOSSES.values():
        assert (loss(p, p, best) <= loss(q, p, best) + 1e-9).float().mean() > 0.7  # the target itself is hard to beat


def test_weights() -> None:
    c = torch.tensor([[1.0, 0.5, 0.0]])
    # smoothed: 1, .75, .5; prefix products 1, .75, .375; suffix sums of those
    assert torch.allclose(DPace()(c), torch.tensor([[2.125, 1.125, 0.375]]))
    assert torch.allclose(L.Decay(0.5)(c), torch.tensor([[1.0, 0.5, 0.25]]))
    assert torch.allclose(L.Fading(4.0)(c)[0, 2], torch.tensor(-0.5).exp())


def test_a_loss_of_ones_own() -> None:
    def margin(head, target, best):
        """Hinge: the target's likeliest token is to lead by one."""
        mine = head.gather(1, best[:, None])
        return (1 + head - mine).clamp(min=0).sum(-1) - 1

    head = new_head("medusa")
    source = Reader(lm(0), greedy_texts(), head.taps)
    made = [
        r
        for r in fit(head, lm(0).unembedding, source, plan(objective=Objective(((margin, 1.0),))))
        if isinstance(r, StepReport)
    ]
    assert made[-1].loss < 0.9 * made[0].loss
    with pytest.raises(ValueError, match="unknown loss 'cosine'"):
        Objective((("cosine", 1.0),))


def test_anchors() -> None:
    from toolkit.training.lessons import lesson

    batch = lesson(Reader(lm(0), greedy_texts()[:3], TAPS).told([0, 1, 2]))
    every = all_anchors(batch)
    for b in range(3):
        ((start, end),) = greedy_texts()[b].answers
        assert [a for a in every[b].tolist() if a >= 0] == list(range(start - 1, end - 1))
    drawn, alone = draw_anchors(batch, 5, [4, 5, 6]), draw_anchors(batch, 5, [9, 5, 8])
    assert drawn.shape == (3, 5) and torch.equal(drawn[1], alone[1]) and not torch.equal(drawn[0], alone[0])


@given(st.integers(0, 2**20), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(1, 4))
def test_the_fused_rollout_is_the_plain_one(seed: int, groups: int, rows: int, n: int, later: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def made(heads: int) -> torch.Tensor:
        return torch.randn(rows, heads, n, 4, dtype=torch.float64, generator=generator).requires_grad_()

    q, kept = made(2 * groups), [(made(2), made(2)) for _ in range(1 + later)]
    toward = torch.randn(rows, n, 2 * groups, 4, dtype=torch.float64, generator=generator)
    leaves = [q, *(x for pair in kept for x in pair)]
    found = []
    for way in (rolled, rolled_plainly):
        out = way(q, kept)
        found.append([out, *torch.autograd.grad(out, leaves, toward)])
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-9)

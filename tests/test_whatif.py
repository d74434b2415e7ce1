"""Recorded steps judged again: the same verdicts, the same chances, and honest sentences where they are not the same."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import torch
from tiny import PROMPTS, lm, noisy_lm, tiny

from toolkit.drafting import Chain, DraftModel, Dynamic, EarlyExit, Mixture, NGram, Sampled
from toolkit.engine import Engine
from toolkit.models import zoo
from toolkit.models.early_exit import first_layers
from toolkit.models.hf import HFModel
from toolkit.protocols import Rule
from toolkit.sampling import BatchSampler, Sampling, Stopping
from toolkit.trace import RowRecord, Trace, load, save
from toolkit.trace.files import ENDINGS
from toolkit.trace.metrics import row_steps
from toolkit.tree import TokenTree
from toolkit.verification import (
    Block,
    Coupled,
    Greedy,
    PointMass,
    Rejection,
    Threshold,
    Traversal,
    Typical,
)
from toolkit.verification.statistics import chi_square
from toolkit.whatif import REST, Prefix, again, distribution, law, proof, residual
from toolkit.whatif.known import known
from toolkit.whatif.problem import Problem
from toolkit.whatif.shaped import Left, shaped

DRAFTERS = {
    "certain": lambda: DraftModel(noisy_lm(), Dynamic(3, 3, 7)),
    "distinct": lambda: DraftModel(noisy_lm(), Sampled((3, 2))),
    "independent": lambda: DraftModel(noisy_lm(), Sampled((2, 2), distinct=False)),
    "chain": lambda: DraftModel(noisy_lm(), Chain(4)),
    "mixture": lambda: Mixture([NGram(shortest=1), DraftModel(noisy_lm(), Chain(2))]),
}
SAMPLINGS = {
    "greedy, k 1": (Sampling(0.0), 1),
    "all recorded": (Sampling(1.0, seed=5), 64),
    "top-k": (Sampling(0.9, top_k=10, seed=5), 12),
    "all filters": (Sampling(0.7, top_k=30, top_p=0.9, min_p=0.02, typical_p=0.9, repetition_penalty=1.2, seed=7), 32),
}


@functools.cache
def steps(name: str, rule: Rule, sampling: Sampling, k: int, new: int = 14) -> tuple[RowRecord, ...]:
    return tuple(r for _, r in told(name, rule, sampling, k, new))


@functools.cache
def told(name: str, rule: Rule, sampling: Sampling, k: int, new: int = 14) -> tuple[tuple[list[int], RowRecord], ...]:
    """Every row's entry of every step, with the text up to its pending token."""
    engine = Engine(lm(0), DRAFTERS[name](), rule, sampling, Stopping(new), evidence=k, top=3)
    texts, out = [list(p) for p in PROMPTS], []
    for step in engine.generate(PROMPTS).trace.steps:
        for text, r in zip(texts, step.rows, strict=True):
            if r:
                out.append((text.copy(), r))
                text += r.emitted
    return tuple(out)


def drawn(name: str, k: int = 12) -> tuple[RowRecord, ...]:
    """Steps under top-k 8, so that few tokens matter and all of them are recorded."""
    return steps(name, Rejection(), Sampling(1.0, top_k=8, seed=3), k)


def alike(a: RowRecord, b: RowRecord) -> bool:
    """The same verdict by the same tests with the same noise, on numbers that are equal to float32."""
    if (a.tip, a.bonus, a.token, a.parent, a.outcome) != (b.tip, b.bonus, b.token, b.parent, b.outcome):
        return False
    tested = [i for i, o in enumerate(b.outcome) if o]
    close = all(abs(getattr(a, n)[i] - getattr(b, n)[i]) < 1e-5 for n in ("p", "q", "accept") for i in tested)
    return close and all(a.u[i] == b.u[i] or (math.isnan(a.u[i]) and math.isnan(b.u[i])) for i in tested)


# ---- the same verdict ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", SAMPLINGS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_the_recorded_verdict_comes_again(name, parameters):
    sampling, k = SAMPLINGS[parameters]
    rules = [Rejection(), Traversal(), PointMass(), *([Block()] if name == "chain" else [])]
    rules += [Greedy()] if sampling.heat == 0 else [Typical()]
    outcomes = set()
    for rule in rules:
        for r in steps(name, rule, sampling, k):
            found = again(r)
            assert found.exact and found.lumped == 0 and found.same and found.rule == type(rule).__name__
            assert alike(found.record, r), (rule, r, found.record)
            outcomes |= set(r.outcome)
    assert outcomes >= {1, 2}, "this run tested nothing"


def test_coupled_guesses_are_judged_again_under_their_own_seed_alone():
    engine = Engine(
        lm(0),
        DraftModel(noisy_lm(), Chain(4, coupled=True)),
        Coupled(),
        Sampling(1.0, seed=3),
        Stopping(14),
        evidence=64,
    )
    rows = list(row_steps(engine.generate(PROMPTS).trace.steps))
    assert all(alike(again(r).record, r) for r in rows) and max(len(r.path) for r in rows) > 2
    with pytest.raises(ValueError, match="made with the noise of seed 3, and with that of 4"):
        again(rows[0], seed=4)
    for ask in (distribution, law, proof):
        with pytest.raises(ValueError, match="under other seeds they would be others"):
            ask(rows[0])


def test_noise_belongs_to_a_tokens_id_and_not_to_its_place(monkeypatch):
    rows = drawn("distinct")
    assert all(again(r).same for r in rows)
    assert not all(again(r, seed=4).same for r in rows), "another seed changes something"
    honest = Problem.sampler

    def by_place(self, seeds, *, greedy):
        made = honest(self, seeds, greedy=greedy)
        return replace(made, draws=replace(made.draws, token=None))

    monkeypatch.setattr(Problem, "sampler", by_place)
    assert not all(again(r).same for r in rows)


def test_rows_with_drafters_and_rules_of_their_own():
    engine = Engine(
        lm(0), DRAFTERS["distinct"](), Rejection(), Sampling(1.0, top_k=8, seed=3), Stopping(14), evidence=12
    )
    session = engine.start(PROMPTS)
    session.entries[1].drafter, session.entries[1].rule = DRAFTERS["chain"](), Block()
    session.entries[2].drafter = DRAFTERS["certain"]()
    for _ in engine.run(session):
        pass
    names = set()
    for r in row_steps(session.trace.steps):
        assert alike(again(r).record, r)
        names.add((r.evidence.rule, r.evidence.draw))
    assert names >= {("Rejection()", "distinct"), ("Block()", "independent"), ("Rejection()", "certain")}


def test_recording_is_free_when_off_and_changes_nothing_when_on(monkeypatch):
    def run(k: int) -> tuple[list[list[int]], list[RowRecord]]:
        engine = Engine(
            lm(0), DRAFTERS["distinct"](), sampling=Sampling(1.0, seed=3), stopping=Stopping(14), evidence=k
        )
        session = engine.generate(PROMPTS)
        return session.outputs, list(row_steps(session.trace.steps))

    crossings = []
    lists = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda t: crossings.append(0) or lists(t))
    on = run(8)
    with_evidence = len(crossings)
    crossings.clear()
    monkeypatch.setattr("toolkit.engine.engine.gather", None)  # whoever calls it now fails
    off = run(0)
    assert off[0] == on[0] and with_evidence == len(crossings)
    assert all(r.evidence is None for r in off[1]) and all(r.evidence.k == 8 for r in on[1])


def test_a_negative_number_is_refused():
    engine = Engine(lm(0), evidence=-1)
    with pytest.raises(ValueError, match=r"at least 1 \(0 records none\); got -1"):
        engine.generate(PROMPTS)


# ---- what is not recorded --------------------------------------------------------------------------------------------


def cut(logits: torch.Tensor, k: int, also: list[int], heat: float) -> tuple[torch.Tensor, Left, torch.Tensor]:
    """Logits with all but the k likeliest tokens and some others at -inf, what is left out, and which are known."""
    inside = torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.topk(k, -1).indices, True)
    inside[:, also] = True
    out = logits.masked_fill(inside, -math.inf)
    left = Left((~inside).sum(1), out.amax(-1), out.logsumexp(-1), (out / heat).logsumexp(-1), heat)
    return logits.masked_fill(~inside, -math.inf), left, inside


GRID = [
    Sampling(t, top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical)
    for t, top_k, top_p, min_p, typical in itertools.product(
        (0.0, 0.6, 1.3), (0, 5, 30), (1.0, 0.6), (0.0, 0.05), (1.0, 0.7)
    )
]


def test_a_truncation_that_is_called_exact_is_that_of_the_whole_vocabulary():
    logits = 2 * torch.randn(40, 200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    seen = {True: 0, False: 0}
    for sampling, same in itertools.product(GRID, (True, False)):
        likely, left, inside = cut(logits, 24, [3, 50, 199], (sampling.heat or 1.0) if same else 0.9)
        tree = TokenTree.chain(torch.zeros(1, 40, dtype=torch.long))
        right = BatchSampler.of([sampling]).probs(logits[None], tree)[0]
        found = shaped(likely, left, sampling)
        exact = found.sure & (found.rest == 0)
        assert torch.allclose(found.probs[exact], right[exact], atol=1e-12)
        assert torch.allclose(found.probs.sum(-1) + found.rest, torch.ones(40, dtype=torch.float64))
        if (
            not (sampling.top_k or sampling.top_p < 1 or sampling.min_p or sampling.typical_p < 1)
            and sampling.heat
            and same
        ):
            assert torch.allclose(found.rest, (right * ~inside).sum(-1), atol=1e-12), "the tail's own mass"
        for yes in (True, False):
            seen[yes] += int((exact == yes).sum())
    assert min(seen.values()) > 200, seen


def test_at_another_temperature_the_tail_is_an_upper_bound():
    logits = 2 * torch.randn(40, 200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    _, left, inside = cut(logits, 24, [3], 0.8)
    out = logits.masked_fill(inside, -math.inf)
    for heat in (0.3, 0.7, 0.8, 0.9, 1.0, 1.7, 5.0):
        true, bound = (out / heat).logsumexp(-1), left.weight(heat)
        assert (bound >= true - 1e-12).all() and (bound <= left.count.log() + left.most / heat + 1e-12).all()
        assert (left.least(heat) <= true + 1e-12).all()
        assert torch.allclose(bound, true) == (heat in (0.8, 1.0))


def after(text: list[int]) -> torch.Tensor:
    """[V] the target's logits, by transformers itself."""
    with torch.inference_mode():
        return tiny(0)(input_ids=torch.tensor([text])).logits[0, -1]


def test_the_lumped_mass_is_told():
    few = steps("certain", Rejection(), Sampling(1.0, seed=5), 6)
    for text, r in told("certain", Rejection(), Sampling(1.0, seed=5), 6):
        found = again(r)
        missing = 1 - float(after(text).softmax(-1)[known(r).token[0].unique()].sum())
        assert not found.exact and found.lumped >= missing - 1e-5 and "Not exact" in found.notes[0]
        if found.record.tip == 0:
            assert found.lumped == pytest.approx(missing, abs=1e-5) and f"{missing:.2%}" in found.notes[0]
    assert sum(again(r).same for r in few) < len(few), "of the tail only the mass is known"
    assert REST in {again(r, seed=s).record.bonus for r in few for s in range(5)}


# ---- smaller shapes, other parameters --------------------------------------------------------------------------------


def test_the_part_that_a_smaller_shape_keeps():
    r = RowRecord(3, (9, 1, 2, 3, 4, 5, 6), (-1, 0, 0, 1, 1, 2, 3), 0, 8, (8,), *[(0,) * 7] * 5)
    assert Prefix().nodes(r) == tuple(range(7))
    assert Prefix(levels=1).nodes(r) == (0, 1, 2) and Prefix(levels=0).nodes(r) == (0,)
    assert Prefix(siblings=1).nodes(r) == (0, 1, 3, 6)
    assert Prefix(budget=3).nodes(r) == (0, 1, 2, 3), "the first ones, for nothing else is known"
    sure = replace(r, confidence=(1.0, 0.3, 0.6, 0.9, 0.1, 0.9, 0.99))
    assert Prefix(budget=3).nodes(sure) == (0, 1, 2, 5), "the likeliest paths, parents before children"
    assert Prefix(budget=4).nodes(sure) == (0, 1, 2, 3, 5)
    with pytest.raises(ValueError, match=r"levels of at least 0.*got -1"):
        Prefix(levels=-1)


def test_drawn_guesses_are_not_chosen_by_what_was_drawn():
    r = drawn("distinct")[0]
    assert r.confidence and Prefix(budget=2).nodes(r) == (0, 1, 2)


@pytest.mark.parametrize("name", ["certain", "distinct", "chain"])
def test_a_prefix_is_what_the_smaller_shape_would_have_verified(name):
    """Down to its own leaves a walk does not see what was cut off: where it ends inside, tip and tests are the recorded."""
    inside = 0
    for r in drawn(name):
        found = again(r, shape=Prefix(levels=1))
        deep = len(r.path) > 2
        assert found.record.token == tuple(t for t, d in zip(r.token, r.depth, strict=True) if d < 2)
        assert len(found.record.path) == min(2, len(r.path))
        if not deep:
            inside += 1
            assert found.record.emitted[: len(r.path) - 1] == r.emitted[: len(r.path) - 1]
        assert any("biased" in n for n in found.notes) is (max(r.depth) > 1)
        assert not any("biased" in n for n in again(r, shape=Prefix(levels=9)).notes), "nothing was cut off"
    assert inside


def test_a_sentence_stands_where_it_applies_and_nowhere_else():
    rows = drawn("distinct")
    other = [again(r, seed=9) for r in rows]
    for found in other:
        assert any("this tells of this step alone" in n for n in found.notes) is not found.same
    assert {f.same for f in other} == {True, False}
    warm = Sampling(2.0, top_k=8, seed=3)
    assert any("drawn under temperature 1 " in n for n in again(rows[0], sampling=warm).notes)
    assert not any("drawn under" in n for n in again(rows[0], sampling=Sampling(1.0, top_k=8, seed=8)).notes)
    certain = drawn("certain")[0]
    assert not any("drawn under" in n for n in again(certain, sampling=warm).notes), "nothing was drawn"
    assert any("Typical is lossy" in n for n in again(certain, Typical()).notes)
    assert not again(certain).notes and again(certain, Typical()).lossless is False and again(certain).lossless


def test_another_temperature_judges_by_the_recorded_q():
    """Of a node that both parameters allow, p / q follows the new p and the old q."""
    for r in (r for r in drawn("chain") if r.p[1:2] > (0.01,)):
        found = again(r, sampling=Sampling(0.5, top_k=8, seed=3)).record
        assert found.q[1] == pytest.approx(r.q[1], abs=1e-6) and found.p[1] != pytest.approx(r.p[1], abs=1e-6)
        assert found.accept[1] == pytest.approx(min(1, found.p[1] / r.q[1]), abs=1e-5)


# ---- chances ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rule"), [("distinct", Rejection()), ("independent", Traversal()), ("chain", Block())]
)
def test_a_thousand_seeds_agree_with_the_exact_law(name, rule):
    refuted = 0
    for r in drawn(name)[:4]:
        seen, exact = distribution(r, rule), law(r, rule)
        assert sum(exact.accepted) == pytest.approx(1) and seen.seeds == 1000 and seen.exact and exact.exact
        assert len(seen.counts) == len(exact.accepted) == max(r.depth) + 1
        assert chi_square(seen.counts, exact.accepted).holds(), (seen, exact)
        assert abs(seen.mean - exact.mean) < 0.2 and seen.mean_with_bonus == seen.mean + 1
        refuted += not chi_square(seen.counts, law(r, PointMass()).accepted).holds()
    assert refuted, "the law of a rule that keeps fewer guesses must not fit"


def test_many_seeds_are_what_single_ones_are():
    for r in (drawn("distinct")[1], drawn("certain")[1]):
        one_by_one = [len(again(r, seed=s).record.path) - 1 for s in range(40)]
        counts = distribution(r, seeds=40).counts
        assert [one_by_one.count(n) for n in range(len(counts))] == list(counts)
        assert distribution(r, seeds=[7]).counts[one_by_one[7]] == 1
    with pytest.raises(ValueError, match="no seed"):
        distribution(r, seeds=0)


@pytest.mark.parametrize(
    ("rule", "lossless"),
    [
        (Rejection(), True),
        (Traversal(), True),
        (PointMass(), True),
        (Coupled(), True),
        (Typical(), False),
        (Threshold(), False),
    ],
    ids=lambda x: type(x).__name__,
)
def test_with_certain_guesses_the_first_token_has_the_targets_law(rule, lossless):
    worst = 0.0
    for r in drawn("certain")[:4]:
        found = law(r, rule)
        assert sum(m for _, m in found.emitted) == pytest.approx(1) and sum(found.target.values()) == pytest.approx(1)
        every = found.first.keys() | found.target.keys()
        worst = max(worst, max(abs(found.first.get(t, 0.0) - found.target.get(t, 0.0)) for t in every))
    assert (worst < 1e-12) is lossless, worst


@pytest.mark.parametrize("name", ["distinct", "chain", "certain"])
def test_drawn_anew_the_first_token_has_the_targets_law(name):
    """Given one drawing it has not: only on average over the drawings."""
    rows = drawn(name)[:3]
    for r in rows:
        few = 2 if name == "distinct" else None
        assert all(proof(r, rule, siblings=few).exact for rule in (Rejection(), Traversal(), PointMass()))
    assert not all(proof(r, Typical(), siblings=1).exact for r in rows)
    apart = max(abs(m - law(r).target.get(t, 0.0)) for r in rows for t, m in law(r).first.items())
    assert (apart > 0.01) is (name != "certain")


def test_what_is_too_much_is_refused_in_a_sentence():
    full = steps("distinct", Rejection(), Sampling(1.0, seed=5), 64)[0]
    with pytest.raises(ValueError, match="3 guesses out of 65 tokens come out in too many ways"):
        proof(full)
    assert proof(full, siblings=1).exact
    mixed = [r for r in steps("mixture", Rejection(), Sampling(1.0, seed=5), 64) if len(set(r.evidence.source[1:])) > 1]
    with pytest.raises(ValueError, match="2 sources"):
        proof(next(r for r in mixed if r.parent.count(0) > 1))


# ---- residuals -------------------------------------------------------------------------------------------------------


def test_a_residual_of_certain_guesses_is_p_without_the_refused_ones():
    refused, root = 0, TokenTree.chain(torch.zeros(1, 1, dtype=torch.long))
    for text, r in told("certain", Rejection(), Sampling(1.0, top_k=8, seed=3), 12):
        p = BatchSampler.of([Sampling(1.0, top_k=8)]).probs(after(text)[None, None], root)[0, 0].clone()
        gone = [r.token[i] for i, above in enumerate(r.parent) if above == 0 and r.outcome[i] == 2]
        p[gone] = 0
        p /= p.sum()
        found = residual(r, 0, top=3)
        assert [t for t, _ in found.top] == p.topk(3).indices.tolist() and len(found.refused) == len(gone)
        assert [m for _, m in found.top] == pytest.approx(p.topk(3).values.tolist(), abs=1e-5)
        assert found.rest == pytest.approx(1 - float(p.topk(3).values.sum()), abs=1e-5) and found.unknown == 0
        refused += len(gone)
    assert refused


def test_corrections_come_from_the_residual():
    """Over many seeds, those that refuse the first guess of a chain say what the residual says."""
    r = next(r for r in drawn("chain") if r.outcome[1] == 2)
    left = dict(residual(r, 0, top=99).top)
    said = {tokens[0]: m for tokens, m in law(r).emitted if len(tokens) == 1}
    total = sum(said.values())
    assert {t: m / total for t, m in said.items()} == pytest.approx(left, abs=1e-9)
    assert r.token[1] not in left or left[r.token[1]] < r.p[1]
    with pytest.raises(ValueError, match="nodes 0 to 4; got 5"):
        residual(r, 5)


# ---- refusals and files ----------------------------------------------------------------------------------------------


def test_what_cannot_be_asked_is_refused_in_a_sentence():
    r = drawn("distinct")[0]
    for ask in (again, distribution, law, proof, lambda x: residual(x, 0)):
        with pytest.raises(ValueError, match=r"holds no evidence.*evidence=64"):
            ask(replace(r, evidence=None))
    with pytest.raises(ValueError, match="Block verifies chains"):
        again(r, "Block")
    with pytest.raises(ValueError, match="Greedy verifies at temperature 0 only"):
        again(r, Greedy())
    with pytest.raises(ValueError, match="unknown rule 'Magic': use one of Rejection"):
        again(r, "Magic")
    mine = replace(r, evidence=replace(r.evidence, rule="Mine(bold=True)"))
    with pytest.raises(ValueError, match=r"judged by Mine\(bold=True\)"):
        again(mine)
    assert again(mine, Rejection()).same


@pytest.mark.parametrize("ending", ENDINGS)
def test_evidence_comes_back_from_files(tmp_path, ending):
    engine = Engine(
        lm(0), DRAFTERS["distinct"](), Rejection(), Sampling(1.0, top_k=8, seed=3), Stopping(8), evidence=12
    )
    trace = engine.generate(PROMPTS).trace
    save(trace, tmp_path / f"run{ending}")
    back = load(tmp_path / f"run{ending}")
    before, after = (list(row_steps(t.steps)) for t in (trace, back))
    assert [r.evidence for r in after] == [r.evidence for r in before] and before[0].evidence.q
    assert all(again(r).same for r in after)


def test_files_from_before_evidence_still_load(tmp_path):
    plain = Trace(steps=Engine(lm(0), stopping=Stopping(3)).generate(PROMPTS).trace.steps)
    save(plain, tmp_path / "run.parquet")
    table = pq.read_table(tmp_path / "run.parquet")
    pq.write_table(table.drop_columns(["evidence"]), tmp_path / "old.parquet")
    old = load(tmp_path / "old.parquet")
    assert [r.emitted for r in row_steps(old.steps)] == [r.emitted for r in row_steps(plain.steps)]
    save(plain, tmp_path / "run.jsonl")
    assert "evidence" not in (tmp_path / "run.jsonl").read_text(), "nothing is written where nothing was recorded"


# ---- the default model -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_default_models_verdicts_come_again():
    model = zoo.load("smollm2", dtype="float32")
    target = HFModel(model.model)
    prompt = zoo.chat(model.tokenizer, "Why do leaves turn red in autumn?")
    exact = 0
    for shape, rule, sampling in (
        (Dynamic(4, 3, 10), Rejection(), Sampling(0.8, top_k=40, seed=3)),
        (Sampled((3, 2)), Traversal(), Sampling(0.8, top_p=0.9, seed=3)),
        (Chain(4), Block(), Sampling(0.0)),
    ):
        drafter = EarlyExit(first_layers(target, 10), shape)
        engine = Engine(target, drafter, rule, sampling, Stopping(10, model.stop_tokens), evidence=64)
        for r in row_steps(engine.generate([prompt]).trace.steps):
            found = again(r)
            exact += found.exact
            assert found.same or not found.exact
            assert found.exact or sampling.top_p < 1, "top-k 40 of 64 recorded tokens leaves nothing out"
            assert r.evidence.size < 1500 * len(r.token)  # bytes
    assert exact > 10

"""Keyed noise over several steps: what enumeration cannot see, because there each guess has noise of its own.

Runs of three tokens with the product's own sampler, many rows at once, compared with the exact law.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny import PROMPTS, lm, noisy_lm
from torch import Tensor

from toolkit.drafting import Chain, DraftModel, Dynamic, Nothing
from toolkit.draws import DRAFT
from toolkit.engine import Engine
from toolkit.protocols import Drafter, Draw, Rule
from toolkit.sampling import BatchSampler, Sampling, Stopping
from toolkit.trace.metrics import acceptance_length
from toolkit.verification import Block, Coupled, PointMass, Rejection, Traversal
from toolkit.verification import block as block_module
from toolkit.verification import traversal as traversal_module
from toolkit.verification.proof import prove
from toolkit.verification.statistics import chi_square
from toolkit.verification.toys import Drawn, along, random_table
from toolkit.verification.trial import States, emitted

VOCABULARY, HORIZON, SEED = 3, 3, 4
TARGET, DRAFTER = (random_table(VOCABULARY, 10 * SEED + i, spread=2.0) for i in (0, 1))


class DraftNoiseByPositionAlone(BatchSampler):
    """The sampler without the depth in the key of a guess: two steps that guess one position get the same noise."""

    def guess(self, probs: Tensor, depth: int, lanes: int = 1) -> Tensor:
        nodes = probs.shape[1]
        lane = torch.arange(nodes * lanes).view(nodes, lanes)
        position = (self.length - 1 + depth).view(-1, 1, 1).expand(-1, nodes, lanes)
        return self.draws.pick(probs[:, :, None], DRAFT, position, lane)


def texts(
    rule: Rule,
    shape: tuple[int, ...],
    draw: Draw = "independent",
    rows: int = 30_000,
    kind: type[BatchSampler] = BatchSampler,
) -> tuple[Tensor, float]:
    """The first tokens [rows, H] of runs with seeds 0, 1, 2, ..., and the mean number of accepted guesses in a step."""
    sampler = kind.of([Sampling(temperature=1.0, seed=b) for b in range(rows)])
    parent = torch.tensor([shape]).expand(rows, -1)
    case, accepted = torch.zeros(rows, dtype=torch.long), []
    run = States(torch.ones(rows), case, case, torch.zeros(rows, HORIZON, dtype=torch.long), case[:, None])
    while (run.count < HORIZON).any():
        now = sampler.at(run.count + 1)
        proposal = Drawn(draw)(DRAFTER, parent, run.paths, now)
        verdict = rule(proposal, TARGET(along(proposal.tree, run.paths)), now)
        kept, token = emitted(proposal.tree, verdict)
        accepted.append(kept[run.count < HORIZON])
        place = torch.arange(HORIZON) - run.count[:, None]
        fresh = token.gather(1, place.clamp(0, token.shape[1] - 1))
        written = torch.where((place >= 0) & (place <= kept[:, None]), fresh, run.emitted)
        run = replace(run, count=(run.count + kept + 1).clamp(max=HORIZON), emitted=written)
    return run.emitted, float(torch.cat(accepted).double().mean())


def fits(written: Tensor) -> bool:
    law = prove(Rejection(), (-1,), p=TARGET, vocabulary=VOCABULARY, horizon=HORIZON).target[0]
    number = (written * VOCABULARY ** torch.arange(HORIZON).flip(0)).sum(1)
    return chi_square(torch.bincount(number, minlength=len(law)), law).holds()


@pytest.mark.parametrize("rule", [Rejection(), Block(), Traversal()], ids=lambda r: type(r).__name__)
def test_texts_of_three_tokens_have_the_targets_law(rule: Rule) -> None:
    assert fits(texts(rule, (-1, 0, 1, 2))[0])


@pytest.mark.parametrize(
    ("rule", "notices"), [(Block(), True), (Traversal(), True), (Rejection(), False)], ids=lambda x: type(x).__name__
)
def test_guesses_that_were_looked_at_must_not_come_again(rule: Rule, notices: bool) -> None:
    """The same runs, but the noise of a guess depends on its position alone. Token by token nobody notices."""
    assert fits(texts(rule, (-1, 0, 1, 2), kind=DraftNoiseByPositionAlone)[0]) is not notices


@pytest.mark.parametrize("rule", [Block(), Traversal()], ids=lambda r: type(r).__name__)
def test_coins_must_not_come_again(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (block_module, traversal_module):
        monkeypatch.setattr(module, "leafward", lambda depth, rank=0: 0 * depth + rank)
    assert not fits(texts(rule, (-1, 0, 1, 2))[0])


@pytest.mark.parametrize("rule", [Coupled(), PointMass()], ids=lambda r: type(r).__name__)
def test_the_text_is_the_plain_one(rule: Rule) -> None:
    """Whatever is guessed, and in whatever shape: the tokens are those of plain sampling with the same seeds."""
    everything, _ = texts(rule, (-1,))
    assert fits(everything)
    plain = everything[:2000]
    for shape in ((-1, 0), (-1, 0, 1, 2), (-1, 0, 0, 1), (-1, 0, 1, 0, 3)):
        for draw in ("certain", "distinct"):
            written, accepted = texts(rule, shape, draw, rows=2000)
            assert written.equal(plain) and 0 < accepted < 3
    assert not texts(Rejection(), (-1, 0, 1), rows=2000)[0].equal(plain)


def test_coupled_guesses_meet_the_target_more_often() -> None:
    plain, _ = texts(Coupled(), (-1,), rows=2000)
    coupled, together = texts(Coupled(), (-1, 0, 1), "coupled", rows=2000)
    apart = texts(Coupled(), (-1, 0, 1), "independent", rows=2000)[1]
    assert coupled.equal(plain)
    assert together > apart + 0.1


def test_the_engine_writes_the_plain_text_whoever_drafts() -> None:
    """From end to end, on tiny models: coupled sampling can be tested by equality, as greedy decoding can."""

    def run(drafter: Drafter) -> tuple[list[list[int]], float]:
        engine = Engine(lm(), drafter, Coupled(), Sampling(temperature=1.0, seed=5), Stopping(max_new_tokens=25))
        session = engine.generate(PROMPTS)
        return [session.host[b, :n].tolist() for b, n in enumerate(session.lengths)], acceptance_length(
            session.trace.steps
        )

    plain, _ = run(Nothing())
    coupled, together = run(DraftModel(noisy_lm(), Chain(4, coupled=True)))
    independent, apart = run(DraftModel(noisy_lm(), Chain(4)))
    tree, _ = run(DraftModel(noisy_lm(), Dynamic()))
    assert coupled == independent == tree == plain
    assert together > apart + 1


def test_other_rules_refuse_coupled_guesses() -> None:
    engine = Engine(lm(), DraftModel(noisy_lm(), Chain(4, coupled=True)), Rejection(), Sampling(temperature=1.0))
    with pytest.raises(ValueError, match="this proposal's are 'coupled'"):
        engine.generate(PROMPTS)


def test_the_shape_for_coupled_guesses() -> None:
    """`Chain(coupled=True)` guesses what `emit` would draw if the drafter were the target."""
    sampler = BatchSampler.of([Sampling(temperature=1.0, seed=s) for s in range(50)]).at(torch.arange(1, 51))
    probs = torch.rand(50, 1, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grown = Chain(3, coupled=True).level(2, torch.zeros(50, 1), probs, sampler)
    assert grown is not None and Chain(3, coupled=True).draw == "coupled"
    assert grown[1][:, 0].equal(sampler.emit(probs[:, 0], torch.full((50,), 2)))
    apart = Chain(3).level(2, torch.zeros(50, 1), probs, sampler)
    assert apart is not None and not apart[1].equal(grown[1])

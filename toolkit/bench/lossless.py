"""Does an engine draw from the target's own distribution? A test for real models, where nothing can be enumerated.

Two views of the same samples. The first new token is counted against the target's law there. Every later token has a law
of its own, the target's after the very text before it; its place in that law (the mass of likelier tokens, plus a random
part of its own) is uniform on 0..1 if it was drawn from that law, so the places in all texts can be counted together.

A sample can only fail to show a fault: the report says how small a fault would have shown.

Letters: B samples of a prompt, L new tokens, V vocabulary, n samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toolkit.cache import fill
from toolkit.engine import Engine, Session
from toolkit.trace import metrics
from toolkit.tree import TokenTree
from toolkit.verification.statistics import Fit, chi_square, g_test, samples_needed, tv_bounds

BINS = 16  # of the places of later tokens


@dataclass(frozen=True, slots=True)
class PromptCheck:
    """What the samples of one prompt say.

    first, first_g  chi-square and G-test of the first new token, rare tokens taken together
    later     chi-square of the places of later tokens in their own laws; None when there was none
    tv        bounds on the total variation between what was drawn first and the target's law, the likeliest tokens one by
              one and the others together; each bound holds with 99 % confidence
    needed    samples at which the first token's chi-square shows a fault of `bias` total variation (see `biased`)
    """

    prompt: tuple[int, ...]
    n: int
    first: Fit
    first_g: Fit
    later: Fit | None
    tv: tuple[float, float]
    needed: int

    @property
    def p_values(self) -> tuple[float, ...]:
        return (self.first.p_value, self.first_g.p_value, *([self.later.p_value] if self.later else []))


@dataclass(frozen=True, slots=True)
class LosslessReport:
    """Checks of all prompts. `holds` is refuted for a true engine with probability `alpha` at most (Bonferroni)."""

    checks: tuple[PromptCheck, ...]
    tested: int  # drafted nodes that met an acceptance test; 0 shows nothing about the rule
    bias: float
    alpha: float

    @property
    def holds(self) -> bool:
        tests = [p for c in self.checks for p in c.p_values]
        return min(tests) >= self.alpha / len(tests)

    def __str__(self) -> str:
        worst = min(self.checks, key=lambda c: min(c.p_values))
        needed = max(c.needed for c in self.checks)
        n = min(c.n for c in self.checks)
        power = "enough" if n >= needed else f"too few: {needed} would do"
        return (
            f"{'not refuted' if self.holds else 'REFUTED'}: {len(self.checks)} prompts, {n} samples each, "
            f"{self.tested} guesses tested; smallest p-value {min(worst.p_values):.2g} (prompt "
            f"{self.checks.index(worst)}); total variation of the first token between "
            f"{max(c.tv[0] for c in self.checks):.3f} and {max(c.tv[1] for c in self.checks):.3f}; to see a bias of "
            f"{self.bias:g} the samples are {power}"
        )


def test_lossless(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    n: int = 1000,
    *,
    tokens: int = 4,
    batch: int = 50,
    bias: float = 0.1,
    alpha: float = 1e-4,
    seed: int = 0,
) -> LosslessReport:
    """Draw `n` samples of `tokens` new tokens for every prompt and compare them with the target's own laws, penalties and
    filters of `engine.sampling` included.

    `print(test_lossless(Engine(lm, drafter, rule, Sampling(temperature=1)), prompts, 500))` says it in a sentence.

    batch   rows that run at once. bias: the total variation that should be seen. alpha: the chance to refute a true engine.
    Raises ValueError at temperature 0, where equality is the test, and for counts below one.
    """
    if engine.sampling.heat == 0:
        raise ValueError("at temperature 0 nothing is drawn: compare outputs with the target's own instead")
    if min(n, tokens, batch) < 1:
        raise ValueError(f"n, tokens and batch must be at least 1; got {n}, {tokens} and {batch}")
    if not 0 < bias < 1:
        raise ValueError(f"bias is a total variation between 0 and 1; got {bias}")
    noise, tested, checks = torch.Generator().manual_seed(seed), 0, []
    for prompt in prompts:
        firsts: list[int] = []
        places: list[float] = []
        law = torch.empty(0)
        for begin in range(0, n, batch):
            rows = min(batch, n - begin)
            session = _sampled(engine, prompt, begin, rows, tokens)
            laws = _laws(engine, session)  # [B, L, V]
            law = laws[0, 0]
            firsts += [out[0] for out in session.outputs]
            places += _places(laws, session.outputs, noise)
            tested += sum(o > 0 for r in metrics.row_steps(session.trace.steps) for o in r.outcome)
        checks.append(_check(tuple(prompt), torch.tensor(firsts), law, torch.tensor(places), bias))
    return LosslessReport(tuple(checks), tested, bias, alpha)


vars(test_lossless)["__test__"] = False  # pytest takes every function of this name for a test of its own


def biased(law: Tensor, bias: float) -> Tensor:
    """The law [V] with `bias` of its mass moved from the likeliest token to the others in proportion, or the other way
    where the likeliest has less than that."""
    best = int(law.argmax())
    rest = law.clone()
    rest[best] = 0
    move = bias if law[best] > bias else -min(bias, float(rest.sum()))
    out = rest * (1 + move / float(rest.sum()))
    out[best] = law[best] - move
    return out


def _sampled(engine: Engine, prompt: Sequence[int], begin: int, rows: int, tokens: int) -> Session:
    """Samples begin..begin+rows of a prompt, run to their end."""
    samplings = [engine.sampling.sample(begin + i) for i in range(rows)]
    stopping = type(engine.stopping)(tokens, engine.stopping.tokens)
    return engine.generate([prompt] * rows, sampling=samplings, stopping=stopping)


def _laws(engine: Engine, session: Session) -> Tensor:
    """[B, L, V] the target's law of every new token given the text before it, from one plain pass."""
    target, outputs = engine.target, session.outputs
    longest = max(map(len, outputs))
    start = engine.start(session.prompts, sampling=session.sampler.rows, stopping=[j.stopping for j in session.judges])
    context = start.context()
    token = np.zeros((len(outputs), longest), np.int64)
    for row, prompt, out in zip(token, session.prompts, outputs, strict=True):
        row[0] = prompt[-1]
        row[1 : len(out)] = out[:-1]
    with torch.inference_mode():
        fill(target, start.cache, context)
        tree = TokenTree.chain(torch.from_numpy(token).to(start.token.device))
        return context.sampler.probs(target.read(tree, start.cache).logits, tree)


def _places(laws: Tensor, outputs: Sequence[Sequence[int]], noise: torch.Generator) -> list[float]:
    """Where each later token lies in its law, 0 the likeliest end; -1 for a token that the law never draws."""
    found = []
    for b, out in enumerate(outputs):
        for t, token in enumerate(out[1:], 1):
            law = laws[b, t].double()
            own = law[token]
            above, alike = float(law[law > own].sum()), float(law[law == own].sum())
            found.append(above + alike * float(torch.rand((), generator=noise)) if own > 0 else -1.0)
    return found


def _check(prompt: tuple[int, ...], firsts: Tensor, law: Tensor, places: Tensor, bias: float) -> PromptCheck:
    law = law.double().cpu() / law.double().sum().cpu()
    counts = firsts.bincount(minlength=len(law)).double()
    few = law.topk(min(20, len(law))).indices
    short, coarse = counts[few], law[few]
    if len(law) > len(few):  # the others as one outcome
        short = torch.cat([short, (counts.sum() - short.sum())[None]])
        coarse = torch.cat([coarse, (1 - coarse.sum()).clamp(min=0)[None]])
    inside = places[places >= 0]
    bins = (inside * BINS).long().clamp(max=BINS - 1).bincount(minlength=BINS)
    # A bin of probability 0 holds what no law allows.
    later = chi_square([*bins.tolist(), int((places < 0).sum())], [1 / BINS] * BINS + [0.0]) if len(places) else None
    return PromptCheck(
        prompt,
        len(firsts),
        chi_square(counts, law),
        g_test(counts, law),
        later,
        tv_bounds(short, coarse),
        samples_needed(law, biased(law, bias)) if float(law.max()) < 1 else 1,
    )

"""Drafters side by side on the same prompts: how much they gain, and whether they change anything.

    from toolkit.bench import compare
    found = compare({"ngram": NGram(), "tree": EarlyExit(first_layers(target, 8), Dynamic())}, ["Why is the sky blue?"])
    found.frame()

Every prompt goes to all arms in turn, in rotated order, next to plain decoding in the same engine, so that a slow minute of the
machine is everybody's.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import comb
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from toolkit.bench.arms import engine_arm, hf_arm
from toolkit.bench.suite import Answer, Arm, Question, questions, run
from toolkit.engine import Engine
from toolkit.engine.leaves import leaves
from toolkit.models import zoo
from toolkit.models.baseline import Divergence, diverge
from toolkit.models.hf import HFModel
from toolkit.protocols import LM, Drafter
from toolkit.sampling import Sampling, Stopping

PLAIN, HF = "plain", "HF generate"
Prompts = Sequence[str | tuple[str, str]] | str | Path
Given = Drafter | Engine | Arm
Parting = Callable[[str, Sequence[int], Sequence[int]], Divergence | None]
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Row:
    """An arm on one task, or on all ("all").

    acceptance_length  tokens a target pass, with the bonus: all tokens by all steps; None where nobody counts steps
    ms_per_step        milliseconds a step, drafting and everything included; None likewise
    tokens_per_second  all tokens by all seconds
    speedup, low, high median ratio to plain decoding over prompts, and its quartiles; None without prompts that both answered
    p_value            two-sided sign test that it is as often faster as slower
    prompts            that the arm and plain decoding have both answered
    same               how many of these had exactly plain decoding's tokens
    """

    arm: str
    task: str
    prompts: int
    acceptance_length: float | None
    ms_per_step: float | None
    tokens_per_second: float
    speedup: float | None
    low: float | None
    high: float | None
    p_value: float | None
    same: int


@dataclass(slots=True)
class Compared:
    """Answers as they come, and what they say. `interrupted`: not all were given."""

    arms: dict[str, Arm]
    asked: list[Question]
    about: str
    answers: list[Answer] = field(default_factory=list)
    interrupted: bool = False
    parting: Parting | None = field(
        default=None, repr=False
    )  # where two answers part; None for sampled ones, which may

    @property
    def whole(self) -> int:
        """How many answers there will be."""
        return len(self.arms) * len(self.asked)

    def run(self, log: Path | None = None) -> Generator[Answer]:
        """Let the arms answer what they have not answered; ends early on an interrupt, and says so."""
        wanted = {q.number for q in self.asked}
        try:
            for answer in run(self.asked, self.arms, log, about=self.about, done=tuple(self.answers)):
                if answer.arm in self.arms and answer.number in wanted:
                    self.answers.append(answer)
                    yield answer
        except KeyboardInterrupt:
            self.interrupted = True
        except GeneratorExit:
            self.interrupted = len(self.answers) < self.whole
            raise

    def pairs(self, arm: str) -> list[tuple[Answer, Answer]]:
        """Plain decoding's answer and the arm's, for every prompt that both have answered."""
        base = {a.number: a for a in self.answers if a.arm == PLAIN}
        return [(base[a.number], a) for a in self.answers if a.arm == arm and a.number in base]

    def divergences(self, arm: str) -> dict[int, Divergence]:
        """Where the arm's answers part from plain decoding's, by the prompt's number, and the logit gap of the two tokens
        there in float32: a small one is a near-tie that rounding decided, a large one a fault. Equal answers are left out.

        Costs a pass of the target for each. Raises ValueError for an unknown arm, and for sampled answers.
        """
        if arm not in self.arms:
            raise ValueError(f"there is no arm {arm!r}: use one of {', '.join(self.arms)}")
        if self.parting is None:
            raise ValueError("sampled answers need not be alike: compare at temperature 0 to see where they part")
        texts = {q.number: q.text for q in self.asked}
        parted = {p.number: self.parting(texts[p.number], p.output, a.output) for p, a in self.pairs(arm)}
        return {number: found for number, found in parted.items() if found is not None}

    def rows(self) -> list[Row]:
        """One an arm and task, those over all tasks first."""
        tasks = list(dict.fromkeys(q.task for q in self.asked))
        told = ["all", *(tasks if len(tasks) > 1 else [])]
        found = [self._row(arm, task) for task in told for arm in self.arms]
        return [row for row in found if row is not None]

    def frame(self) -> Any:
        """The rows as a data frame of pandas or polars, whichever is installed. Raises ImportError, with the remedy."""
        columns = {name: [getattr(r, name) for r in self.rows()] for name in Row.__slots__}
        for library in ("pandas", "polars"):
            try:
                return importlib.import_module(library).DataFrame(columns)
            except ModuleNotFoundError:
                continue
        raise ImportError("a data frame needs pandas or polars: pip install pandas, or use rows()")

    def _row(self, arm: str, task: str) -> Row | None:
        mine = [a for a in self.answers if a.arm == arm and task in ("all", a.task)]
        if not mine:
            return None
        both = [(p, a) for p, a in self.pairs(arm) if task in ("all", a.task)]
        ratios = [(a.tokens / a.seconds) / (p.tokens / p.seconds) for p, a in both if p.tokens and a.tokens]
        low, _, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else (None, None, None)
        steps, tokens, seconds = (sum(getattr(a, name) for a in mine) for name in ("steps", "tokens", "seconds"))
        sides = [r for r in ratios if r != 1]
        return Row(
            arm,
            task,
            len(both),
            tokens / steps if steps else None,
            1e3 * seconds / steps if steps else None,
            tokens / seconds,
            median(ratios) if ratios and arm != PLAIN else None,
            low if arm != PLAIN else None,
            high if arm != PLAIN else None,
            sign_test(sum(r > 1 for r in sides), len(sides)) if sides and arm != PLAIN else None,
            sum(p.output == a.output for p, a in both),
        )


def compare(
    arms: Mapping[str, Given],
    prompts: Prompts,
    *,
    target: str | Path | zoo.Loaded = "smollm2",
    hf: bool = False,
    max_new_tokens: int = 64,
    sampling: Sampling | None = None,
    dtype: str = "fastest",
    log: str | Path | None = None,
    report: Callable[[Compared], None] | None = None,
) -> Compared:
    """Let arms answer prompts next to plain decoding, and wait for it. An interrupt keeps what there is.

    arms     name to a drafter, an engine of one's own, or a function of a text that gives new tokens and steps
    prompts  texts, (task, text) pairs, or a path to JSON lines with "prompt" or "turns" and "task"
    hf       Hugging Face's `generate` in the same turns, which is greedy
    log      JSON lines of answers; a run of the same comparison goes on where it was. Of a function it knows the name alone
    report   is called after every answer

    Raises ValueError, before any work, for no arms or prompts, empty prompts, names that are taken, and counts below one.
    """
    made = plan(arms, prompts, target=target, hf=hf, max_new_tokens=max_new_tokens, sampling=sampling, dtype=dtype)
    for _ in made.run(Path(log) if log else None):
        if report:
            report(made)
    return made


def plan(
    arms: Mapping[str, Given],
    prompts: Prompts,
    *,
    target: str | Path | zoo.Loaded = "smollm2",
    hf: bool = False,
    max_new_tokens: int = 64,
    sampling: Sampling | None = None,
    dtype: str = "fastest",
) -> Compared:
    """A comparison of which nothing has run yet; as `compare`."""
    if not arms:
        raise ValueError("there is nothing to compare: give at least one drafter by a name")
    if taken := sorted({PLAIN, HF} & set(arms)):
        raise ValueError(f"the name {taken[0]!r} is that of a baseline: give this arm another")
    asked = _asked(prompts)
    stopping = Stopping(max_new_tokens)
    if hf and sampling is not None and sampling.temperature:
        raise ValueError("hf=True compares with greedy generation: leave it out, or compare at temperature 0")
    sampling = sampling or Sampling(0)
    loaded = target if isinstance(target, zoo.Loaded) else zoo.load(target, dtype=dtype)
    plain = Engine(
        _reader(arms, loaded),
        sampling=sampling,
        stopping=replace(stopping, tokens=loaded.stop_tokens),
        decode=loaded.decode,
    )
    whole: dict[str, Arm] = {PLAIN: engine_arm(plain, loaded)}
    if hf:
        whole[HF] = hf_arm(loaded, max_new_tokens)
    for name, arm in arms.items():
        whole[name] = _arm(name, arm, plain, loaded)
    told = [f"{name} = {arm!r}" for name, arm in arms.items() if isinstance(arm, Engine) or hasattr(arm, "propose")]
    key = _ADDRESS.sub("", repr([(q.task, q.text) for q in asked] + told))
    about = f"{loaded.name}, {loaded.model.dtype}, {max_new_tokens} new tokens, {sampling!r}, {torch.get_num_threads()} threads"
    about += f", prompts and drafters {hashlib.sha256(key.encode()).hexdigest()[:8]}"

    def parting(text: str, ours: Sequence[int], theirs: Sequence[int]) -> Divergence | None:
        return diverge(loaded.model, zoo.chat(loaded.tokenizer, text), ours, theirs)

    return Compared(whole, asked, about, parting=None if sampling.heat > 0 else parting)


def _reader(arms: Mapping[str, Given], loaded: zoo.Loaded) -> LM:
    """The target. Drafters that read through its cache were made from one already, and that one serves all."""
    given: list[Any] = [arm for arm in arms.values() if hasattr(arm, "propose")]
    for part in leaves(given):
        through: Any = getattr(part, "shares", None)
        if getattr(through, "model", None) is loaded.model:
            return through
    return HFModel(loaded.model)


def _arm(name: str, given: Given, plain: Engine, loaded: zoo.Loaded) -> Arm:
    if isinstance(given, Engine):
        return engine_arm(given, loaded)
    if hasattr(given, "propose"):
        drafter: Any = given
        plain.check_drafters([drafter])
        return engine_arm(replace(plain, drafter=drafter), loaded)
    if callable(given):
        return given
    raise ValueError(f"{name!r} is a {type(given).__name__}: give a drafter, an engine, or a function of a text")


def sign_test(wins: int, trials: int) -> float:
    """The probability of a split at least as uneven, if both sides were as likely."""
    fewer = min(wins, trials - wins)
    return min(1.0, 2 * sum(comb(trials, k) for k in range(fewer + 1)) / 2**trials)


def _asked(prompts: Prompts) -> list[Question]:
    if isinstance(prompts, Path) or (isinstance(prompts, str) and prompts.endswith((".json", ".jsonl"))):
        return questions(Path(prompts))
    if isinstance(prompts, str):
        raise ValueError("prompts is a single text: give a list of texts, or a path to JSON lines")
    pairs = [("all", p) if isinstance(p, str) else (p[0], p[1]) for p in prompts]
    if not pairs:
        raise ValueError("there is no prompt: give at least one text")
    if empty := [i for i, (_, text) in enumerate(pairs) if not text.strip()]:
        raise ValueError(f"prompt {empty[0]} is empty: give a text")
    return [Question(i, task, text) for i, (task, text) in enumerate(pairs)]

"""A suite of prompts by task, and arms that answer them in turn: acceptance and speed by task.

Every prompt goes to all arms one after the other before the next prompt comes, in rotated order, so that a slow minute of
the machine is everybody's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from time import perf_counter

from toolkit.bench.interleave import rotated


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt's text and the task that it stands for."""

    number: int
    task: str
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What one arm did with one question. steps: passes of the target that committed tokens; 0 where nobody counts them.
    output: the new tokens."""

    number: int
    task: str
    arm: str
    tokens: int
    steps: int
    seconds: float
    output: tuple[int, ...] = ()


Arm = Callable[[str], tuple[Sequence[int], int]]
"""Answers a text; returns the new tokens, and in how many steps they came."""


def questions(file: Path, per_task: int | None = None) -> list[Question]:
    """JSON lines with "prompt" or "turns" (the first counts) and "task" or "category": so many of each task, spread over the
    file. Raises ValueError for a file without any."""
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}): give a file of JSON lines") from error
    found: dict[str, list[Question]] = {}
    for i, line in enumerate(lines):
        try:
            value = json.loads(line)
            text = value.get("prompt") or value["turns"][0]
            task = str(value.get("task") or value.get("category") or "all")
        except (ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
            raise ValueError(f'{file}, line {i + 1}: a question needs "prompt" or "turns", and a "task"') from error
        found.setdefault(task, []).append(Question(i, task, str(text)))
    if not found:
        raise ValueError(f"{file} holds no question")
    return [q for task in found.values() for q in task[:: max(1, len(task) // per_task) if per_task else 1][:per_task]]


def run(
    asked: Sequence[Question],
    arms: Mapping[str, Arm],
    log: Path | None = None,
    *,
    warm: bool = True,
    about: str = "",
    done: Sequence[Answer] = (),
) -> Iterator[Answer]:
    """Let all arms answer. `log` keeps the answers as JSON lines; those that are there already are not asked for again.

    about: what the answers depend on beside question and arm. done: answers that the caller has. Raises ValueError for a log
    of others.
    """
    known = {(a.number, a.arm) for a in done}
    if log:
        _same(log, about)
        logged = [a for a in answers(log) if (a.number, a.arm) not in known]
        yield from logged
        known |= {(a.number, a.arm) for a in logged}
    if log and log.exists() and not log.read_bytes().endswith(b"\n"):  # a run was killed in the middle of a line
        with log.open("a", encoding="utf-8") as stream:
            stream.write("\n")
    if warm and any((q.number, name) not in known for q in asked for name in arms):
        for arm in arms.values():
            arm(min(asked, key=lambda q: len(q.text)).text)
    for i, question in enumerate(asked):
        for name in rotated(list(arms), i):
            if (question.number, name) in known:
                continue
            began = perf_counter()
            output, steps = arms[name](question.text)
            seconds = perf_counter() - began
            answer = Answer(question.number, question.task, name, len(output), steps, seconds, tuple(output))
            if log:
                with log.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(asdict(answer)) + "\n")
            yield answer


def answers(log: Path) -> Iterator[Answer]:
    """Read what `run` kept. A last line that was cut short is passed over."""
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            value = json.loads(line)
            yield Answer(**value | {"output": tuple(value.get("output", ()))})
        except (ValueError, TypeError, AttributeError):
            continue


def _same(log: Path, about: str) -> None:
    """A log says in its first line what its answers depend on."""
    if not log.exists() or not log.stat().st_size:
        log.write_text(json.dumps({"about": about}) + "\n", encoding="utf-8")
        return
    with log.open(encoding="utf-8") as stream:
        try:
            found = json.loads(stream.readline()).get("about")
        except (ValueError, AttributeError):
            found = None
    if found != about:
        raise ValueError(f"{log} holds answers to other questions or options ({found}): give another log, or remove it")


@dataclass(frozen=True, slots=True)
class Score:
    """Of one arm. By task, and the mean over tasks, each counting alike.

    acceptance_length  tokens a step, with the bonus, all of a task's answers taken together; {} where nobody counts steps
    speed              tokens a second relative to the first arm's, on the same questions
    """

    acceptance_length: Mapping[str, float]
    speed: Mapping[str, float]

    @property
    def mean_acceptance_length(self) -> float:
        return mean(self.acceptance_length.values()) if self.acceptance_length else float("nan")

    @property
    def mean_speed(self) -> float:
        return mean(self.speed.values()) if self.speed else float("nan")


def scores(found: Iterable[Answer], baseline: str) -> dict[str, Score]:
    """By arm. Speeds are over the questions that the baseline answered as well."""
    every = list(found)
    base = {a.number: a for a in every if a.arm == baseline}
    out = {}
    for arm in dict.fromkeys(a.arm for a in every):
        mine = [a for a in every if a.arm == arm]
        lengths, speeds = {}, {}
        for task in dict.fromkeys(a.task for a in mine):
            part = [a for a in mine if a.task == task]
            if steps := sum(a.steps for a in part):
                lengths[task] = sum(a.tokens for a in part) / steps
            both = [a for a in part if a.number in base]
            if both:
                rate = sum(a.tokens for a in both) / sum(a.seconds for a in both)
                others = [base[a.number] for a in both]
                speeds[task] = rate / (sum(a.tokens for a in others) / sum(a.seconds for a in others))
        out[arm] = Score(lengths, speeds)
    return out

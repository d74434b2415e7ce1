"""Model cards of trained heads: what is in them comes from the course, the log of the training and a bench's answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from toolkit.bench.suite import Answer, Score, scores
from toolkit.training.course import Course, course


def card(name: str, folder: Path, found: Sequence[Answer], baseline: str, about: str) -> str:
    """The card of the head in `folder`, with `course.toml` and `log.jsonl` beside it. `about` says what was measured where."""
    given, log = course(folder / "course.toml"), _log(folder / "log.jsonl")
    weights = sum(p.stat().st_size for p in folder.glob("*.safetensors"))
    made = {arm: score for arm, score in scores(found, baseline).items() if arm.split(",")[0] == name}
    looks = [e for e in log if "acceptance_length" in e]
    best = max(looks, key=lambda e: e["acceptance_length"])
    lines = [
        f"# {name} for {_target(given)}",
        "",
        f"A draft head of {weights / 1e6:.1f} MB, bfloat16. Taught by `toolkit` {_taught_on(given)}.",
        "License Apache-2.0, as the target's.",
        "",
        f"    python -m toolkit train toolkit/shipped/{name}/course.toml --folder heads   # hours on a CPU, resumable",
        "",
        "## Acceptance length",
        "",
        about,
        "",
        *_table(made, "acceptance_length"),
        "",
    ]
    if any(s.speed for s in made.values()):
        lines += [f"Tokens a second relative to {baseline}, in the same turns:", "", *_table(made, "speed"), ""]
    lines += [
        "## Training",
        "",
        f"The course is in `course.toml` (seeds included), the log in `log.jsonl`. Kept is the state after {best['tokens']:,} taught",
        f"tokens{_begun(given)}. Simulated acceptance length of chains on texts held back:",
        "",
        "| taught tokens | acceptance length |",
        "|---:|---:|",
        *(f"| {e['tokens']:,} | {e['acceptance_length']:.3f} |" for e in _some(looks)),
        "",
        "## Limits",
        "",
        f"For {_target(given)} alone, and at its best on English chats at low temperature. Whatever it guesses, a lossless rule",
        "keeps the output the target's own.",
    ]
    return "\n".join(lines) + "\n"


def about(questions: int, new_tokens: int, dtype: str) -> str:
    """What a bench of the command line measures."""
    return (
        f"{questions} questions of Spec-Bench's kinds, {dtype}, temperature 0, at most {new_tokens} new tokens, "
        f"{torch.get_num_threads()} CPU threads; tokens a target pass, the bonus counted, a task's answers taken together."
    )


def _taught_on(given: Course) -> str:
    if files := [part.file for part in given.texts if part.file]:
        return f"on {', '.join(files)}"
    return "on texts that the target wrote and answered itself, and on nothing else"


def _begun(given: Course) -> str:
    return f", which came after those of `{Path(given.start).name}`" if given.start else ""


def _target(given: Course) -> str:
    return "SmolLM2-135M-Instruct" if given.target == "smollm2" else given.target


def _log(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _some(looks: Sequence[dict], most: int = 12) -> list[dict]:
    return list(looks[:: max(1, len(looks) // most)])


def _table(made: Mapping[str, Score], what: str) -> list[str]:
    tasks = list(dict.fromkeys(t for s in made.values() for t in getattr(s, what)))
    rows = [f"| | {' | '.join(t.replace('_', ' ') for t in tasks)} | mean |", "|---|" + "---:|" * (len(tasks) + 1)]
    for arm, score in made.items():
        values = getattr(score, what)
        cells = [f"{values[t]:.2f}" if t in values else "" for t in tasks]
        rows.append(f"| {arm} | {' | '.join(cells)} | {getattr(score, f'mean_{what}'):.2f} |")
    return rows

"""Data without a data set: the target writes its own prompts and answers them (Xu et al. 2024, "Magpie").

A chat model that is shown the beginning of a user's turn writes a plausible one. Openings steer it to kinds of tasks. Every
text has a number, which alone decides its opening, its seeds and how it is answered: a run that was stopped goes on where it
was, and ends with the same file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

from toolkit.engine import Engine, Server
from toolkit.models.chats import Tokenizer, ids, user_turn
from toolkit.sampling import Sampling, Stopping
from toolkit.training.texts import Text, line

OPENINGS: tuple[str, ...] = (
    *("", "", "Write", "Explain", "What", "Who", "How many", "Give a list of"),
    *("Summarize:", "Translate German to English:"),
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How texts are made.

    openings  of user turns, in turn; "" leaves the target free
    prompt    sampling of prompts, and at most so many tokens of one
    answers   sampling of answers, so many texts as there are rows after another in turn, and at most so many tokens of one
    rows      texts written at once
    queue     a batch is so many times as many texts as there are rows: where one ends, the next that waits takes its place
    """

    openings: tuple[str, ...] = OPENINGS
    prompt: Sampling = field(default_factory=lambda: Sampling(temperature=0.9))
    prompt_tokens: int = 48
    answers: tuple[Sampling, ...] = (Sampling(), Sampling(), Sampling(temperature=0.7))
    answer_tokens: int = 192
    rows: int = 32
    queue: int = 4
    seed: int = 0

    @property
    def batch(self) -> int:
        """Texts between two writes to the file."""
        return self.rows * self.queue

    def __post_init__(self) -> None:
        if not self.openings or not self.answers:
            raise ValueError("a recipe needs at least one opening and one way of answering")
        for name in ("prompt_tokens", "answer_tokens", "rows", "queue"):
            if getattr(self, name) < 1:
                raise ValueError(f"a recipe's {name} must be at least 1; got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far `write_own` is. What was written before this call counts as texts alone."""

    texts: int
    wanted: int
    doubles: int  # prompts that had come up before, and were left out
    fresh: int  # texts of this call
    tokens: int  # of this call
    seconds: float  # of this call

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float:
        """Seconds to go at the rate so far."""
        return max(0, self.wanted - self.texts) * self.seconds / self.fresh if self.fresh else float("inf")


def write_own(
    engine: Engine, tokenizer: Tokenizer, file: Path, count: int, recipe: Recipe | None = None
) -> Iterator[Progress]:
    """Let the engine's target write at least `count` texts into `file`, one JSON line each; yields how far it is, batch by
    batch. A file that is there already is gone on with. Raises ValueError for a tokenizer without a chat template and for a
    file that another recipe began."""
    recipe = recipe or Recipe()
    before, after = user_turn(tokenizer)
    number, texts, seen, doubles = _resume(file, recipe)
    began, fresh, tokens = perf_counter(), 0, 0
    yield Progress(texts, count, doubles, 0, 0, 0.0)
    while texts < count:
        batch = range(number, number + recipe.batch)
        starts = [ids(tokenizer, before + recipe.openings[i % len(recipe.openings)]) for i in batch]
        made = _prompts(engine, starts, recipe, batch, ids(tokenizer, after)[0])
        prompts = [
            [*start, *said[: recipe.prompt_tokens], *ids(tokenizer, after)]
            for start, said in zip(starts, made, strict=True)
        ]
        keys = [_key(engine, p) for p in prompts]
        new = [j for j, key in enumerate(keys) if key not in seen and key not in keys[:j]]
        answers = dict(
            zip(new, _answers(engine, [prompts[j] for j in new], recipe, [batch[j] for j in new]), strict=True)
        )
        out = []
        for j, i in enumerate(batch):
            if j not in answers or not answers[j]:
                out.append(json.dumps({"left_out": i}) + "\n")
                continue
            text = Text((*prompts[j], *answers[j]), ((len(prompts[j]), len(prompts[j]) + len(answers[j])),))
            out.append(line(text, number=i, key=keys[j]))
            texts, fresh, tokens = texts + 1, fresh + 1, tokens + len(text.tokens)
        seen.update(keys)
        doubles += len(batch) - len(new)
        with file.open("a", encoding="utf-8") as stream:
            stream.write("".join(out))
        number = batch.stop
        yield Progress(texts, count, doubles, fresh, tokens, perf_counter() - began)


def _prompts(
    engine: Engine, starts: Sequence[Sequence[int]], recipe: Recipe, batch: Sequence[int], end: int
) -> list[list[int]]:
    """What the target writes on in a user's turn, without the token that ends it."""
    stopping = Stopping(recipe.prompt_tokens, (end,))
    samplings = [replace(recipe.prompt, seed=_seed(recipe, i, "prompt")) for i in batch]
    made = _served(engine, starts, samplings, stopping, recipe.rows)
    return [out[:-1] if out and out[-1] == end else out for out in made]


def _answers(
    engine: Engine, prompts: Sequence[Sequence[int]], recipe: Recipe, numbers: Sequence[int]
) -> list[list[int]]:
    ways = [recipe.answers[i // recipe.rows % len(recipe.answers)] for i in numbers]
    samplings = [replace(way, seed=_seed(recipe, i, "answer")) for way, i in zip(ways, numbers, strict=True)]
    stopping = replace(engine.stopping, max_new_tokens=recipe.answer_tokens)
    return _served(engine, prompts, samplings, stopping, recipe.rows)


def _served(
    engine: Engine, prompts: Sequence[Sequence[int]], samplings: Sequence[Sampling], stopping: Stopping, rows: int
) -> list[list[int]]:
    if not prompts:
        return []
    size = 16
    pages = rows * -(-(max(map(len, prompts)) + stopping.max_new_tokens) // size)
    server = Server(engine, pages=pages, page=size, rows=rows, chunk=1024, share=False)
    tickets = [server.add(p, sampling=s, stopping=stopping) for p, s in zip(prompts, samplings, strict=True)]
    server.finish()
    return [ticket.output for ticket in tickets]


def _seed(recipe: Recipe, number: int, what: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{recipe.seed} {number} {what}".encode()).digest()[:6], "big")


def _key(engine: Engine, prompt: Sequence[int]) -> str:
    """Equal for prompts that differ in case and spaces alone."""
    text = engine.decode(prompt) if engine.decode else " ".join(map(str, prompt))
    return hashlib.sha256(" ".join(text.lower().split()).encode()).hexdigest()[:16]


def _resume(file: Path, recipe: Recipe) -> tuple[int, int, set[str], int]:
    """The next number, texts, keys and texts left out so far. Whatever follows the last whole batch is dropped from the
    file, so that it is written again with the same neighbours."""
    head = json.dumps({"recipe": repr(recipe)}) + "\n"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    if lines and lines[0] != head:
        raise ValueError(f"{file} was begun by another recipe: give another file, or the recipe in its first line")
    found = []
    for text in lines[1:]:
        try:
            found.append((json.loads(text), text))
        except ValueError:
            break
    whole = len(found) // recipe.batch * recipe.batch
    part = file.with_name(file.name + ".part")
    part.write_text(head + "".join(text for _, text in found[:whole]), encoding="utf-8")
    part.replace(file)
    keys = [value["key"] for value, _ in found[:whole] if "key" in value]
    return whole, len(keys), set(keys), whole - len(keys)

"""A course from its first text to an exported head. Every stage goes on where it was, whenever it was stopped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import save_file
from torch import Tensor, nn

from toolkit.drafting import Nothing
from toolkit.engine import Engine
from toolkit.heads import SmallLM, dialects, spread_taps
from toolkit.models import zoo
from toolkit.models.hf import HFModel
from toolkit.protocols import Tap
from toolkit.sampling import Stopping
from toolkit.training.course import Course, HeadPlan, Writing, course, digest
from toolkit.training.fit import fit
from toolkit.training.lessons import Joined, Source
from toolkit.training.plan import Look, Report
from toolkit.training.shards import Shards, Size, capture
from toolkit.training.synthesis import Progress, write_own
from toolkit.training.texts import Text, load, texts_of
from toolkit.training.vocabulary import Frequencies


@dataclass(frozen=True, slots=True)
class Exported:
    """The end: where the head lies, and what there is to say about its layout."""

    folder: Path
    notes: tuple[str, ...]


def follow(
    given: Course, loaded: zoo.Loaded, work: Path, name: str, *, accelerator: Accelerator | None = None
) -> Iterator[Progress | Size | Report | Exported]:
    """Write what is lacking into `work`: texts and captures, which courses share, and in a folder `name` checkpoints, a log and
    the head. Yields how far each stage is."""
    accelerator = accelerator or Accelerator(cpu=True)
    target = HFModel(loaded.model)
    work.mkdir(parents=True, exist_ok=True)
    if accelerator.is_main_process:
        for part in given.texts:
            yield from _write(part, target, loaded, work)
    accelerator.wait_for_everyone()
    texts = [_texts(part, loaded, target, work) for part in given.texts]
    frequencies = Frequencies.of([text for part in texts for text in part], target.vocab)
    head = given.head.make(target, frequencies.choose)
    if given.start is not None:
        yield from _start(head, Path(given.start), target, loaded, work, f"{name}-start", accelerator)
    made: Any = head
    read: tuple[Tap, ...] = made.taps
    taps = tuple(dict.fromkeys((*spread_taps(target, min(3, target.layers)), *(t for t in read if t != "final"))))
    folders = [work / f"capture-{digest(p.file or p.key, taps)}" for p in given.texts]
    if accelerator.is_main_process:
        for part, folder in zip(texts, folders, strict=True):
            yield from capture(target, part, taps, folder)
    accelerator.wait_for_everyone()
    told = None if given.told_apart is None else frequencies.choose(given.told_apart)
    source = Joined([Shards(folder, read) for folder in folders])
    yield from _fitted(given, head, target, source, work / name, told, accelerator)
    if accelerator.is_main_process:
        yield Exported(work / name / "head", export(head, given.head, work / name / "head", target, loaded.published))


def _start(
    head: nn.Module, file: Path, target: HFModel, loaded: zoo.Loaded, work: Path, name: str, accelerator: Accelerator
) -> Iterator[Progress | Size | Report]:
    """Let `head` begin as the one in the folder `file`, or as that of another course, which is followed first unless its head is
    there already. Raises ValueError for a head of another make."""
    place = file if file.is_dir() else work / name / "head"
    if not (place / "config.json").exists():
        for report in follow(course(file), loaded, work, name, accelerator=accelerator):
            if not isinstance(report, Exported):
                yield report
        accelerator.wait_for_everyone()
    own = ("lm_head.", "vocabulary.")
    before = dialects.load(place, target, dtype=target.dtype).head.state_dict()
    try:
        found = head.load_state_dict({n: t for n, t in before.items() if not n.startswith(own)}, strict=False)
    except RuntimeError as error:
        raise ValueError(f"the head from {file} has other sizes than the one that is to go on from it") from error
    if odd := [n for n in (*found.missing_keys, *found.unexpected_keys) if not n.startswith(own)]:
        raise ValueError(f"the head from {file} is of another make than the one that is to go on from it: see {odd[0]}")


def _write(part: Writing, target: HFModel, loaded: zoo.Loaded, work: Path) -> Iterator[Progress]:
    if part.file is not None or not part.count:
        return
    engine = Engine(target, Nothing(), stopping=Stopping(1, loaded.stop_tokens), decode=loaded.decode)
    yield from write_own(engine, loaded.tokenizer, work / f"texts-{part.key}.jsonl", part.count, part.recipe)


def _texts(part: Writing, loaded: zoo.Loaded, target: HFModel, work: Path) -> list[Text]:
    if part.file is None:
        found = load(work / f"texts-{part.key}.jsonl")
    else:
        found = list(texts_of(Path(part.file), loaded.tokenizer))
    return [cut for text in found[: part.count or None] if (cut := text.cut(target.limit))]


def _fitted(
    given: Course,
    head: nn.Module,
    target: HFModel,
    source: Source,
    folder: Path,
    tokens: Tensor | None,
    accelerator: Accelerator,
) -> Iterator[Report]:
    """`fit`, with a log. A run that goes on from a checkpoint says its last steps again; the log keeps each once."""
    log, begun = folder / "log.jsonl", False
    for report in fit(
        head, target.unembedding, source, given.plan, folder=folder, tokens=tokens, accelerator=accelerator
    ):
        if accelerator.is_main_process and (isinstance(report, Look) or report.step % 10 == 0):
            if not begun:
                _cut(log, report.step)
                begun = True
            with log.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(_entry(report)) + "\n")
        yield report


def _cut(log: Path, step: int) -> None:
    """Leave what was logged before this step: what a killed run logged after its last checkpoint comes again."""
    log.parent.mkdir(parents=True, exist_ok=True)
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True) if log.exists() else []
    log.write_text("".join(line for line in lines if json.loads(line)["step"] < step), encoding="utf-8")


def _entry(report: Report) -> dict[str, object]:
    if isinstance(report, Look):
        found = report.simulated
        return {
            "step": report.step,
            "tokens": report.tokens,
            "acceptance_length": found.acceptance_length,
            "conditional": found.conditional,
            "seconds": report.seconds,
        }
    return {name: value for name, value in asdict(report).items() if name not in ("of", "norm")}


def export(
    head: nn.Module, plan: HeadPlan, folder: Path, target: HFModel, verifier: str | None = None
) -> tuple[str, ...]:
    """Write a head in bfloat16, in the layout of its kind and without what the target has; a folder that is there already is
    written anew."""
    shutil.rmtree(folder, ignore_errors=True)
    small = head.to(torch.bfloat16)
    if isinstance(small, SmallLM):
        folder.mkdir(parents=True)
        save_file({n: t.contiguous() for n, t in small.state_dict().items()}, folder / "model.safetensors")
        (folder / "config.json").write_text(
            json.dumps({"specdec_head": "small-lm", **asdict(small.config)}, indent=2) + "\n"
        )
        return ()
    return dialects.save(small, folder, plan.dialect or plan.kind, target=target, verifier=verifier, lean=True)

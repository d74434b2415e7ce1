"""What the target says about texts, kept on disk: read once, learned from many times and by many heads.

A folder of safetensors shards and an index. A shard holds its texts' tokens one after another.

Letters: T tokens of a shard, F tapped features, H hidden size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from toolkit.models.hf import HFModel
from toolkit.protocols import Tap
from toolkit.training.lessons import Told, tell_all
from toolkit.training.texts import Text

_INDEX = "index.json"


@dataclass(frozen=True, slots=True)
class Size:
    """Of a capture on disk, known before anything is read."""

    texts: int
    tokens: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.texts} texts, {self.tokens} tokens, {self.bytes / 1e9:.2f} GB"


def size_of(target: HFModel, texts: Sequence[Text], taps: Sequence[Tap]) -> Size:
    """What `capture` will write."""
    tokens = sum(len(t.tokens) for t in texts)
    wide = target.unembedding.in_features * (len(taps) + 1) * torch.finfo(target.dtype).bits // 8
    return Size(len(texts), tokens, tokens * (wide + 4 + 4))


def capture(
    target: HFModel,
    texts: Sequence[Text],
    taps: Sequence[Tap],
    folder: Path,
    *,
    shard_tokens: int = 100_000,
    rows: int = 8,
) -> Iterator[Size]:
    """Write shards into `folder`; yields what is written, after each. Shards that are there already, of the same texts and
    taps, stay as they are, also where more texts follow now. Raises ValueError for a folder with a capture of others."""
    plan = list(_plan(texts, shard_tokens))
    about = {"taps": list(taps), "target": target.name, "hidden": target.unembedding.in_features}
    index = folder / _INDEX
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"about": about, "shards": [[asdict(texts[i]) for i in part] for part in plan]}
    written = json.dumps(whole, separators=(",", ":"))
    if index.exists():
        _leave(json.loads(index.read_text(encoding="utf-8")), json.loads(written), folder)
    _put(index, written)
    for number, part in enumerate(plan):
        file = folder / f"{number:05d}.safetensors"
        if not file.exists():
            told = tell_all(target, [texts[i] for i in part], taps, rows)
            names = ("feature", "state", "best", "total")
            tensors = {name: torch.cat([getattr(t, name).cpu() for t in told]) for name in names}
            tensors["best"] = tensors["best"].int()
            scratch = file.with_suffix(".part")
            save_file(tensors, scratch)
            scratch.replace(file)
        yield size_of(target, [texts[i] for p in plan[: number + 1] for i in p], taps)


def _leave(old: dict[str, Any], new: dict[str, Any], folder: Path) -> None:
    """Leave the shards that both have. All but the last are full, so texts that were added change the last alone."""
    before, after = old["shards"], new["shards"]
    same = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    grown = same < len(before) and same < len(after) and after[same][: len(before[same])] == before[same]
    if old["about"] != new["about"] or not (same or grown):
        raise ValueError(f"{folder} holds a capture of other texts or taps: give another folder, or remove it")
    for number in range(same, len(before)):
        (folder / f"{number:05d}.safetensors").unlink(missing_ok=True)


def _plan(texts: Sequence[Text], tokens: int) -> Iterator[list[int]]:
    part: list[int] = []
    held = 0
    for i, text in enumerate(texts):
        part, held = [*part, i], held + len(text.tokens)
        if held >= tokens:
            yield part
            part, held = [], 0
    if part:
        yield part


def _put(file: Path, text: str) -> None:
    scratch = file.with_suffix(".part")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(file)


class Shards:
    """A capture, to be learned from by heads that read all of its taps, or only `taps` of them, in that order.

    Raises ValueError for a folder without a capture, with shards missing, and for taps that were not captured.
    """

    def __init__(self, folder: Path, taps: Sequence[Tap] | None = None) -> None:
        try:
            whole: dict[str, Any] = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{folder} holds no capture: make one with `capture`") from error
        self.folder, self.about = folder, whole["about"]
        held: list[Tap] = self.about["taps"]
        self.taps: tuple[Tap, ...] = tuple(held) if taps is None else tuple(taps)
        if odd := [t for t in self.taps if t != "final" and t not in held]:
            raise ValueError(f"{folder} holds the taps {held}, and not tap {odd[0]}: capture the texts again with it")
        self._part = [held.index(t) if t in held else None for t in self.taps]  # None: the state the LM head reads
        self.texts: list[Text] = []
        self._place: list[tuple[int, int]] = []  # shard and first token of each text
        for number, part in enumerate(whole["shards"]):
            if not (folder / f"{number:05d}.safetensors").exists():
                raise ValueError(
                    f"{folder} lacks shard {number} of {len(whole['shards'])}: run `capture` again to finish it"
                )
            start = 0
            for value in part:
                text = Text(tuple(value["tokens"]), tuple((a, b) for a, b in value["answers"]))
                self.texts.append(text)
                self._place.append((number, start))
                start += len(text.tokens)
        self._open: dict[int, Any] = {}

    def told(self, numbers: Sequence[int]) -> list[Told]:
        """What the target said about some of the texts."""
        return [self._told(i) for i in numbers]

    def _told(self, i: int) -> Told:
        shard, start = self._place[i]
        if shard not in self._open:
            self._open[shard] = safe_open(self.folder / f"{shard:05d}.safetensors", framework="pt")
        end = start + len(self.texts[i].tokens)
        feature, state, best, total = (
            self._open[shard].get_slice(name)[start:end] for name in ("feature", "state", "best", "total")
        )
        if self._part != list(range(feature.shape[-1] // state.shape[-1])):
            parts = feature.split(state.shape[-1], -1)
            feature = (
                torch.cat([state if p is None else parts[p] for p in self._part], -1) if self._part else state[:, :0]
            )
        return Told(self.texts[i], feature, state, best.long(), total)

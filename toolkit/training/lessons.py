"""A lesson: a batch of texts with what the target says about them, read anew or taken from what was captured.

Letters: B texts, N tokens of the longest, F tapped features, H hidden size, V vocabulary, W tokens that are told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from toolkit.models.hf import HFModel
from toolkit.protocols import Tap
from toolkit.training.texts import Text
from toolkit.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Lesson:
    """Entry i of a row is about its token i: `state` is what the LM head reads after it, `best` the likeliest next token, and
    `total` the log of the sum of all exponentiated logits (float32)."""

    token: Tensor  # [B, N] int64
    real: Tensor  # [B, N] bool
    taught: Tensor  # [B, N] bool: is the token one that the target itself has to say
    feature: Tensor  # [B, N, F]
    state: Tensor  # [B, N, H]
    best: Tensor  # [B, N] int64
    total: Tensor  # [B, N]

    def to(self, device: torch.device, dtype: torch.dtype) -> Lesson:
        """All of it on a device, features and states in `dtype`."""
        return Lesson(
            self.token.to(device),
            self.real.to(device),
            self.taught.to(device),
            self.feature.to(device, dtype),
            self.state.to(device, dtype),
            self.best.to(device),
            self.total.to(device),
        )


@dataclass(frozen=True, slots=True)
class Told:
    """What the target said about one text; entries as in `Lesson`, without the row."""

    text: Text
    feature: Tensor  # [N, F]
    state: Tensor  # [N, H]
    best: Tensor  # [N] int64
    total: Tensor  # [N] float32


def lesson(told: Sequence[Told], *, whole: bool = False) -> Lesson:
    """One rectangular batch, padded at the end. `whole` teaches all tokens but the first, and not answers alone."""
    if not told:
        raise ValueError("a lesson needs at least one text")
    n = max(len(t.text.tokens) for t in told)
    token = torch.zeros(len(told), n, dtype=torch.long)
    real, taught = torch.zeros(len(told), n, dtype=torch.bool), torch.zeros(len(told), n, dtype=torch.bool)
    for b, t in enumerate(told):
        token[b, : len(t.text.tokens)] = torch.tensor(t.text.tokens)
        real[b, : len(t.text.tokens)] = True
        for start, end in [(1, len(t.text.tokens))] if whole else t.text.answers:
            taught[b, start:end] = True
    return Lesson(
        token,
        real,
        taught,
        *(_padded([getattr(t, name) for t in told], n) for name in ("feature", "state", "best", "total")),
    )


def _padded(parts: Sequence[Tensor], n: int) -> Tensor:
    out = parts[0].new_zeros(len(parts), n, *parts[0].shape[1:])
    for b, part in enumerate(parts):
        out[b, : len(part)] = part
    return out


@torch.inference_mode()
def tell(target: HFModel, texts: Sequence[Text], taps: Sequence[Tap]) -> list[Told]:
    """Read texts in one pass, each as a chain. Raises ValueError for a text beyond the target's context."""
    longest = max(len(t.tokens) for t in texts)
    if longest > target.limit:
        raise ValueError(f"a text has {longest} tokens, and the target's context holds {target.limit}: cut it before")
    token = torch.zeros(len(texts), longest, dtype=torch.long)
    real = torch.zeros(len(texts), longest, dtype=torch.bool)
    for b, t in enumerate(texts):
        token[b, : len(t.tokens)] = torch.tensor(t.tokens)
        real[b, : len(t.tokens)] = True
    tree = TokenTree.chain(token.to(target.device), real.to(target.device))
    reading = target.read(tree, target.open(len(texts), longest), taps=(*taps, "final"), last=1)
    if reading.feature is None:
        raise ValueError("the target gave no features")
    width = target.unembedding.in_features
    out = []
    for b, text in enumerate(texts):
        n = len(text.tokens)
        tapped = reading.feature[b, :n]
        state = tapped[:, -width:]
        best, total = _summary(target, state)
        out.append(Told(text, tapped[:, :-width].clone(), state.clone(), best, total))
    return out


def _summary(target: HFModel, state: Tensor, chunk: int = 512) -> tuple[Tensor, Tensor]:
    """The likeliest next token and the log of the sum of exponentials after each state [N, H]."""
    best, total = [], []
    for part in state.split(chunk):
        logits = target.unembedding(part)
        best.append(logits.argmax(-1))
        total.append(logits.float().logsumexp(-1))
    return torch.cat(best), torch.cat(total)


def tell_all(target: HFModel, texts: Sequence[Text], taps: Sequence[Tap], rows: int = 8) -> list[Told]:
    """In the given order, each read with neighbours of like length, `rows` in a pass."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i].tokens))
    found: dict[int, Told] = {}
    for i in range(0, len(order), rows):
        part = order[i : i + rows]
        found |= dict(zip(part, tell(target, [texts[j] for j in part], taps), strict=True))
    return [found[i] for i in range(len(texts))]


class Source(Protocol):
    """Texts with what the target says about them: a `Reader`, `Shards`, or anything of yours."""

    @property
    def texts(self) -> Sequence[Text]: ...

    def told(self, numbers: Sequence[int]) -> list[Told]: ...


class Joined:
    """Several sources as one, mixed evenly, so that every stretch of it is of all kinds."""

    def __init__(self, parts: Sequence[Source]) -> None:
        self.parts = tuple(parts)
        order = sorted(
            ((i + 0.5) / len(part.texts), p, i) for p, part in enumerate(parts) for i in range(len(part.texts))
        )
        self._place = [(p, i) for _, p, i in order]
        self.texts: list[Text] = [parts[p].texts[i] for p, i in self._place]

    def told(self, numbers: Sequence[int]) -> list[Told]:
        found: dict[int, Told] = {}
        for p, part in enumerate(self.parts):
            mine = [n for n in numbers if self._place[n][0] == p]
            found |= zip(mine, part.told([self._place[n][1] for n in mine]), strict=True)
        return [found[n] for n in numbers]


@dataclass(slots=True)
class Reader:
    """Texts, told about by the target whenever they are asked for: nothing on disk, and the target in memory."""

    target: HFModel
    texts: Sequence[Text]
    taps: Sequence[Tap]
    rows: int = 8

    def told(self, numbers: Sequence[int]) -> list[Told]:
        return tell_all(self.target, [self.texts[i] for i in numbers], self.taps, self.rows)

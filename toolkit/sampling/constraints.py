"""What must or must not come next. Logits [B, M, V] in and out, each node with its own history.

Letters: B rows, M nodes, V vocabulary, Q sequences of all rows, P tokens before the last of the longest sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.sampling.paths import Paths

_ANY = -2  # stands for whatever comes before a shorter sequence


@dataclass(frozen=True, slots=True)
class Bias:
    """Numbers added to the last token of a sequence where the others stand at the end of the text, as in Hugging Face's
    SequenceBiasLogitsProcessor: a sequence longer than the text itself is passed over."""

    row: Tensor  # [Q]
    before: Tensor  # [Q, P], _ANY first where a sequence is shorter
    last: Tensor  # [Q]
    size: Tensor  # [Q]
    bias: Tensor  # [Q] float64

    @classmethod
    def of(cls, rows: Sequence[Mapping[tuple[int, ...], float]], device: torch.device | str) -> Bias:
        """One mapping of sequences to numbers a row."""
        flat = [(b, ids, bias) for b, biases in enumerate(rows) for ids, bias in biases.items()]
        longest = max(len(ids) for _, ids, _ in flat)
        return cls(
            torch.tensor([b for b, _, _ in flat], device=device),
            torch.tensor([[_ANY] * (longest - len(ids)) + list(ids[:-1]) for _, ids, _ in flat], device=device),
            torch.tensor([ids[-1] for _, ids, _ in flat], device=device),
            torch.tensor([len(ids) for _, ids, _ in flat], device=device),
            torch.tensor([bias for _, _, bias in flat], dtype=torch.float64, device=device),
        )

    def __call__(self, logits: Tensor, paths: Paths) -> Tensor:
        here = (self.last < logits.shape[-1])[:, None]  # a draft model's vocabulary may be the smaller one
        if self.before.shape[1]:
            tail = paths.tails(self.before.shape[1])[self.row]  # [Q, M, P]
            before = self.before[:, None]
            here = here & ((tail == before) | (before == _ANY)).all(-1)
            here &= (paths.size[self.row] >= self.size[:, None]) | (self.size == 1)[:, None]
        value = self.bias[:, None].to(logits.dtype).where(here, 0).expand(-1, logits.shape[1])  # [Q, M]
        node = torch.arange(logits.shape[1], device=logits.device)
        last = self.last.clamp(max=logits.shape[-1] - 1)[:, None]
        return logits.index_put((self.row[:, None], node, last), value, accumulate=True)


@dataclass(frozen=True, slots=True)
class NoEndYet:
    """No stop token before a number of new tokens."""

    ends: Tensor  # [B, V] bool
    least: Tensor  # [B]

    def __call__(self, logits: Tensor, paths: Paths) -> Tensor:
        early = paths.fresh < self.least[:, None]  # [B, M]
        ends = fit(self.ends, logits.shape[-1])
        return logits.masked_fill(early[..., None] & ends[:, None], -torch.inf)


@dataclass(frozen=True, slots=True)
class Allowed:
    """A fixed set of tokens that may come out."""

    mask: Tensor  # [B, V] bool
    asked: Tensor  # [B, 1] bool, False where all tokens may come out

    def __call__(self, logits: Tensor, paths: Paths) -> Tensor:
        drop = self.asked & ~fit(self.mask, logits.shape[-1])
        return logits.masked_fill(drop[:, None], -torch.inf)


@dataclass(frozen=True, slots=True)
class Forced:
    """New tokens that are laid down beforehand: [B, T] ids by index, -1 where the choice is free."""

    token: Tensor

    def __call__(self, logits: Tensor, paths: Paths) -> Tensor:
        known = paths.fresh < self.token.shape[1]
        token = self.token.gather(1, paths.fresh.clamp(0, self.token.shape[1] - 1)).where(known, -1)[..., None]
        id = torch.arange(logits.shape[-1], device=logits.device)
        alone = torch.zeros_like(logits).masked_fill(token != id, -torch.inf)
        return torch.where((token >= 0) & (token < logits.shape[-1]), alone, logits)


def fit(mask: Tensor, vocab: int) -> Tensor:
    """[B, V] cut or padded with False to `vocab` tokens."""
    return torch.nn.functional.pad(mask, (0, vocab - mask.shape[1]))

"""Functions that follow Hugging Face's LogitsProcessor, called along the paths of a tree.

Nodes of one row and one depth have histories of one length and go into one call. Grouping them needs the depths on the
host: the one stage of sampling that waits for the device, and only batches that use it pay.

Letters: k nodes in a call, L tokens of their histories, B rows, M nodes, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.sampling.params import Processor
from toolkit.sampling.paths import Paths


@dataclass(frozen=True, slots=True)
class Processors:
    """The processors of each row."""

    rows: tuple[Sequence[Processor], ...]

    def __call__(self, logits: Tensor, paths: Paths) -> Tensor:
        out, tree = logits.clone(), paths.tree
        lengths, depths = paths.length.tolist(), paths.depth.tolist()
        reals = tree.real[:, paths.start :].tolist()
        for b, processors in enumerate(self.rows):
            real = [i for i, r in enumerate(reals[b]) if r]
            for depth in sorted({depths[b][i] for i in real}) if processors else ():
                nodes = [i for i in real if depths[b][i] == depth]
                at = torch.tensor(nodes, device=logits.device)
                text = paths.token[b, : lengths[b]].expand(len(nodes), -1)
                on_path = tree.ancestors[b, paths.start + at, 1:]  # [k, N - 1]
                guess = tree.token[b, 1:].expand_as(on_path)[on_path].view(len(nodes), depth)
                ids, scores = torch.cat([text, guess], 1), logits[b, at] if processors else logits
                for processor in processors:
                    scores = call(processor, ids, scores)
                if (scores.amax(-1) == -torch.inf).any():
                    raise ValueError(f"the processors of row {b} forbid every token after {ids.shape[1]} tokens")
                out[b, at] = scores.to(out.dtype)
        return out


def call(processor: Processor, ids: Tensor, scores: Tensor) -> Tensor:
    """scores [k, V] after one processor, which gets copies: what it does to them in place stays there.

    Raises ValueError when it gives back anything but scores of the same shape.
    """
    given = processor(ids.clone(), scores.clone())
    if not isinstance(given, Tensor) or given.shape != scores.shape:
        what = list(given.shape) if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(f"{_name(processor)} must return scores {list(scores.shape)}, one row a text; got {what}")
    return given


def refuse_stateful(processor: Processor, prompt: Sequence[int], vocab: int, device: torch.device | str) -> None:
    """Raise ValueError when two calls with the same arguments differ. Only a sample: what changes later goes unseen."""
    ids, scores = torch.tensor([list(prompt)], device=device), torch.zeros(1, vocab, device=device)
    if not torch.equal(call(processor, ids, scores), call(processor, ids, scores)):
        raise ValueError(
            f"{_name(processor)} answers differently when asked twice, so it keeps a state; guesses that are refused would "
            f"disturb it: make it a function of input_ids and scores"
        )


def _name(processor: Processor) -> str:
    return getattr(processor, "__name__", type(processor).__name__)

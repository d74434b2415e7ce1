"""The stages before temperature, in Hugging Face's order, and of them only those that some row of the batch uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from toolkit.sampling.constraints import Allowed, Bias, Forced, NoEndYet
from toolkit.sampling.grammar import Grammatical
from toolkit.sampling.params import Sampling
from toolkit.sampling.paths import Paths
from toolkit.sampling.penalties import Presence, Repetition
from toolkit.sampling.processors import Processors

Stage = Callable[[Tensor, Paths], Tensor]
"""Logits [B, M, V] and the nodes' histories to logits [B, M, V], never in place."""


def stages_of(rows: Sequence[Sampling], ends: Sequence[Sequence[int]], device: torch.device | str) -> tuple[Stage, ...]:
    """`ends` are each row's stop tokens."""
    made: list[Stage] = []

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device).view(-1, 1, 1)

    def mask(sets: Sequence[Sequence[int]]) -> Tensor:
        out = torch.zeros(len(sets), 1 + max((max(s) for s in sets if len(s)), default=0), dtype=torch.bool)
        for row, ids in zip(out, sets, strict=True):
            row[list(ids)] = True
        return out.to(device)

    if any(r.logit_bias for r in rows):
        made.append(Bias.of([r.biases for r in rows], device))
    if any(r.repetition_penalty != 1 for r in rows):
        made.append(Repetition(column([r.repetition_penalty for r in rows])))
    if any(r.presence_penalty or r.frequency_penalty for r in rows):
        made.append(Presence(column([r.presence_penalty for r in rows]), column([r.frequency_penalty for r in rows])))
    if any(r.bad_words for r in rows):
        made.append(Bias.of([{tuple(w): -math.inf for w in r.bad_words} for r in rows], device))
    if any(r.min_new_tokens for r in rows):
        least = torch.tensor([r.min_new_tokens for r in rows], device=device)
        made.append(NoEndYet(mask(ends), least))
    if any(r.allowed is not None for r in rows):
        asked = torch.tensor([[r.allowed is not None] for r in rows], device=device)
        made.append(Allowed(mask([r.allowed or () for r in rows]), asked))
    if any(r.grammar for r in rows):
        made.append(Grammatical(tuple(r.grammar.walk() if r.grammar else None for r in rows)))
    if any(r.forced for r in rows):
        last = 1 + max(max(r.forced, default=0) for r in rows)
        made.append(Forced(torch.tensor([[r.forced.get(i, -1) for i in range(last)] for r in rows], device=device)))
    if any(r.processors for r in rows):
        made.append(Processors(tuple(r.processors for r in rows)))
    return tuple(made)

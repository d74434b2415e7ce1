"""Evidence as numbers again.

Letters: N nodes, R rows of q, K likeliest tokens, T = K + N + 1 tokens a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toolkit.trace import RowRecord
from toolkit.trace.evidence import Evidence, pairs


@dataclass(frozen=True, slots=True)
class Known:
    """A token may stand in a row twice, with the same number."""

    token: Tensor  # [N, T] int64
    logit: Tensor  # [N, T] float64
    most: Tensor  # [N] the largest logit of the tokens that are left out
    tail: Tensor  # [N] their logsumexp
    warm: Tensor  # [N] their logsumexp at the request's own temperature
    q_token: Tensor  # [R, T]
    q: Tensor  # [R, T] float64
    q_tail: Tensor  # [R]
    along: tuple[tuple[int, Tensor, Tensor], ...]  # a row of q, tokens [K], their probabilities [K]


def evidence_of(record: RowRecord) -> Evidence:
    """Raises ValueError where none was recorded."""
    if record.evidence is None:
        raise ValueError("this step holds no evidence to judge it by again: run the engine with evidence=64")
    return record.evidence


def known(record: RowRecord) -> Known:
    """Raises ValueError where no evidence was recorded."""
    e = evidence_of(record)
    n, k = len(record.token), e.k
    also = torch.tensor([*record.token, record.bonus]).expand(n, -1)
    likely = _ids(e.token, e).view(n, k)
    tail = _floats(e.tail).view(n, 3)
    q_likely = _ids(e.q_token, e).view(-1, k)
    rows = len(q_likely)
    along = _floats(e.q_along).view(-1, k)
    lines = pairs(record.parent, e.source)
    return Known(
        torch.cat([likely, also], 1),
        _floats(e.logit).view(n, -1),
        tail[:, 0],
        tail[:, 1],
        tail[:, 2],
        torch.cat([q_likely, also[:1].expand(rows, -1)], 1),
        _floats(e.q).view(rows, k + n + 1),
        _floats(e.q_tail),
        tuple((row, likely[above], along[i]) for i, (above, row) in enumerate(lines)),
    )


def _ids(data: bytes, e: Evidence) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, e.id_type).astype(np.int64))


def _floats(data: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, "<f4").astype(np.float64))

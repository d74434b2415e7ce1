"""The one crossing from device to host of a step: everything a record and the host need, in one copy.

Integers travel as float64, which is exact below 2**53.

Letters: B rows, N nodes, V vocabulary, K recorded next tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toolkit.engine.evidence import Gathered
from toolkit.protocols import Verdict
from toolkit.trace.records import RowRecord
from toolkit.tree import TokenTree


class Unsound(ValueError):
    """A row's logits are not finite numbers."""


@dataclass(frozen=True, slots=True)
class Crossed:
    """A step on the host, one list entry a row."""

    rows: list[dict[str, list[float]]]
    tip: list[int]
    bonus: list[int]
    sound: list[bool]  # all logits of the row's real nodes are numbers
    gathered: Gathered | None = None
    seen: np.ndarray | None = None  # [B, any] its block

    def check(self, b: int, position: int, pending: int) -> None:
        """Raise ValueError unless row b holds a tree that stands on the pending token, and sound logits."""
        v = self.rows[b]
        if not v["real"][0] or int(v["token"][0]) != pending:
            raise ValueError(
                f"the drafter's tree for row {b} begins with token {int(v['token'][0])}, and the pending token is {pending}: "
                f"node 0 must be `context.pending`"
            )
        for i in range(1, len(v["real"])):
            above = int(v["parent"][i])
            if v["real"][i] and not (0 <= above < i and v["real"][above]):
                raise ValueError(
                    f"node {i} of the drafter's tree for row {b} has parent {above}: every node needs a real parent with a "
                    f"smaller index"
                )
        if not self.sound[b]:
            raise Unsound(
                f"the target's logits at position {position} or at its guesses (row {b}) are not finite numbers: the model "
                f"is broken or overflows its dtype"
            )

    def emitted(self, b: int) -> list[int]:
        """What the verdict commits in row b: the kept path without the pending root, then the bonus."""
        return [*(int(self.rows[b]["token"][i]) for i in self.path(b)), self.bonus[b]]

    def path(self, b: int) -> list[int]:
        """The nodes of row b's kept path without the pending root."""
        at, parent = self.tip[b], self.rows[b]["parent"]
        path = []
        while at > 0:
            path.append(at)
            at = int(parent[at])
        return path[::-1]

    def record(self, b: int, position: int, emitted: list[int], ended: str | None) -> RowRecord:
        v = self.rows[b]
        real = [i for i, r in enumerate(v["real"]) if r]
        place = {i: n for n, i in enumerate(real)}

        def floats(name: str) -> tuple[float, ...]:
            return tuple(v[name][i] for i in real) if name in v else ()

        def ints(name: str) -> tuple[int, ...]:
            return tuple(int(v[name][i]) for i in real)

        k = len(v["top_token"]) // len(v["token"]) if "top_token" in v else 0
        top = tuple(
            tuple((int(v["top_token"][i * k + j]), v["top_prob"][i * k + j]) for j in range(k)) for i in real if k
        )
        parent = tuple(place[p] if (p := int(v["parent"][i])) >= 0 else -1 for i in real)
        return RowRecord(
            position=position,
            token=ints("token"),
            parent=parent,
            tip=place[self.tip[b]],
            bonus=self.bonus[b],
            emitted=tuple(emitted),
            outcome=ints("outcome") if "outcome" in v else tuple(0 for _ in real),
            p=floats("p"),
            q=floats("q"),
            accept=floats("accept"),
            u=floats("u"),
            confidence=floats("confidence"),
            prob=floats("prob"),
            top=top,
            ended=ended,
            evidence=self.gathered.record(b, self.seen[b], parent, real)
            if self.gathered and self.seen is not None
            else None,
        )


def cross(
    tree: TokenTree,
    confidence: Tensor | None,
    logits: Tensor,
    verdict: Verdict,
    top: int,
    extra: Mapping[str, Tensor] | None = None,
    evidence: Gathered | None = None,
) -> Crossed:
    """Bring a step to the host. `top` > 0 also records the target's `top` likeliest next tokens after each node; `extra`
    columns [B, any] travel along under their own names, and so does what was gathered as evidence."""
    columns: dict[str, Tensor] = {"token": tree.token, "parent": tree.parent, "real": tree.real}
    if verdict.tests:
        t = verdict.tests
        columns |= {"outcome": t.outcome, "p": t.p, "q": t.q, "accept": t.accept, "u": t.u}
    if confidence is not None:
        columns["confidence"] = confidence
    if top:
        columns |= _top(tree.token, tree.parent, logits, top)
    columns |= extra or {}
    unsound = (~logits.amax(-1).isfinite() & tree.real).any(1)
    last = torch.stack([verdict.tip, verdict.bonus, unsound], 1)
    packed = torch.cat([*columns.values(), last.double()], 1)  # the widest type of all is float64
    seen, width = None, packed.shape[1]
    if evidence:
        host = torch.cat([packed, evidence.block], 1).cpu()
        packed, seen = host[:, :width], host[:, width:].numpy()
    lines = packed.tolist()
    rows = []
    for line in lines:
        row, at = {}, 0
        for name, column in columns.items():
            row[name] = line[at : at + column.shape[1]]
            at += column.shape[1]
        rows.append(row)
    return Crossed(
        rows,
        [int(line[-3]) for line in lines],
        [int(line[-2]) for line in lines],
        [not line[-1] for line in lines],
        evidence,
        seen,
    )


def _top(token: Tensor, parent: Tensor, logits: Tensor, k: int) -> dict[str, Tensor]:
    probs = logits.float().softmax(-1)  # [B, N, V]
    best = probs.topk(min(k, probs.shape[-1]), -1)
    above = probs[torch.arange(len(token), device=token.device)[:, None], parent.clamp(min=0), token]
    return {"prob": above, "top_token": best.indices.flatten(1), "top_prob": best.values.flatten(1)}

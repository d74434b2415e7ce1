"""What a step was judged on, picked out on the device, so that it crosses to the host with everything else.

Letters: B rows of the batch, b rows of a part, N nodes, Q rows of q, V vocabulary, K likeliest tokens, T = K + N + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from toolkit.engine.groups import Draft, Part, own, seats
from toolkit.protocols import Proposal, Rule, Verdict
from toolkit.sampling import Sampling
from toolkit.trace.evidence import Evidence, id_type, pairs


@dataclass(frozen=True, slots=True)
class _Layout:
    """Of one part's columns: the same for all its rows."""

    k: int
    nodes: int
    q_rows: int
    vocab: int
    rule: str
    draw: str

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        n, k, r, t = self.nodes, self.k, self.q_rows, self.k + self.nodes + 1
        target: dict[str, tuple[int, ...]] = {"token": (n, k), "logit": (n, t), "tail": (n, 3)}
        if not r:
            return target
        guesses: dict[str, tuple[int, ...]]
        guesses = {"source": (n,), "q_token": (r, k), "q": (r, t), "q_tail": (r,), "q_along": (n, k)}
        return target | guesses


@dataclass(frozen=True, slots=True)
class Gathered:
    """The evidence of a step on its way to the host."""

    block: Tensor  # [B, any] float64
    layouts: tuple[_Layout, ...]  # of the rows
    samplings: tuple[Sampling, ...]  # of the rows

    def record(self, b: int, line: np.ndarray, parent: Sequence[int], real: Sequence[int]) -> Evidence:
        """Row b's, from its line of the block; `parent` is that of its `real` nodes, renumbered."""
        layout, s, at = self.layouts[b], self.samplings[b], 0
        found: dict[str, np.ndarray] = {}
        for name, shape in layout.shapes.items():
            size = int(np.prod(shape))
            found[name] = line[at : at + size].reshape(shape)
            at += size
        nodes = list(real)
        every = [*range(layout.k), *(layout.k + i for i in nodes), layout.k + layout.nodes]  # padding left out
        ids, source, q = id_type(layout.vocab), (-1,) * len(nodes), {}
        if layout.q_rows:
            told = [int(x) for x in found["source"][nodes]]
            told[0] = -1
            used = sorted({x for x in told if x >= 0})
            source = tuple(used.index(x) if x >= 0 else -1 for x in told)
            first = {pair: nodes[i] for i, pair in reversed(list(enumerate(zip(parent, source, strict=True))))}
            q = {
                "q_token": found["q_token"][used].astype(ids).tobytes(),
                "q": _floats(found["q"][used][:, every]),
                "q_tail": _floats(found["q_tail"][used]),
                "q_along": _floats(found["q_along"][[first[pair] for pair in pairs(tuple(parent), source)]]),
            }
        return Evidence(
            k=layout.k,
            vocab=layout.vocab,
            rule=layout.rule,
            draw=layout.draw,
            temperature=s.heat,
            top_k=s.top_k,
            top_p=float(s.top_p),
            min_p=float(s.min_p),
            typical_p=float(s.typical_p),
            seed=s.seed,
            source=source,
            token=found["token"][nodes].astype(ids).tobytes(),
            logit=_floats(found["logit"][nodes][:, every]),
            tail=_floats(found["tail"][nodes]),
            **q,
        )


def gather(
    draft: Draft, logits: Tensor, verdicts: Sequence[Verdict], samplings: Sequence[Sampling], k: int
) -> Gathered:
    """The evidence of all rows of logits [B, N, V], with `k` likeliest tokens of each distribution. No sync.

    Raises ValueError for k below 1.
    """
    if k < 1:
        raise ValueError(f"evidence is the number of likeliest tokens to record, at least 1 (0 records none); got {k}")
    layouts: dict[int, _Layout] = {}
    blocks = []
    for part, verdict in zip(draft.parts, verdicts, strict=True):
        mine, rows = own(part, draft, logits), part.group.rows
        p = part.proposal
        layout = _Layout(
            min(k, mine.shape[-1]),
            p.tree.size,
            0 if p.q is None else p.q.shape[1],
            mine.shape[-1],
            _name(part.group.rule),
            p.draw,
        )
        layouts |= dict.fromkeys(rows, layout)
        blocks.append(_block(part, mine, verdict, [samplings[b] for b in rows], layout.k))
    width = max(block.shape[1] for block in blocks)
    block = torch.cat([pad(block, (0, width - block.shape[1])) for block in blocks])
    if len(blocks) > 1:
        block = block[seats(draft.parts, block.device)]
    return Gathered(block, tuple(layouts[b] for b in range(len(block))), tuple(samplings))


def _block(part: Part, logits: Tensor, verdict: Verdict, samplings: Sequence[Sampling], k: int) -> Tensor:
    """[b, any] the columns that `_Layout.shapes` names."""
    tree = part.proposal.tree
    logits = part.context.sampler.processed(logits, tree)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    best = logits.topk(k, -1)  # [b, N, K]
    real = tree.token.where(tree.real, tree.token[:, :1])  # what is left out must not hold what padding would name
    named = torch.cat([real, verdict.bonus[:, None]], 1)  # [b, N + 1]
    also = named[:, None].expand(-1, tree.size, -1)
    rest = logits.scatter(2, best.indices, -torch.inf).scatter(2, also, -torch.inf)  # [b, N, V]
    heat = torch.tensor([s.heat or 1.0 for s in samplings], dtype=torch.float64, device=logits.device)
    warm = (rest / heat.to(rest.dtype)[:, None, None]).logsumexp(-1)
    tail = torch.stack([rest.amax(-1), rest.logsumexp(-1), warm], -1)
    columns = [best.indices, torch.cat([best.values, logits.gather(2, also)], 2), tail]
    if part.proposal.q is not None:
        columns += _guessed(part.proposal, part.proposal.q, best.indices, named, k)
    return torch.cat([c.flatten(1).double() for c in columns], 1)


def _guessed(proposal: Proposal, q: Tensor, likely: Tensor, named: Tensor, k: int) -> list[Tensor]:
    """source, q_token, q, q_tail and q_along; `likely` [b, N, K] are the target's tokens, `named` [b, N + 1] those of the tree."""
    tree, source = proposal.tree, proposal.source
    best = q.topk(k, -1)  # [b, Q, K]
    also = named[:, None].expand(-1, q.shape[1], -1)
    rest = q.scatter(2, best.indices, 0).scatter(2, also, 0)
    after = likely.gather(1, tree.parent.clamp(min=0)[..., None].expand_as(likely))  # [b, N, K] of each node's parent
    at = source.clamp(min=0)[..., None] * q.shape[2] + after
    along = q.flatten(1).gather(1, at.flatten(1))
    return [source, best.indices, torch.cat([best.values, q.gather(2, also)], 2), rest.sum(-1), along]


def _name(rule: Rule) -> str:
    text = repr(rule)
    return type(rule).__name__ if " at 0x" in text else text


def _floats(x: np.ndarray) -> bytes:
    return x.astype("<f4").tobytes()

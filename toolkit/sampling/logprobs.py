"""Log-probabilities of the new tokens, for requests that ask for them.

Raw ones are of the model's own distribution, before biases, penalties, temperature and filters, as OpenAI and vLLM have
it. Processed ones are of the distribution the token was drawn from: at temperature 0 all mass is on one token, so its
log-probability is 0.

Letters: B rows, N nodes, V vocabulary, K alternatives (the most that a row asks for).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from toolkit.tree import TokenTree

if TYPE_CHECKING:
    from toolkit.sampling.params import Sampling
    from toolkit.sampling.sampler import BatchSampler


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One new token, the natural logarithm of its probability given the text before it, and the likeliest tokens there."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def columns(sampler: BatchSampler, logits: Tensor, tree: TokenTree, tip: Tensor, bonus: Tensor) -> dict[str, Tensor]:
    """What the host needs, [B, ...] each: of every node's token, of the bonus, and the K likeliest after every node.
    Empty when no row asks."""
    asked = [r.logprobs for r in sampler.rows if r.logprobs is not None]
    if not asked:
        return {}
    logp = (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)  # [B, N, V]
    processed = [r.logprobs is not None and r.logprobs_of == "processed" for r in sampler.rows]
    if any(processed):
        which = torch.tensor(processed, device=logits.device).view(-1, 1, 1)
        logp = torch.where(which, sampler.probs(logits, tree).log(), logp)
    rows = torch.arange(tree.rows, device=logits.device)
    best = logp.topk(max(asked), -1)
    return {
        "logprob": logp[rows[:, None], tree.parent.clamp(min=0), tree.token],
        "logprob_bonus": logp[rows, tip, bonus][:, None],
        "logprob_ids": best.indices.flatten(1),
        "logprob_top": best.values.flatten(1),
    }


def entries(
    sampling: Sampling, values: Mapping[str, list[float]], path: Sequence[int], tokens: Sequence[int]
) -> list[TokenLogprob]:
    """One entry for each of `tokens`, the beginning of the kept path (node indices, the root left out) and the bonus.
    `values` is one row of `columns` on the host. Empty when the row does not ask."""
    if sampling.logprobs is None:
        return []
    k, asked, parents = len(values["logprob_ids"]) // len(values["logprob"]), sampling.logprobs, [0, *path]
    own = [*(values["logprob"][i] for i in path), values["logprob_bonus"][0]]
    return [
        TokenLogprob(
            token,
            logprob,
            tuple((int(values["logprob_ids"][i * k + j]), values["logprob_top"][i * k + j]) for j in range(asked)),
        )
        for token, logprob, i in zip(tokens, own, parents, strict=False)  # a stop may cut the run
    ]

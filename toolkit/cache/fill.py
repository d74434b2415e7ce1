"""Bring a cache up to date: read what is committed and not yet settled, in chunks.

Prefill, a drafter's catching up, a swap and a rewind are all this one thing.

Letters: B rows, M tokens of a chunk, F features, S slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from toolkit.protocols import Context, KVCache, Reader, Tap
from toolkit.tree import TokenTree


def fill(
    lm: Reader,
    cache: KVCache,
    context: Context,
    *,
    leave: int = 0,
    passes: int | None = None,
    taps: Sequence[Tap] = (),
    sink: Callable[[Tensor, Tensor, Tensor], None] | None = None,
) -> None:
    """Settle all committed tokens but the pending one and, where that saves a pass, up to `leave` before it, in passes of
    `context.chunk` tokens, of which at most `passes` are made.

    `sink(feature [B, M, F], slot [B, M], real [B, M])` is given the tapped features of each chunk. Afterwards
    `cache.filled` tells what is settled.
    """
    cache.agree(context)
    goal = np.array(context.lengths) - 1
    while (behind := int((goal - cache.filled).max(initial=0))) > leave and passes != 0:
        passes = None if passes is None else passes - 1
        n = min(behind, context.chunk)
        slot = cache.length[:, None] + torch.arange(n, device=cache.length.device)  # [B, M]
        real = slot < context.length[:, None] - 1
        tree = TokenTree.chain(context.token.gather(1, slot.clamp(max=context.token.shape[1] - 1)), real)
        feature = lm.read(tree, cache, taps=taps, last=0).feature
        if sink and feature is not None:
            sink(feature, slot, real)
        cache.keep(tree, real)
        cache.trust(context.host, np.minimum(goal, cache.filled + n))

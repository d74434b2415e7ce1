"""The arg-max over a vocabulary, several times faster on a CPU than one call.

torch's arg-max reads one number at a time there, its maximum many; so the maxima of blocks are compared first, and only
the best block is searched.

Letters: V vocabulary, W width of a block.
"""

from __future__ import annotations

import torch
from torch import Tensor

WIDTH = 512


def argmax(x: Tensor) -> Tensor:
    """[..., V] to [...]: the first index of the largest value, as `x.argmax(-1)`; NaN counts as the largest."""
    blocks = x.shape[-1] // WIDTH
    if x.is_cuda or blocks < 2:
        return x.argmax(-1)
    body, rest = x[..., : blocks * WIDTH].unflatten(-1, (blocks, WIDTH)), x[..., blocks * WIDTH :]
    peak = body.amax(-1)  # [..., blocks]
    block = peak.argmax(-1)
    inside = body.gather(-2, block[..., None, None].expand(*block.shape, 1, WIDTH))[..., 0, :]  # [..., W]
    best = block * WIDTH + inside.argmax(-1)
    if rest.shape[-1] == 0:
        return best
    top, last = peak.amax(-1), rest.amax(-1)
    later = (last > top) | (last.isnan() & ~top.isnan())
    return torch.where(later, blocks * WIDTH + rest.argmax(-1), best)

"""Trees planned from measured acceptance: the fixed shape that is expected to commit the most.

A node's value is the product of the acceptances along its path, and a tree commits 1 + the sum of its nodes' values
a step. Values never rise from parent to child, so taking the most valuable node within reach is optimal: it finds what
the dynamic programme of Sequoia (Chen et al. 2024, section 3.1) finds for a vector that is the same everywhere, and is
the greedy choice of Medusa (Cai et al. 2024, section 2.3.3) for one vector a depth. Cost: n * log n, n the nodes,
times the ranks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from toolkit.drafting.shapes import Fixed


def from_ranks(acceptance: Sequence[Sequence[float]], nodes: int) -> Fixed:
    """The best tree of `nodes` nodes, the root counted, or of all that can be accepted where these are fewer.

    acceptance[h][r]: how often the guess of rank r is right at depth h + 1, given that its parent is.
    Raises ValueError for values outside 0..1, fewer than two nodes, and when no guess is ever accepted.
    """
    return Fixed(tuple(path for path, _ in _best(acceptance, nodes)))


def optimal(
    acceptance: Sequence[float], nodes: int, cost: Callable[[int], float] | None = None, depth: int | None = None
) -> Fixed:
    """The best tree of at most `nodes` nodes, the root counted, for one rank-acceptance vector at every depth.

    cost: time of a step with n nodes, drafting included; the size with the most tokens per time is taken. Without it
    all `nodes` are used. One guess is always made: whether that beats none is for the caller to ask. Errors as in
    `from_ranks`, and ValueError for a cost that is not positive.
    """
    ranked = _best([acceptance] * (nodes if depth is None else depth), nodes)
    if cost is None:
        return Fixed(tuple(path for path, _ in ranked))
    best, rate, tokens = 1, 0.0, 1.0
    for size, (_, value) in enumerate(ranked, start=2):
        tokens += value
        if (time := cost(size)) <= 0:
            raise ValueError(f"cost({size}) must be a positive time; got {time}")
        if tokens / time > rate:
            best, rate = size - 1, tokens / time
    return Fixed(tuple(path for path, _ in ranked[:best]))


def expected(shape: Fixed, acceptance: Sequence[Sequence[float]]) -> float:
    """Tokens a step that `shape` is expected to commit, the bonus included; acceptance as in `from_ranks`."""
    total = 1.0
    for choice in shape.choices:
        value = 1.0
        for h, rank in enumerate(choice):
            value *= acceptance[h][rank] if h < len(acceptance) and rank < len(acceptance[h]) else 0.0
        total += value
    return total


def _best(acceptance: Sequence[Sequence[float]], nodes: int) -> list[tuple[tuple[int, ...], float]]:
    """Paths of ranks with their values, the most valuable first and every parent before its children."""
    if nodes < 2:
        raise ValueError(f"a planned tree needs at least 2 nodes, the root and one guess; got {nodes}")
    if bad := [a for row in acceptance for a in row if not 0 <= a <= 1]:
        raise ValueError(f"acceptance is made of probabilities in 0..1; got {bad[0]}")
    heap: list[tuple[float, tuple[int, ...]]] = []
    chosen: list[tuple[tuple[int, ...], float]] = []

    def reach(path: tuple[int, ...], value: float) -> None:
        for rank, a in enumerate(acceptance[len(path)] if len(path) < len(acceptance) else ()):
            if a > 0:
                heapq.heappush(heap, (-value * a, (*path, rank)))

    reach((), 1.0)
    while heap and len(chosen) < nodes - 1:
        value, path = heapq.heappop(heap)
        chosen.append((path, -value))
        reach(path, -value)
    if not chosen:
        raise ValueError("no guess is ever accepted by these measurements: use Nothing() instead of a planned tree")
    return chosen

"""A maximal flow from sets to their members, by augmenting paths."""

from __future__ import annotations

from collections.abc import Sequence

_DUST = 1e-16  # mass below this is rounding


def maximal_flow(supply: Sequence[tuple[frozenset[int], float]], demand: Sequence[float]) -> list[list[float]]:
    """How much of each set's mass goes to each token, a row a set: only to its members, no more than it has, no token
    more than it wants, and as much in all as can be (Edmonds and Karp 1972: shortest augmenting paths)."""
    flow = [[0.0] * len(demand) for _ in supply]
    have, want = [mass for _, mass in supply], list(demand)
    while path := _augmenting_path(supply, flow, have, want):
        back = [(s, path[i - 1]) for i, s in enumerate(path) if i % 2 == 0 and i > 0]  # (set, the token it gives up)
        amount = min([have[path[0]], want[path[-1]], *(flow[s][y] for s, y in back)])
        for i in range(0, len(path), 2):
            flow[path[i]][path[i + 1]] += amount
        for s, y in back:
            flow[s][y] -= amount
        have[path[0]] -= amount
        want[path[-1]] -= amount
    return flow


def _augmenting_path(
    supply: Sequence[tuple[frozenset[int], float]], flow: list[list[float]], have: list[float], want: list[float]
) -> list[int] | None:
    """set, token, set, token, ...: from a set with mass left to a token that wants some. Each token on the way is given
    up by the set after it, which turns to the next one."""
    came: dict[int, list[int]] = {s: [s] for s, mass in enumerate(have) if mass > _DUST}  # set -> the path to it
    queue, seen = list(came), set[int]()
    for s in queue:  # grows while it is read
        for y in sorted(supply[s][0] - seen):
            seen.add(y)
            path = [*came[s], y]
            if want[y] > _DUST:
                return path
            for other, row in enumerate(flow):
                if other not in came and row[y] > _DUST:
                    came[other] = [*path, other]
                    queue.append(other)
    return None

"""The rules as one would write them on a blackboard: one row, plain floats, loops and early returns.

The product's rules work on all rows at once and without a branch; here is what they must mean. `Row.coin` and `Row.race`
hand out the very noise the product's sampler would use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log

Law = list[float]


@dataclass(frozen=True)
class Row:
    token: list[int]
    parent: list[int]  # -1 for the root and for padding
    p: list[Law]  # after each node
    q: list[Law] | None  # the rows of q
    source: list[int]  # which row of q each node was drawn from, -1 where it is certain
    draw: str
    coin: Callable[[int, int], float]  # depth, lane -> u
    race: Callable[[int], Law]  # depth -> exponential variates

    def children(self, node: int) -> list[int]:
        return [i for i in range(1, len(self.token)) if self.parent[i] == node]

    def depth(self, node: int) -> int:
        return 0 if node == 0 else 1 + self.depth(self.parent[node])

    def drawn_from(self, node: int) -> Law:
        if self.q is None or self.source[node] < 0:
            return [float(x == self.token[node]) for x in range(len(self.p[0]))]
        law = list(self.q[self.source[node]])
        if self.draw == "distinct":
            for sibling in self.children(self.parent[node]):
                if sibling < node and self.source[sibling] == self.source[node]:
                    law[self.token[sibling]] = 0.0
        return [x / sum(law) for x in law]

    def emit(self, law: Law, depth: int) -> int:
        scores = [x / e for x, e in zip(law, self.race(depth), strict=True)]
        return scores.index(max(scores))


def leftover(p: Law, q: Law, weight: float = 1.0) -> tuple[Law, float]:
    """norm(max(weight p - q, 0)) and the mass it had; p itself when nothing is left."""
    rest = [max(weight * a - b, 0.0) for a, b in zip(p, q, strict=True)]
    return ([x / sum(rest) for x in rest], sum(rest)) if sum(rest) > 0 else (p, 0.0)


def survival(weight: float, rest: float) -> float:
    return rest / (rest + 1 - weight) if rest + 1 - weight > 0 else 1.0


def rejection(row: Row) -> tuple[int, int]:
    here, left = 0, row.p[0]
    while True:
        for rank, child in enumerate(row.children(here)):
            q, x = row.drawn_from(child), row.token[child]
            if row.coin(row.depth(child), rank) < min(1.0, left[x] / q[x]):
                here, left = child, row.p[child]
                break
            left, _ = leftover(left, q)
        else:
            return here, row.emit(left, row.depth(here) + 1)


def sample_and_match(row: Row) -> tuple[int, int]:
    here = 0
    while True:
        drawn = row.emit(row.p[here], row.depth(here) + 1)
        matching = [child for child in row.children(here) if row.token[child] == drawn]
        if not matching:
            return here, drawn
        here = matching[0]


def block(row: Row) -> tuple[int, int]:
    n = sum(parent >= 0 for parent in row.parent)
    w = [1.0]
    for i in range(1, n + 1):
        w.append(min(1.0, w[-1] * row.p[i - 1][row.token[i]] / row.drawn_from(i)[row.token[i]]))
    for i in range(n, 0, -1):
        rest = leftover(row.p[i], row.drawn_from(i + 1), w[i])[1] if i < n else 0.0
        keep = survival(w[i], rest) if i < n else w[i]
        if row.coin(i, i << 32) < keep:
            return i, row.emit(leftover(row.p[i], row.drawn_from(i + 1), w[i])[0] if i < n else row.p[i], i + 1)
    return 0, row.emit(leftover(row.p[0], row.drawn_from(1))[0] if n else row.p[0], 1)


def traversal(row: Row) -> tuple[int, int]:
    """Depth first, a subtree before its next sibling, children before their parent."""
    left = dict(enumerate(row.p))

    def visit(node: int, weight: float) -> int | None:
        for child in row.children(node):
            q, x = row.drawn_from(child), row.token[child]
            found = visit(child, min(1.0, weight * left[node][x] / q[x]))
            if found is not None:
                return found
            left[node], rest = leftover(left[node], q, weight)
            weight = survival(weight, rest)
        depth = row.depth(node)
        rank = sum(row.depth(i) == depth for i in range(1, node) if row.parent[i] >= 0)
        return node if node == 0 or row.coin(depth, (depth << 32) + rank) < weight else None

    tip = visit(0, 1.0)
    assert tip is not None
    return tip, row.emit(left[tip], row.depth(tip) + 1)


def typical(row: Row, epsilon: float, delta: float) -> tuple[int, int]:
    def bar(law: Law) -> float:
        return min(epsilon, delta * exp(sum(x * log(x) for x in law if x > 0)))

    return deepest(row, lambda node: row.p[row.parent[node]][row.token[node]] > bar(row.p[row.parent[node]]))


def lenient(row: Row, top: int) -> tuple[int, int]:
    def passes(node: int) -> bool:
        law = row.p[row.parent[node]]
        return law[row.token[node]] >= sorted(law, reverse=True)[top - 1] > 0

    return deepest(row, passes)


def deepest(row: Row, passes: Callable[[int], bool]) -> tuple[int, int]:
    """The deepest node whose whole path passes, of equals the likeliest path, of equals the first."""
    best = (0, 0.0, 0)
    for node in range(1, len(row.token)):
        path, at = [], node
        while at > 0:
            path.append(at)
            at = row.parent[at]
        if at == 0 and all(map(passes, path)):
            likely = sum(log(row.p[row.parent[i]][row.token[i]]) for i in path)
            best = max(best, (len(path), likely, -node))
    return -best[2], row.emit(row.p[-best[2]], best[0] + 1)

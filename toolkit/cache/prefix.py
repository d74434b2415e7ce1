"""Full pages of settled tokens, by the text they hold: a radix tree whose edges are pages.

A page is found when every page before it is found. Nothing enters that is not settled, so rejected guesses cannot. The
least recently used leaf that nobody else holds is given up first; a page in use never is, nor one before it.

Letters: T tokens a page.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

Text = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Node:
    """A page of text. `pages` has one page a pool; the junk page where a pool has dropped what it held."""

    tokens: Text  # [T]
    pages: list[int]
    above: Node | None
    below: dict[Text, Node] = field(default_factory=dict, repr=False)
    used: int = 0  # when it was last used: a count, not a time
    gone: bool = False  # taken out of the tree


@dataclass(slots=True)
class Prefixes:
    """The tree. It holds its pages like a request does; whoever calls keeps the counts."""

    size: int
    root: Node = field(default_factory=lambda: Node((), [], None), repr=False)
    _now: itertools.count[int] = field(default_factory=itertools.count, repr=False)

    def find(self, tokens: np.ndarray) -> list[Node]:
        """The nodes of the longest known beginning of `tokens` [n], whole pages of it."""
        at, path, now = self.root, [], next(self._now)
        for text in _pages(tokens, self.size):
            if (below := at.below.get(text)) is None:
                break
            below.used = now
            path.append(below)
            at = below
        return path

    def put(self, above: Node | None, tokens: Text, pages: list[int]) -> tuple[Node, bool]:
        """The node of the page `tokens` [T] after `above` (None: at the beginning), and whether it is new."""
        at = above or self.root
        node = at.below.get(tokens)
        new = node is None
        if node is None:
            node = at.below[tokens] = Node(tokens, pages, at)
        node.used = next(self._now)
        return node, new

    def leaves(self) -> list[Node]:
        """Nodes with nothing below, the least recently used first."""
        return sorted((n for n in self.nodes() if not n.below), key=lambda n: n.used)

    def nodes(self) -> Iterator[Node]:
        """All nodes but the root, those above first."""
        todo = deque(self.root.below.values())
        while todo:
            node = todo.popleft()
            yield node
            todo.extend(node.below.values())

    def forget(self, node: Node) -> None:
        """Take a leaf out."""
        if node.below or node.above is None:
            raise ValueError("only a leaf can be taken out of the prefix tree")
        del node.above.below[node.tokens]
        node.gone = True


def _pages(tokens: np.ndarray, size: int) -> Iterator[Text]:
    for i in range(len(tokens) // size):
        yield tuple(tokens[i * size : (i + 1) * size].tolist())

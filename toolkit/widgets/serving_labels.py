"""How requests and pages are called in the serving view: letters, colours, and the lines of cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain

from toolkit.trace import PrefixNode, Snapshot
from toolkit.trace.labels import short

Text = Callable[[tuple[int, ...]], str]  # the text of a page's tokens
Card = list[tuple[str, str]]

COLOURS = 8  # in the palette
NAMED = 6  # requests named in a card
IDS = 16  # token ids in a card
brief = lru_cache(maxsize=4096)(short)  # the same ids and texts are shown again and again


class Labels:
    """A letter and a colour for every request in sight, the same as long as it is in sight: A to Z in turn, A1 to Z1 where
    these are not enough, and the colour that the fewest have. A letter that falls free is the last to be given again, so
    that it does not jump to another request."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._colour: dict[str, int] = {}
        self._next = 0

    def keep(self, here: Iterable[str], gone: Iterable[str] = ()) -> None:
        """These are in sight now, and no others. The colours of those that are `gone` may be given again."""
        live = set(here := list(here))
        seen = dict.fromkeys([*gone, *here])
        self._number = {r: n for r, n in self._number.items() if r in seen}
        self._colour = {r: self._colour[r] for r in self._number}
        shown = Counter(dict.fromkeys(range(COLOURS), 0))
        shown.update(c for r, c in self._colour.items() if r in live)
        used, ring = set(self._number.values()), 26 * (len(seen) // 26 + 1)
        for request in seen:
            if request not in self._number:
                while self._next % ring in used:
                    self._next += 1
                self._number[request] = self._next % ring
                used.add(self._number[request])
                self._next = (self._next + 1) % ring
                self._colour[request] = min(shown, key=lambda c: (shown[c], c))
                shown[self._colour[request]] += request in live

    def __getitem__(self, request: str) -> str:
        turn, letter = divmod(self._number[request], 26)
        return chr(ord("A") + letter) + (str(turn) if turn else "")

    def colour(self, request: str) -> int:
        """Its place in the palette."""
        return self._colour[request]

    def name(self, request: str) -> str:
        """Letter and id."""
        return f"{self[request]} {brief(request, 24)}"


def requests_of(snapshot: Snapshot) -> Iterable[str]:
    """Everybody a snapshot speaks of."""
    return chain(snapshot.running, snapshot.prefilling, snapshot.waiting, chain.from_iterable(snapshot.pages))


def count(n: int, noun: str) -> str:
    """`1 page`, `2 pages`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def named(requests: Sequence[tuple[str, str]], labels: Labels) -> str:
    shown = [labels.name(r) + what for r, what in requests[:NAMED]]
    return ", ".join(shown) + (f", +{len(requests) - NAMED} more" if len(requests) > NAMED else "")


def text_lines(node: PrefixNode | None, text: Text) -> Card:
    """The lines of a card about a page of the prefix cache."""
    if node is None:
        return []
    return [
        ("prefix cache", brief(text(node.tokens), 120)),
        ("token ids", " ".join(map(str, node.tokens[:IDS])) + (" …" if len(node.tokens) > IDS else "")),
    ]

"""From token ids to text, piece by piece, never half a character.

Byte-level tokenizers split an emoji over several tokens, and some decoders add or drop a leading space depending on
what stands before. So text is always decoded together with the tokens before it, and a piece that ends in the
replacement character is held back until its rest arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Decode = Callable[[Sequence[int]], str]


@dataclass(slots=True)
class TextStream:
    """Grows by tokens, gives text. `text` is what is certain so far: a held-back piece is not in it."""

    decode: Decode = field(repr=False)
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    _shown: int = 0  # tokens whose text is out
    _base: int = 0  # where decoding begins: one shown piece earlier, so that spaces come out right

    def push(self, tokens: Sequence[int]) -> str:
        """Add tokens; return the text that became certain, which may be empty."""
        before = self.decode(self.tokens[self._base : self._shown])
        self.tokens.extend(tokens)
        after = self.decode(self.tokens[self._base :])
        if after.endswith("\ufffd") or len(after) <= len(before):
            if len(tokens) < 2:
                return ""
            del self.tokens[-len(tokens) :]  # only the end of a run is held back
            return "".join(self.push([token]) for token in tokens)
        self._base, self._shown = self._shown, len(self.tokens)
        self.text += after[len(before) :]
        return after[len(before) :]

    def rewind(self, count: int) -> None:
        """Go back to the first `count` tokens."""
        again, self.tokens, self.text, self._shown, self._base = self.tokens[:count], [], "", 0, 0
        for token in again:
            self.push([token])

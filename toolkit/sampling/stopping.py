"""When a request ends. Judged token by token inside an accepted run, so nothing after the end is ever committed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Literal

from toolkit.sampling.grammar import Grammar, Walk
from toolkit.sampling.text import Decode, TextStream

Reason = Literal["stop_token", "stop_string", "grammar", "length", "context"]


@dataclass(frozen=True, slots=True)
class Stopping:
    """What ends a request, whichever comes first.

    tokens    ids that end it; the id itself is the last committed token.
    strings   texts that end it. The token that completes one is the last committed token; `text` ends before the
              string. Needs a decoder.
    max_new_tokens  at most this many committed tokens after the prompt.

    Raises ValueError for counts below one and empty stop strings.
    """

    max_new_tokens: int = 128
    tokens: tuple[int, ...] = ()
    strings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.max_new_tokens, Real) or self.max_new_tokens < 1 or self.max_new_tokens % 1:
            raise ValueError(f"max_new_tokens must be a whole number of at least 1; got {self.max_new_tokens!r}")
        if isinstance(self.strings, str) or not all(isinstance(s, str) for s in self.strings):
            raise ValueError(f"stop strings must be several, as in strings=('.',); got {self.strings!r}")
        if not isinstance(self.tokens, Collection) or not all(isinstance(t, Integral) for t in self.tokens):
            raise ValueError(f"stop tokens must be several token ids, as in tokens=(2,); got {self.tokens!r}")
        if any(not s for s in self.strings):
            raise ValueError("a stop string must not be empty; got ''")


@dataclass(slots=True)
class Judge:
    """Watches one request's committed tokens. `limit` is how many new tokens the context window still allows."""

    stopping: Stopping
    limit: int
    decode: Decode | None = field(default=None, repr=False)
    grammar: Grammar | None = field(default=None, repr=False)
    reason: Reason | None = None
    count: int = 0
    _cut: int | None = None  # length of the text before the stop string
    _stream: TextStream | None = None
    _walk: Walk | None = None
    _text: list[int] = field(default_factory=list)  # new tokens, kept for a grammar alone
    _unread: list[int] = field(default_factory=list)  # committed, not yet decoded: nobody has asked for their text

    def __post_init__(self) -> None:
        if self.stopping.strings and self.decode is None:
            raise ValueError(f"stop strings {self.stopping.strings} need a tokenizer: give the engine `decode`")
        self._stream = TextStream(self.decode) if self.decode else None
        self._walk = self.grammar.walk() if self.grammar else None

    @property
    def room(self) -> int:
        """How many more tokens may be committed; 0 after the end."""
        return 0 if self.reason else min(self.stopping.max_new_tokens, self.limit) - self.count

    @property
    def text(self) -> str:
        """The text so far: without half a character at its end, and without a stop string and what follows it."""
        if self._stream is None:
            return ""
        self._stream.push(self._unread)
        self._unread = []
        return self._stream.text[: self._cut]

    def take(self, tokens: Sequence[int]) -> int:
        """Commit tokens one by one until the request ends; return how many were taken."""
        for taken, token in enumerate(tokens, 1):
            self.count += 1
            self._unread.append(token)
            self.reason = self._end(token)
            if self.reason:
                return taken
        return len(tokens)

    def _end(self, token: int) -> Reason | None:
        if token in self.stopping.tokens:
            return "stop_token"
        if self._stream and self.stopping.strings:
            piece = self._stream.push(self._unread)
            self._unread = []
            since = max(0, len(self._stream.text) - len(piece) - max(map(len, self.stopping.strings)) + 1)
            found = [at for s in self.stopping.strings if (at := self._stream.text.find(s, since)) >= 0]
            if piece and found:
                self._cut = min(found)
                return "stop_string"
        if self._walk:
            self._text.append(token)
            if self._walk.go(self._text) and self._walk.ended:
                return "grammar"
        if self.count >= self.stopping.max_new_tokens:
            return "length"
        return "context" if self.count >= self.limit else None

    def rewind(self, count: int) -> None:
        """Go back to the first `count` tokens: the request has not ended then."""
        if self._stream:
            self._stream.push(self._unread)
            self._stream.rewind(count)
        del self._text[count:]
        self.count, self.reason, self._cut, self._unread = count, None, None, []

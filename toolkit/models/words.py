"""The bytes of single tokens, from which the text of any run of them can be put together without the tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Protocol

LOST = "\ufffd"


class Spelling(Protocol):
    """A Hugging Face tokenizer, as far as it is asked."""

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str] | str: ...


def words(tokenizer: Spelling, decode: Callable[[Sequence[int]], str], ids: Iterable[int]) -> dict[int, bytes]:
    """Bytes by id. A token that `decode` says nothing for, as for special ones, has none.

    A token is decoded behind another, since decoders drop the space that a text begins with. Half a character cannot be decoded; its bytes
    are read from the token's own spelling, in the alphabet of byte-level tokenizers or as <0xNN>.
    """
    wanted = sorted(set(ids))
    found: dict[int, bytes] = {}
    anchor = next((i for i in wanted if decode([i]) and LOST not in decode([i])), None)
    for i in wanted:
        text = decode([i])
        if anchor is not None and text and LOST not in text:
            text = decode([anchor, i]).removeprefix(decode([anchor]))
        found[i] = text.encode() if LOST not in text else _spelled(tokenizer.convert_ids_to_tokens([i])[0], text)
    return found


def _spelled(token: str, otherwise: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    table = _alphabet()
    return bytes(table[c] for c in token) if all(c in table for c in token) else otherwise.encode()


@cache
def _alphabet() -> dict[str, int]:
    """Byte-level tokenizers spell bytes that are no printable Latin-1 character as the characters from 256 on, in order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + n): b for n, b in enumerate(rest)}

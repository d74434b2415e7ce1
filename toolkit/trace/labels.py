"""How a token is shown: on one line, with nothing invisible and nothing that acts on its surroundings."""

from __future__ import annotations

import unicodedata

_NAMED = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}


def visible(text: str) -> str:
    """Spaces, newlines and control or direction characters made visible; ∅ for no text.

    What stays is safe to show anywhere as text; where it becomes HTML it must still be escaped.
    """
    return "".join(_NAMED.get(c) or (c if _harmless(c) else f"\\u{ord(c):04x}") for c in text) or "∅"


def short(text: str, width: int = 10) -> str:
    """`visible`, cut to `width` characters."""
    shown = visible(text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def _harmless(c: str) -> bool:
    # Cf holds the direction marks that turn a whole line around; a zero-width joiner inside an emoji is kept.
    return c == "\u200d" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")

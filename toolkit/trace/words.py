"""The tokens' own bytes in a trace, so that it can be read where no tokenizer is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from toolkit.trace.trace import Trace

LOST = "\ufffd".encode()


def tokens_in(trace: Trace) -> set[int]:
    """Every token that the trace speaks of: prompts, guesses, bonuses and recorded next tokens."""
    found = {t for prompt in trace.prompts for t in prompt}
    for step in trace.steps:
        for row in step.rows:
            if row is not None:
                found.update(row.token, (row.bonus,), row.emitted, (t for top in row.top for t, _ in top))
    return found


def decoder(words: Mapping[int, bytes]) -> Callable[[Sequence[int]], str]:
    """Token ids to text. What is no whole character, or no known token, is the replacement character; where no token is
    known at all, each id stands for itself."""
    if not words:
        return lambda ids: "".join(f"[{i}]" for i in ids)
    return lambda ids: b"".join(words.get(i, LOST) for i in ids).decode("utf-8", errors="replace")

"""What the laboratory says in words, and its last state as plain HTML for pages without a kernel. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from toolkit.trace import StepRecord, metrics
from toolkit.widgets.static import ribbon_html


def status_line(state: str, steps: Sequence[StepRecord], reasons: Iterable[str | None]) -> str:
    """One line of HTML about a run: its state, its figures, and why requests ended."""
    parts = [f"<b>{escape(state)}</b>"]
    if steps:
        tokens = sum(len(r.emitted) for r in metrics.row_steps(steps))
        seconds = sum(s.total_ms for s in steps) / 1e3
        ends = dict.fromkeys(r for r in reasons if r)
        parts += [
            f"{tokens} token{'s' * (tokens != 1)} in {len(steps)} step{'s' * (len(steps) != 1)}",
            f"acceptance length {metrics.acceptance_length(steps):.2f} (with bonus)",
            f"{tokens / seconds:.1f} tokens/s",
            *([f"ended by {', '.join(ends)}"] if ends else []),
        ]
    return f'<span class="specdec-status">{" · ".join(parts)}</span>'


def error_line(error: BaseException) -> str:
    """What went wrong, in red."""
    return f'<span class="specdec-error" style="color:#d55e00">{escape(str(error) or type(error).__name__)}</span>'


def static_page(status: str, summary: str, svg: str, pieces: Iterable[tuple[str, str, int]]) -> str:
    """Status, tree and text below each other. `status` and `svg` are HTML already, the rest is text."""
    return (
        f'<div style="font-family:sans-serif;font-size:12px"><p>{status}</p><p>{escape(summary)}</p>'
        f"{svg}{ribbon_html(pieces)}</div>"
    )

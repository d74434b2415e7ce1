"""A run in the terminal: the text so far, the step's token tree, and a line of figures."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.text import Text
from rich.tree import Tree

from toolkit.trace import RowRecord, StepRecord, metrics
from toolkit.trace.labels import visible
from toolkit.trace.records import ACCEPTED, REJECTED

Decode = Callable[[Sequence[int]], str]
STYLES = {"accepted": "blue underline", "bonus": "green", "correction": "dark_orange bold"}
MARKS = {ACCEPTED: ("✓", "blue"), REJECTED: ("✗", "dark_orange"), 0: ("·", "dim")}


def step_tree(row: RowRecord, decode: Decode) -> Tree:
    """The token tree of one step: ✓ kept, ✗ rejected, · never reached, and the token the target added."""
    nodes = [Tree(Text(visible(decode([row.token[0]])), style="bold"))]
    for i in range(1, len(row.token)):
        mark, style = MARKS[row.outcome[i]]
        label = Text(f"{mark} {visible(decode([row.token[i]]))}", style=style)
        if row.confidence:
            label.append(f"  {row.confidence[i]:.2f}", style="dim")
        nodes.append(nodes[row.parent[i]].add(label))
    kind = "correction" if row.corrected else "bonus"
    nodes[row.tip].add(Text(f"+ {visible(decode([row.bonus]))}  ({kind})", style=STYLES[kind]))
    return nodes[0]


def ribbon(steps: Sequence[StepRecord], decode: Decode, row: int = 0) -> Text:
    """The text so far, each piece styled by how it came."""
    out = Text()
    tokens: list[int] = []
    shown = ""
    for record in (s.rows[row] for s in steps):
        for token, origin in zip(record.emitted, record.origins, strict=True) if record else ():
            tokens.append(token)
            text = decode(tokens)
            if text.endswith("\ufffd"):
                continue
            out.append(text[len(shown) :], style=STYLES[origin])
            shown = text
    return out


def figures(steps: Sequence[StepRecord]) -> Text:
    """Acceptance length, speed and the phases of a step."""
    tokens = sum(len(r.emitted) for r in metrics.row_steps(steps))
    seconds = sum(s.total_ms for s in steps) / 1e3
    phases = "  ".join(f"{name} {ms:.1f}" for name, ms in metrics.phase_ms(steps).items())
    counts = metrics.origins(steps)
    return Text(
        f"{tokens} tokens in {len(steps)} steps · acceptance length {metrics.acceptance_length(steps):.2f} (with bonus) · "
        f"{tokens / seconds:.1f} tokens/s\n"
        f"accepted {counts['accepted']} · bonus {counts['bonus']} · corrections {counts['correction']} · "
        f"median ms: {phases}",
        style="dim",
    )


def page(steps: Sequence[StepRecord], decode: Decode, title: str | Text, row: int = 0) -> RenderableType:
    """All of it, for a row's newest step. The tree is left out when it has more than 24 nodes."""
    if not steps:
        return Text("reading the prompt ...", style="dim")
    parts: list[RenderableType] = [Panel(ribbon(steps, decode, row), title=title, title_align="left")]
    newest = next(((s.step, s.rows[row]) for s in reversed(steps) if s.rows[row]), None)
    if newest and (record := newest[1]) and len(record.token) <= 24:
        parts.append(Panel(step_tree(record, decode), title=f"step {newest[0]}", title_align="left"))
    return Group(*parts, figures(steps))


def plain(shown: RenderableType, width: int = 100) -> str:
    """As text without colours, for `print` and for logs."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()

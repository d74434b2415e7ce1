"""How a server fares as its batch grows, and why: throughput, milliseconds a step, and what the cost curve foretells.

Drafting trades one token's work for several nodes in a pass. That is nearly free while a pass waits for memory, and not once
arithmetic is the limit, which a larger batch reaches by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from toolkit.bench.interleave import Arm, Comparison, interleave
from toolkit.engine import Engine, Server
from toolkit.protocols import Drafter
from toolkit.sampling import Stopping
from toolkit.trace import StepRecord, metrics
from toolkit.trace.measures import cost_curve


@dataclass(frozen=True, slots=True)
class Point:
    """A drafter at one size of the batch. Medians over the rounds, of steps in which all rows ran and no prompt was read."""

    rows: int
    drafter: str
    rate: float  # tokens a second
    speedup: float  # against no drafter in the same round
    length: float  # acceptance length: tokens per row and target pass, the bonus counted
    nodes: float  # of a row's tree, the root counted
    step_ms: float
    target_ms: float
    foretold: float  # speedup by the cost curve: acceptance length * cost(rows) / (cost(rows * nodes) + draft)


def serve_arm(engine: Engine, prompts: Sequence[Sequence[int]], drafter: Drafter, rows: int, tokens: int) -> Arm:
    """All prompts through one server, `tokens` new ones each, no stop token."""
    size = 16
    pages = sum(-(-(len(p) + tokens) // size) + 2 for p in sorted(prompts, key=len)[-rows:])

    def run() -> tuple[list[int], list[StepRecord]]:
        mine = Engine(engine.target, drafter, engine.rule, engine.sampling, Stopping(tokens), engine.decode)
        server = Server(mine, pages=pages, page=size, rows=rows)
        tickets = [server.add(p) for p in prompts]
        server.finish()
        return [t for ticket in tickets for t in ticket.output], server.trace.steps

    return run


def by_rows(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    drafters: Mapping[str, Drafter],
    rows: Sequence[int] = (1, 2, 4, 8, 16, 32),
    *,
    tokens: int = 48,
    repeats: int = 3,
    report: Callable[[str], None] | None = None,
) -> list[Point]:
    """Serve the first `r` prompts at once, for each `r` of rows and each drafter, in turns. The first drafter is the one
    that others are compared with: give `Nothing()`. Raises ValueError for more rows than prompts."""
    if max(rows) > len(prompts):
        raise ValueError(f"{max(rows)} rows need as many prompts; there are {len(prompts)}")
    runs: dict[int, Comparison] = {}
    for r in rows:
        arms = {name: serve_arm(engine, prompts[:r], d, r, tokens) for name, d in drafters.items()}
        say = None if report is None else (lambda what, r=r: report(f"{r} rows, {what}"))
        runs[r] = interleave(arms, repeats=repeats, report=say)
        if runs[r].interrupted:
            break
    full = {r: {n: full_steps(c, n, r) for n in c.arms} for r, c in runs.items() if c.rounds}
    steps = [s for arms in full.values() for found in arms.values() for s in found]
    if not steps:
        return []
    cost = cost_curve(steps)
    return [point(c, name, r, full[r][name], cost) for r, c in runs.items() for name in c.arms if full[r].get(name)]


def full_steps(result: Comparison, arm: str, rows: int) -> list[StepRecord]:
    """Steps in which every row ran and no prompt was read."""
    return [
        s
        for sample in result.samples(arm)
        for s in sample.steps
        if len(s.rows) == rows and all(s.rows) and s.load is not None and not s.load.prefilled
    ]


def point(result: Comparison, arm: str, rows: int, steps: Sequence[StepRecord], cost: Callable[[int], float]) -> Point:
    length = metrics.acceptance_length(steps)
    nodes = sum(s.nodes for s in steps) / len(steps)
    draft = median(s.ms.get("draft", 0.0) for s in steps)
    foretold = length * cost(rows) / (sum(cost(rows * s.nodes) for s in steps) / len(steps) + draft)
    return Point(
        rows,
        arm,
        result.rate(arm),
        result.ratio(arm),
        length,
        nodes,
        median(s.total_ms for s in steps),
        median(s.ms["target"] for s in steps),
        foretold,
    )

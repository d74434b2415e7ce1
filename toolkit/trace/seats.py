"""A server's run as one in which every request keeps a row of its own, for readers that follow a row."""

from __future__ import annotations

from dataclasses import replace

from toolkit.trace.trace import Trace


def seated(trace: Trace) -> Trace:
    """The same steps with a row for each request, in the order they came; its entry is None where it had no part in a step.
    Traces whose rows never change are returned as they are."""
    requests = list(dict.fromkeys(name for step in trace.steps for name in step.ids))
    if not requests:
        return trace
    steps = []
    for step in trace.steps:
        entries = dict(zip(step.ids, step.rows, strict=True))
        steps.append(replace(step, rows=tuple(map(entries.get, requests)), ids=tuple(requests)))
    prompts = trace.prompts if len(trace.prompts) == len(requests) else ((),) * len(requests)
    return Trace(prompts, trace.about, steps, trace.words)

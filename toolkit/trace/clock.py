"""Marks the ends of a step's phases. On a GPU the marks are events: they cost no sync and are read after the crossing."""

from __future__ import annotations

import time
from itertools import pairwise

import torch


class Clock:
    """`mark(name)` ends a phase, which may come more than once; `ms()` gives each phase's duration in milliseconds."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.names: list[str] = []
        self.marks: list[float | torch.cuda.Event] = []
        self.mark("start")

    def mark(self, name: str) -> None:
        self.names.append(name)
        if not self.cuda:
            self.marks.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)

    def ms(self) -> dict[str, float]:
        spans: dict[str, float] = {}
        for name, (a, b) in zip(self.names[1:], pairwise(self.marks), strict=True):
            if isinstance(a, float) and isinstance(b, float):
                spans[name] = spans.get(name, 0.0) + 1e3 * (b - a)
            elif isinstance(a, torch.cuda.Event) and isinstance(b, torch.cuda.Event):
                b.synchronize()
                spans[name] = spans.get(name, 0.0) + a.elapsed_time(b)
        return spans

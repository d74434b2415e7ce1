"""A trace in the text format that Prometheus scrapes.

Each name has one meaning, and its labels part it without overlap, so that sums over labels are right: accepted + bonus +
correction tokens are the committed ones, accepted + discarded guesses the drafted ones, new + again tokens of prefills those
that were read. The rate of acceptance at a depth is accepted / reached.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import Any

from toolkit.trace.records import Load, StepRecord
from toolkit.trace.requests import Request, Totals, requests, totals
from toolkit.trace.trace import Trace

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, inf)


def text(trace: Trace) -> str:
    """Counts since the session began, and how full the server was after the last step. Raises ImportError, with the remedy,
    without prometheus_client."""
    library, core = _library("prometheus_client"), _library("prometheus_client.core")
    registry = library.CollectorRegistry()  # of its own: what else this process measures is not ours to tell
    registry.register(_Collector(list(_families(list(trace.steps), core))))
    return library.generate_latest(registry).decode()


@dataclass(frozen=True, slots=True, eq=False)
class _Collector:
    """What a registry asks for."""

    families: list[Any]

    def collect(self) -> list[Any]:
        return self.families


def _families(steps: Sequence[StepRecord], core: Any) -> Iterator[Any]:
    each = requests(steps)
    yield from _counters(steps, totals(each), core.CounterMetricFamily)
    yield from _histograms(each, core.HistogramMetricFamily)
    if load := next((s.load for s in reversed(steps) if s.load), None):
        yield from _gauges(load, core.GaugeMetricFamily)


def _counters(steps: Sequence[StepRecord], sums: Totals, family: Any) -> Iterator[Any]:
    t = sums.tokens
    came = {"accepted": t.accepted, "bonus": t.bonus, "correction": t.correction}
    yield _labelled(family, "tokens", "Committed tokens by how they came", "kind", came)
    fates = {"accepted": t.accepted, "discarded": t.discarded}
    yield _labelled(family, "guesses", "Guesses sent to the target by what became of them", "outcome", fates)
    yield family("specdec_verified_nodes", "Real nodes in target passes", t.verified)
    yield family("specdec_steps", "Steps made", len(steps))
    yield family("specdec_row_steps", "Target passes, each row counted", t.row_steps)
    reached = {str(d.depth): d.reached for d in sums.acceptance}
    yield _labelled(family, "depth_reached", "Row steps that drafted below an accepted path", "depth", reached)
    accepted = {str(d.depth): d.accepted for d in sums.acceptance}
    yield _labelled(family, "depth_accepted", "Row steps that accepted a guess of this depth", "depth", accepted)
    prefill = {"new": sums.prefilled - sums.reread, "again": sums.reread, "found": sums.found}
    yield _labelled(family, "prefill_tokens", "Tokens of prefills, read or found in the prefix cache", "kind", prefill)
    yield family("specdec_preemptions", "Times a request lost its pages", sums.preemptions)
    yield _labelled(family, "ended_requests", "Requests that ended, by why", "reason", sums.reasons)
    seconds: dict[str, float] = {}
    for name, ms in (phase for s in steps for phase in s.ms.items()):
        seconds[name] = seconds.get(name, 0.0) + ms / 1000
    yield _labelled(family, "phase_seconds", "Time spent in each phase of the steps", "phase", seconds)


def _histograms(each: Sequence[Request], family: Any) -> Iterator[Any]:
    times: dict[str, tuple[str, Iterable[float]]] = {
        "queue": ("From added to admitted", (r.queue for r in each)),
        "time_to_first_token": ("From added to the end of the step with the first token", (r.ttft for r in each)),
        # A mean that still changes would move between buckets, and buckets may only grow.
        "inter_token_latency": (
            "Between the tokens of an ended request, on average",
            (r.itl for r in each if r.reason),
        ),
    }
    for name, (about, values) in times.items():
        known = [v for v in values if not isnan(v)]
        buckets = [("+Inf" if le == inf else str(le), sum(v <= le for v in known)) for le in SECONDS]
        yield family(f"specdec_{name}_seconds", about, buckets, sum(known))


def _gauges(load: Load, family: Any) -> Iterator[Any]:
    states = {"waiting": load.waiting, "prefilling": load.prefilling, "running": load.running}
    yield _labelled(family, "requests", "Requests on the server", "state", states)
    yield family("specdec_rows", "Rows a batch may have", load.rows)
    pages = {"held": load.held, "cached": load.cached, "free": load.pages - load.held - load.cached}
    yield _labelled(family, "pages", "Pages of the target's pool", "state", pages)


def _labelled(family: Any, name: str, about: str, label: str, values: Mapping[str, float]) -> Any:
    made = family(f"specdec_{name}", about, labels=[label])
    for value, number in values.items():
        made.add_metric([value], number)
    return made


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            'Prometheus text needs the package prometheus_client: run `pip install "specdec-toolkit[trace]"`'
        ) from error

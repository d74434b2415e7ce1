"""A trace as lines of JSON: a header, then one StepRecord a line.

Records are objects with the names of their fields; fields at their default are left out. A number that is none (NaN) is
null. What is infinite, which no rule of ours records, stands as Python's Infinity and is no JSON elsewhere. The bytes of
evidence are base64.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from math import isnan, nan
from typing import Any

from toolkit.trace.evidence import Evidence
from toolkit.trace.records import Event, Load, RowRecord, StepRecord
from toolkit.trace.trace import Trace

FORMAT, VERSION = "specdec-trace", 1
BROKEN = (ValueError, TypeError, KeyError, AttributeError, EOFError, OSError, zlib.error)
"""What reading a damaged file may raise."""


def write(trace: Trace) -> Iterator[bytes]:
    """The lines, each with its end."""
    steps = list(trace.steps)  # a session may still append
    yield _line(header(trace, len(steps)))
    for step in steps:
        yield _line(_plain(step))


def read(lines: Iterable[bytes], name: str) -> Trace:
    """The trace in these lines; `name` is what errors call it. Raises ValueError for what `write` did not write whole."""
    rest = iter(lines)
    try:
        first = next(rest, b"")
    except BROKEN as error:
        raise ValueError(_no_trace(name)) from error
    trace, count = headed(first, name)
    try:
        for line in rest:
            trace.steps.append(_step(json.loads(line)))
    except BROKEN as error:
        raise ValueError(cut(name, len(trace.steps), count)) from error
    if len(trace.steps) != count:
        raise ValueError(cut(name, len(trace.steps), count))
    return trace


def header(trace: Trace, steps: int) -> dict[str, Any]:
    """Everything but the steps, and their number."""
    told = {"format": FORMAT, "version": VERSION, "steps": steps, "prompts": trace.prompts, "about": trace.about}
    if trace.words:  # a character a byte
        told["words"] = {str(i): word.decode("latin-1") for i, word in sorted(trace.words.items())}
    return told


def headed(line: bytes, name: str) -> tuple[Trace, int]:
    """A trace without its steps, and how many they are. Raises ValueError for what is no header of this version."""
    try:
        told = json.loads(line)
        if told["format"] != FORMAT:
            raise KeyError(FORMAT)
        version = told["version"]
    except BROKEN as error:
        raise ValueError(_no_trace(name)) from error
    if version != VERSION:
        raise ValueError(
            f"{name} has version {version} of the trace format, and this toolkit reads version {VERSION}: read it with the "
            f"toolkit that saved it"
        )
    try:
        words = {int(i): word.encode("latin-1") for i, word in told.get("words", {}).items()}
        return Trace(tuple(tuple(p) for p in told["prompts"]), dict(told["about"]), words=words), int(told["steps"])
    except BROKEN as error:
        raise ValueError(_no_trace(name)) from error


def cut(name: str, found: int, count: int) -> str:
    """The sentence for a file that does not hold all it should."""
    return (
        f"{name} is cut off or damaged after {found} of its {count} steps: copy it again, or save the trace once more"
    )


def _no_trace(name: str) -> str:
    return f"{name} does not begin like a trace: choose a file that toolkit.trace.files.save has made"


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return None if isnan(value) else value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if is_dataclass(value):
        told = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: _plain(v) for f, v in told if v is not f.default}  # not "!=": -0.0 is no 0.0
    return value


def _step(told: dict[str, Any]) -> StepRecord:
    return StepRecord(
        **told
        | {
            "rows": tuple(None if r is None else _row(r) for r in told["rows"]),
            "ms": {name: _number(ms) for name, ms in told["ms"].items()},
            "at": _number(told.get("at", 0.0)),
            "ids": tuple(told.get("ids", ())),
            "load": Load(**told["load"]) if "load" in told else None,
            "events": tuple(Event(**e | {"at": _number(e["at"])}) for e in told.get("events", ())),
        }
    )


def _row(told: dict[str, Any]) -> RowRecord:
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in told.items()}
    for name in _FLOATS & given.keys():
        given[name] = tuple(map(_number, given[name]))
    if "top" in given:
        given["top"] = tuple(tuple((token, _number(p)) for token, p in node) for node in given["top"])
    if "evidence" in given:
        given["evidence"] = _evidence(given["evidence"])
    return RowRecord(**given)


def _evidence(told: dict[str, Any]) -> Evidence:
    packed: dict[str, Any] = {name: b64decode(told[name], validate=True) for name in _BYTES & told.keys()}
    return Evidence(**told | packed | {"source": tuple(told["source"])})


_FLOATS = {f.name for f in fields(RowRecord) if f.type == "tuple[float, ...]"}
_BYTES = {f.name for f in fields(Evidence) if f.type == "bytes"}


def _number(told: float | None) -> float:
    return nan if told is None else told

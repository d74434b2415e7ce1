"""A trace as a table, for pandas, polars, DuckDB: one line for each row of each step, nodes in nested lists.

What belongs to a whole step is told once: `ms`, `load` and `events` stand on the line of its first row, so that sums over
lines are right, and are null on the others. `row` is null where a step had no rows, and `position` and all after it where
the row's request had ended. The header is in the file's metadata.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from itertools import chain
from pathlib import Path
from typing import Any

from toolkit.trace.evidence import Evidence
from toolkit.trace.lines import BROKEN, FORMAT, cut, headed, header
from toolkit.trace.records import Event, Load, RowRecord, StepRecord
from toolkit.trace.trace import Trace

STEP = ("step", "drafter", "rule", "nodes", "at")  # told on every line
BATCH = 4096  # lines that are written or read at once


def write(trace: Trace, path: Path) -> None:
    """Raises ImportError, with the remedy, without pyarrow."""
    arrow, parquet = _library("pyarrow"), _library("pyarrow.parquet")
    steps = list(trace.steps)  # a session may still append
    schema = _schema(arrow).with_metadata({FORMAT: json.dumps(header(trace, len(steps)))})
    with parquet.ParquetWriter(path, schema, compression="zstd") as file:
        some: list[dict[str, Any]] = []
        for line in chain.from_iterable(map(_lines, steps)):
            some.append(line)
            if len(some) == BATCH:
                file.write_table(arrow.Table.from_pylist(some, schema))
                some = []
        file.write_table(arrow.Table.from_pylist(some, schema))


def read(path: Path) -> Trace:
    """Raises ValueError for what `write` did not write whole, and ImportError, with the remedy, without pyarrow."""
    parquet = _library("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(path)
    except BROKEN as error:  # pyarrow's own errors are ValueErrors and OSErrors
        raise ValueError(
            f"{path} is no Parquet file, or cut off: copy it again, or save the trace once more"
        ) from error
    with file:
        trace, count = headed((file.schema_arrow.metadata or {}).get(FORMAT.encode(), b""), str(path))
        try:
            lines = (line for batch in file.iter_batches(BATCH) for line in batch.to_pylist())
            trace.steps.extend(_steps(lines))
        except BROKEN as error:
            raise ValueError(cut(str(path), len(trace.steps), count)) from error
    if len(trace.steps) != count:
        raise ValueError(cut(str(path), len(trace.steps), count))
    return trace


def _lines(step: StepRecord) -> Iterator[dict[str, Any]]:
    whole = {name: getattr(step, name) for name in STEP}
    once = {
        "ms": list(step.ms.items()),
        "load": asdict(step.load) if step.load else None,
        "events": [asdict(e) for e in step.events],
    }
    if not step.rows:
        yield whole | once
    for b, (request, row) in enumerate(zip(step.ids or [None] * len(step.rows), step.rows, strict=True)):
        told = {f.name: getattr(row, f.name) for f in fields(RowRecord)} if row else {}
        if row:
            told["top"] = [[{"token": t, "prob": p} for t, p in node] for node in row.top]
            told["evidence"] = asdict(row.evidence) if row.evidence else None
        yield whole | {"row": b, "request": request} | told | (once if b == 0 else {})


def _steps(lines: Iterator[dict[str, Any]]) -> Iterator[StepRecord]:
    together: list[dict[str, Any]] = []
    for line in lines:
        if together and not line["row"]:  # null or 0: another step begins
            yield _step(together)
            together = []
        together.append(line)
    if together:
        yield _step(together)


def _step(lines: list[dict[str, Any]]) -> StepRecord:
    first = lines[0]
    rows = [line for line in lines if line["row"] is not None]
    return StepRecord(
        **{name: first[name] for name in STEP},
        rows=tuple(_row(line) for line in rows),
        ms=dict(first["ms"]),
        ids=tuple(line["request"] for line in rows if line["request"] is not None),
        load=Load(**first["load"]) if first["load"] else None,
        events=tuple(Event(**e) for e in first["events"]),
    )


def _row(line: dict[str, Any]) -> RowRecord | None:
    if line["position"] is None:
        return None
    told = ((f.name, line[f.name]) for f in fields(RowRecord) if f.name in line)  # fields may be younger than the file
    given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in told}
    given["top"] = tuple(tuple((n["token"], n["prob"]) for n in node) for node in given["top"])
    if kept := given.get("evidence"):
        given["evidence"] = Evidence(**kept | {"source": tuple(kept["source"])})
    return RowRecord(**given)


def _schema(arrow: Any) -> Any:
    """Records name their types, so that a field added to one is a column here."""
    integer, number, text = arrow.int64(), arrow.float64(), arrow.string()
    kinds = {
        "int": integer,
        "float": number,
        "str": text,
        "str | None": text,
        "bytes": arrow.binary(),
        "EventKind": text,
        "tuple[int, ...]": arrow.list_(integer),
        "tuple[float, ...]": arrow.list_(number),
        "tuple[tuple[tuple[int, float], ...], ...]": arrow.list_(
            arrow.list_(arrow.struct([("token", integer), ("prob", number)]))
        ),
    }

    kinds["Evidence | None"] = arrow.struct([(f.name, kinds[str(f.type)]) for f in fields(Evidence)])

    def columns(record: Any, *names: str) -> list[tuple[str, Any]]:
        return [(f.name, kinds[str(f.type)]) for f in fields(record) if not names or f.name in names]

    return arrow.schema(
        [
            *columns(StepRecord, *STEP),
            ("row", integer),
            ("request", text),
            *columns(RowRecord),
            ("ms", arrow.map_(text, number)),
            ("load", arrow.struct(columns(Load))),
            ("events", arrow.list_(arrow.struct(columns(Event)))),
        ]
    )


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            'Parquet files need the package pyarrow: run `pip install "specdec-toolkit[trace]"`'
        ) from error

"""Save a trace and load it again, by the ending of the file's name: `.jsonl`, `.jsonl.gz` or `.parquet`.

What is loaded equals what was saved, without any model. Watchers are not saved.
"""

from __future__ import annotations

import gzip
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from toolkit.trace import columns, lines
from toolkit.trace.trace import Trace

ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")


def save(trace: Trace, path: str | Path) -> None:
    """Write the trace; a file of that name is replaced at the very end, so that it is always whole.

    Raises ValueError for another ending or a missing folder, and ImportError, with the remedy, for Parquet without pyarrow.
    """
    path = Path(path)
    savable(path)
    ending = _ending(path)
    with _whole(path) as part:
        if ending == ".parquet":
            columns.write(trace, part)
        elif ending == ".jsonl":
            with part.open("wb") as file:
                file.writelines(lines.write(trace))
        else:  # neither a name nor a time inside: the same trace makes the same bytes
            with part.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                packed.writelines(lines.write(trace))


def savable(path: str | Path) -> None:
    """Raise ValueError for a path that `save` would refuse."""
    path = Path(path)
    _ending(path)
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} to save {path.name} in: make it first")


def load(path: str | Path) -> Trace:
    """Read what `save` wrote.

    Raises ValueError, in a sentence, for a missing or damaged file, another ending and another version of the format, and
    ImportError, with the remedy, for Parquet without pyarrow.
    """
    path = Path(path)
    ending = _ending(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path} to load a trace from: save one there, or give the path of another")
    if ending == ".parquet":
        return columns.read(path)
    with gzip.open(path) if ending == ".jsonl.gz" else path.open("rb") as file:
        return lines.read(file, str(path))


def _ending(path: Path) -> str:
    for ending in ENDINGS:
        if path.name.endswith(ending):
            return ending
    raise ValueError(
        f"{path.name} ends like no kind of trace file: end it in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
    )


@contextmanager
def _whole(path: Path) -> Generator[Path]:
    """A name beside `path` to write to; it takes the place of `path` unless writing fails."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)

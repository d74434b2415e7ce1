"""`generate --compare`: plain decoding, Hugging Face and drafters in one interleaved run."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from toolkit import __version__
from toolkit.bench import Arm, Comparison, interleave
from toolkit.drafting import NGram, Nothing
from toolkit.models.baseline import Divergence, diverge, hf_generate
from toolkit.protocols import Drafter
from toolkit.terminal.progress import doing
from toolkit.trace import metrics

if TYPE_CHECKING:
    from toolkit.commands.generate import Job

PLAIN, LOOKUP, OURS = "HF generate", "HF prompt lookup", "ours, no drafter"


def compare(job: Job, *, repeats: int, file: str | None) -> int:
    """Measure, print a table, write JSON if asked. Exit status 1 when greedy float32 outputs differ."""
    console = Console(stderr=True)
    with doing(console) as tell:
        result = interleave(arms_of(job), repeats=repeats, report=tell)
    if not result.rounds or PLAIN not in result.rounds[-1]:
        result.rounds = result.rounds[:-1]
    parted = divergences(job, result)
    out = Console()
    out.print(table(job, result))
    for arm in parted:
        out.print(f"{arm}: {verdict(arm, parted)}", highlight=False)
    if file:
        Path(file).write_text(json.dumps(report(job, result, parted), indent=1))
    exact = job.target.dtype in (torch.float32, torch.float64) and job.sampling.heat == 0
    return int(exact and any(d and not d.near_tie for d in parted.values()))


def arms_of(job: Job) -> dict[str, Arm]:
    """What is measured: the baseline first."""

    def hf(lookup: int | None) -> Arm:
        def run() -> tuple[list[int], list[Any]]:
            tokens = hf_generate(
                job.loaded.model,
                job.prompt,
                max_new_tokens=job.stopping.max_new_tokens,
                stop_tokens=job.stopping.tokens,
                sampling=job.sampling,
                lookup=lookup,
            )
            return tokens, []

        return run

    def ours(drafter: Drafter) -> Arm:
        def run() -> tuple[list[int], list[Any]]:
            session = job.engine(drafter).generate([job.prompt])
            return session.outputs[0], session.trace.steps

        return run

    arms: dict[str, Arm] = {PLAIN: hf(None), OURS: ours(Nothing()), LOOKUP: hf(10), "ours, NGram": ours(NGram())}
    if not isinstance(job.drafter, Nothing) and job.drafter != NGram():
        arms[f"ours, {type(job.drafter).__name__}"] = ours(job.drafter)
    return arms


def divergences(job: Job, result: Comparison) -> dict[str, Divergence | None]:
    """Where each arm's greedy output parts from the baseline's. Sampled outputs are not expected to be alike."""
    if job.sampling.heat > 0 or not result.rounds:
        return {}
    want = result.samples(PLAIN)[0].tokens
    return {
        arm: diverge(job.loaded.model, job.prompt, want, result.samples(arm)[0].tokens)
        for arm in result.arms
        if arm != PLAIN and result.samples(arm)
    }


def verdict(arm: str, parted: dict[str, Divergence | None]) -> str:
    if arm not in parted:
        return ""
    d = parted[arm]
    if d is None:
        return f"the same tokens as {PLAIN}"
    if d.gap is None:
        return f"one of it and {PLAIN} ends at token {d.at}"
    return f"parts from {PLAIN} at token {d.at}, logit gap {d.gap:+.3f}{' (near-tie)' if d.near_tie else ''}"


def table(job: Job, result: Comparison) -> Table:
    """One line an arm."""
    out = Table(
        title=f"{job.loaded.name}, {job.loaded.dtype}, {torch.get_num_threads()} threads, medians of {len(result.rounds)} "
        f"interleaved rounds{' (interrupted)' if result.interrupted else ''}",
        box=SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        caption="AL: acceptance length, tokens per target pass with the bonus. Phases in ms a step. Close other programs "
        "while measuring.",
    )
    out.add_column(no_wrap=True)
    for name in ("tok/s", "x HF", "range", "AL", "draft", "target", "verify", "commit"):
        out.add_column(name, justify="right")
    for arm in result.arms:
        ratios, steps = result.ratios(arm), [s for r in result.samples(arm) for s in r.steps]
        ms = metrics.phase_ms(steps)
        shown: Callable[[str], str] = lambda phase, ms=ms: f"{ms[phase]:.1f}" if ms else ""  # noqa: E731
        out.add_row(
            arm,
            f"{result.rate(arm):.1f}",
            f"{result.ratio(arm):.2f}",
            f"{min(ratios):.2f}..{max(ratios):.2f}",
            f"{metrics.acceptance_length(steps):.2f}" if steps else "",
            *(shown(p) for p in ("draft", "target", "verify", "commit")),
        )
    return out


def report(job: Job, result: Comparison, parted: dict[str, Divergence | None]) -> dict[str, Any]:
    """The same for machines, with what is needed to repeat it."""
    arms = {}
    for arm in result.arms:
        steps = [s for r in result.samples(arm) for s in r.steps]
        arms[arm] = {
            "tokens_per_second": [s.rate for s in result.samples(arm)],
            "ratio_to_baseline": result.ratios(arm),
            "new_tokens": len(result.samples(arm)[0].tokens),
            "acceptance_length_with_bonus": metrics.acceptance_length(steps) if steps else None,
            "median_ms": metrics.phase_ms(steps),
            "output": verdict(arm, parted),
        }
    return {"header": header(job), "baseline": result.baseline, "interrupted": result.interrupted, "arms": arms}


def header(job: Job) -> dict[str, Any]:
    cuda = torch.cuda.is_available() and job.target.device.type == "cuda"
    return {
        "toolkit": __version__,
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "python": platform.python_version(),
        "machine": torch.cuda.get_device_name() if cuda else f"{platform.machine()}, {platform.processor()}",
        "threads": torch.get_num_threads(),
        "model": job.loaded.name,
        "dtype": str(job.target.dtype),
        "prompt_tokens": len(job.prompt),
        "engine": repr(job.engine()),
        "commit": _commit(),
    }


def _commit() -> str | None:
    here = Path(__file__).parent
    done = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None

"""`serve`: many prompts through one server, compared with transformers, or measured as the batch grows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from toolkit.bench import Arm, Comparison, interleave
from toolkit.bench.serving import Point, by_rows, serve_arm
from toolkit.engine import Engine, Server
from toolkit.engine.parts import DRAFTERS, drafter_named
from toolkit.models import zoo
from toolkit.models.baseline import hf_batches, hf_continuous
from toolkit.models.hf import HFModel
from toolkit.protocols import Drafter
from toolkit.sampling import Stopping
from toolkit.terminal.progress import doing, download_bar
from toolkit.trace import metrics, perfetto, prometheus, save
from toolkit.trace.files import savable
from toolkit.trace.requests import requests, totals
from toolkit.trace.words import tokens_in


def serve(options: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    names = check(options)
    texts = read_prompts(Path(options.file), options.limit)
    if options.threads:
        torch.set_num_threads(options.threads)
    with download_bar("SmolLM2-135M-Instruct") as progress:
        loaded = zoo.load(options.target, dtype=options.dtype, device=options.device, progress=progress)
    target = HFModel(loaded.model)
    encode = zoo.plain if options.no_chat else zoo.chat
    prompts = [encode(loaded.tokenizer, text) for text in texts]
    drafters = {name: drafter_named(name, target) for name in names}
    engine = Engine(target, stopping=Stopping(options.max_new_tokens), decode=loaded.decode)
    if options.sweep:
        return sweep(options, engine, prompts, drafters)
    if options.compare:
        return compare(options, engine, loaded, prompts, drafters)
    return once(options, engine, loaded, prompts, next(iter(drafters.values())))


def check(options: argparse.Namespace) -> list[str]:
    """Refuse, before any model is loaded, whatever can be refused then. Returns the drafters' names."""
    names = [name.strip() for name in options.drafter.split(",")]
    known = [name for name in DRAFTERS if name != "draft-model"]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"unknown drafter {unknown[0]!r}: use some of {', '.join(known)}, with commas between")
    for name in ("limit", "rows", "max_new_tokens", "repeats", "threads", "pages"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1; got {value}")
    if options.compare and options.sweep:
        raise ValueError("--compare and --sweep are two measurements: give one")
    if (options.trace or options.metrics) and (options.compare or options.sweep):
        raise ValueError("--trace and --metrics are of a single run: leave out --compare and --sweep")
    if options.trace and Path(options.trace).suffix != ".json":
        savable(options.trace)
    if options.json and not (options.compare or options.sweep):
        raise ValueError("--json writes the figures of --compare or --sweep: give one of them")
    zoo.as_dtype(options.dtype)
    zoo.as_device(options.device)
    return names


def read_prompts(file: Path, limit: int | None) -> list[str]:
    """One prompt a line: JSON with "prompt", or "turns" of which the first counts; any other line is a prompt itself. Raises
    ValueError for a file without prompts."""
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}): give a file with one prompt a line") from error
    if not lines:
        raise ValueError(f"{file} holds no prompt: give a file with one prompt a line")
    step = max(1, len(lines) // limit) if limit else 1  # spread over the file, which may be sorted by task
    return [_prompt(line) for line in lines[::step][:limit]]


def _prompt(line: str) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        return line
    if isinstance(value, dict):
        found = value.get("prompt") or next(iter(value.get("turns") or []), None)
        if not isinstance(found, str):
            raise ValueError(f'a line of JSON needs "prompt" or "turns"; got {sorted(value)}')
        return found
    return line


def once(
    options: argparse.Namespace, engine: Engine, loaded: zoo.Loaded, prompts: Sequence[Sequence[int]], drafter: Drafter
) -> int:
    """Serve all prompts, and tell how it went."""
    engine.drafter = drafter
    engine.stopping = Stopping(options.max_new_tokens, loaded.stop_tokens)
    server = Server(engine, pages=options.pages or 1024, rows=options.rows)
    for prompt in prompts:
        server.add(prompt)
    console = Console(stderr=True)
    with doing(console) as tell:
        for record in server.run():
            load = record.load
            if load and record.step % 8 == 0:
                tell(f"waiting {load.waiting}, reading {load.prefilling}, running {load.running}")
    console.print(request_table(server))
    if options.trace:
        path = Path(options.trace)
        if path.suffix == ".json":
            path.write_text(perfetto.text(server.trace))
        else:
            server.trace.words = loaded.words(tokens_in(server.trace))
            save(server.trace, path)
        console.print(f"trace written to {path}")
    if options.metrics:
        print(prometheus.text(server.trace), end="")
    return 0


def request_table(server: Server) -> Table:
    found = requests(server.trace.steps)
    whole = totals(found)
    table = Table(
        title=f"{len(found)} requests, {whole.throughput:.1f} tokens/s",
        box=SIMPLE_HEAD,
        caption="AL: acceptance length with the bonus. Times in seconds; ITL is the mean time between tokens.",
    )
    for name in ("request", "new", "AL", "found", "preempted", "queue", "TTFT", "ITL", "end"):
        table.add_column(name, justify="left" if name in ("request", "end") else "right")
    for r in found:
        table.add_row(
            r.id,
            str(r.tokens.committed),
            f"{r.tokens.acceptance_length:.2f}",
            str(r.found),
            str(r.preemptions),
            f"{r.queue:.2f}",
            f"{r.ttft:.2f}",
            f"{r.itl:.3f}",
            r.reason or "",
        )
    return table


def compare(
    options: argparse.Namespace,
    engine: Engine,
    loaded: zoo.Loaded,
    prompts: Sequence[Sequence[int]],
    drafters: dict[str, Drafter],
) -> int:
    """transformers in batches, its continuous batching, and our server, all prompts each, in turns."""
    rows, tokens, model = options.rows, options.max_new_tokens, loaded.model

    def theirs(run: Any) -> Arm:
        return lambda: ([t for out in run(model, prompts, rows=rows, tokens=tokens) for t in out], [])

    arms = {"HF generate, batches": theirs(hf_batches), "HF generate_batch": theirs(hf_continuous)}
    arms |= {f"ours, {name}": serve_arm(engine, prompts, d, rows, tokens) for name, d in drafters.items()}
    console = Console(stderr=True)
    with doing(console) as tell:
        result = interleave(arms, repeats=options.repeats, report=tell)
    Console().print(
        comparison_table(result, f"{len(prompts)} requests, {rows} rows, {tokens} tokens each, {loaded.dtype}")
    )
    same = {a: agreement(result, a, tokens) for a in result.arms[1:]}
    for arm, (equal, count) in same.items():
        print(f"{arm}: {equal} of {count} texts are the first arm's")
    if options.json:
        report = {
            a: {"tokens_per_second": [s.rate for s in result.samples(a)], "ratio": result.ratios(a)}
            for a in result.arms
        }
        Path(options.json).write_text(json.dumps({"options": vars(options), "arms": report, "same": same}, indent=1))
    return 0


def agreement(result: Comparison, arm: str, tokens: int) -> tuple[int, int]:
    """How many of the requests got the baseline's text. In half precision, near-ties part them."""
    ours, theirs = (result.samples(a)[-1].tokens for a in (arm, result.baseline))
    pairs = [(ours[i : i + tokens], theirs[i : i + tokens]) for i in range(0, len(theirs), tokens)]
    return sum(a == b for a, b in pairs), len(pairs)


def comparison_table(result: Comparison, title: str) -> Table:
    out = Table(
        title=f"{title}, {torch.get_num_threads()} threads, medians of {len(result.rounds)} interleaved rounds",
        box=SIMPLE_HEAD,
    )
    out.add_column(no_wrap=True)
    for name in ("tok/s", "x HF", "range", "AL", "prefill ms", "ms a step"):
        out.add_column(name, justify="right")
    for arm in result.arms:
        ratios, steps = result.ratios(arm), [s for r in result.samples(arm) for s in r.steps]
        decoding = [s for s in steps if any(s.rows)]
        spent = sum(s.ms.get("prefill", 0.0) for s in steps) / len(result.rounds)
        a_step = sum(s.total_ms - s.ms.get("prefill", 0.0) for s in decoding) / max(1, len(decoding))
        out.add_row(
            arm,
            f"{result.rate(arm):.1f}",
            f"{result.ratio(arm):.2f}",
            f"{min(ratios):.2f}..{max(ratios):.2f}",
            f"{metrics.acceptance_length(steps):.2f}" if steps else "",
            f"{spent:.0f}" if steps else "",
            f"{a_step:.1f}" if steps else "",
        )
    return out


def sweep(
    options: argparse.Namespace, engine: Engine, prompts: Sequence[Sequence[int]], drafters: dict[str, Drafter]
) -> int:
    """Does drafting still pay as the batch grows."""
    drafters = {"none": drafter_named("none", engine.target), **drafters}
    sizes = [r for r in (1, 2, 4, 8, 16, 32, 64, 128) if r <= min(len(prompts), options.rows)]
    console = Console(stderr=True)
    with doing(console) as tell:
        points = by_rows(
            engine,
            prompts,
            drafters,
            sizes,
            tokens=options.max_new_tokens,
            repeats=options.repeats,
            report=tell,
        )
    Console().print(sweep_table(points))
    if options.json:
        Path(options.json).write_text(
            json.dumps({"options": vars(options), "points": [asdict(p) for p in points]}, indent=1)
        )
    if options.figure:
        from toolkit.widgets.batch import batch_figure

        batch_figure(points).write_html(options.figure, include_plotlyjs=True)
        console.print(f"figure written to {options.figure}")
    return 0


def sweep_table(points: Sequence[Point]) -> Table:
    out = Table(
        box=SIMPLE_HEAD,
        caption="speedup: against no drafter in the same round. foretold: acceptance length times the cost of a pass without "
        "guesses, by the cost of one with them and of drafting.",
    )
    for name in ("rows", "drafter", "tok/s", "speedup", "foretold", "AL", "nodes", "ms a step", "target ms"):
        out.add_column(name, justify="left" if name == "drafter" else "right")
    for p in points:
        out.add_row(
            str(p.rows),
            p.drafter,
            f"{p.rate:.1f}",
            f"{p.speedup:.2f}",
            f"{p.foretold:.2f}",
            f"{p.length:.2f}",
            f"{p.nodes:.1f}",
            f"{p.step_ms:.1f}",
            f"{p.target_ms:.1f}",
        )
    return out

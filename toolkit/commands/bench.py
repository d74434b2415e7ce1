"""`bench`: acceptance and speed by task, of the shipped heads or of your own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from toolkit import shipped
from toolkit.bench.arms import engine_arm, hf_arm
from toolkit.bench.suite import Answer, questions, run, scores
from toolkit.commands.cards import about, card
from toolkit.engine import Engine
from toolkit.engine.parts import drafter_named
from toolkit.models import zoo
from toolkit.models.hf import HFModel
from toolkit.protocols import Drafter
from toolkit.sampling import Stopping
from toolkit.terminal.progress import doing, download_bar

BASE = "HF generate"
PLAIN = ("none", "ngram", "suffix", "lookahead", "recycling", "early-exit")


def bench(options: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    for name in ("per_task", "max_new_tokens", "threads", "nodes"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1; got {value}")
    named(options)
    asked = questions(Path(options.file), options.per_task)
    if options.threads:
        torch.set_num_threads(options.threads)
    with download_bar("SmolLM2-135M-Instruct") as progress:
        loaded = zoo.load(options.target, dtype=options.dtype, progress=progress)
    target = HFModel(loaded.model)
    arms = {BASE: hf_arm(loaded, options.max_new_tokens)} if options.speed else {}
    stopping = Stopping(options.max_new_tokens, loaded.stop_tokens)
    for name, drafter in drafters(options, target).items():
        arms[name] = engine_arm(Engine(target, drafter, stopping=stopping, decode=loaded.decode), loaded)
    console = Console(stderr=True)
    found = []
    with doing(console) as tell:
        depends = f"{options.file}, {options.target}, {loaded.dtype}, {options.max_new_tokens} new tokens, {options.nodes} nodes"
        for answer in run(asked, arms, Path(options.log) if options.log else None, about=depends):
            found.append(answer)
            tell(f"{len(found)} of {len(asked) * len(arms)}: {answer.task}, {answer.arm}")
    wanted = {q.number for q in asked}
    found = [a for a in found if a.number in wanted and a.arm in arms]
    Console().print(table(options, found, list(arms), loaded.dtype))
    if options.cards:
        told = about(len(wanted), options.max_new_tokens, loaded.dtype)
        for kind, place in dict.fromkeys((kind, place) for kind, shape, place in named(options) if shape):
            folder = Path(place) if place else shipped.folder(kind)
            (folder / "card.md").write_text(card(kind, folder, found, BASE, told), encoding="utf-8")
            console.print(f"card written to {folder / 'card.md'}")
    return 0


def named(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """What is to be measured: kind, shape ("" for none), folder ("" for the package's). Raises ValueError for unknown names."""
    shapes = [part.strip() for part in options.shapes.split(",")]
    if odd := [shape for shape in shapes if shape not in ("chain", "tree")]:
        raise ValueError(f"unknown shape {odd[0]!r}: use chain, tree or chain,tree")
    found = []
    for name in (part.strip() for part in options.drafters.split(",")):
        kind, _, place = name.partition("=")
        if kind in (shipped.KINDS if place else shipped.NAMES):
            found += [(kind, shape, place) for shape in shapes]
        elif kind in PLAIN and not place:
            found.append((kind, "", ""))
        else:
            known, kinds = ", ".join((*shipped.NAMES, *PLAIN)), ", ".join(shipped.KINDS)
            raise ValueError(f"unknown drafter {name!r}: use some of {known}, or KIND=FOLDER with a kind of {kinds}")
    return found


def drafters(options: argparse.Namespace, target: HFModel) -> dict[str, Drafter]:
    """What is measured, by name."""
    found: dict[str, Drafter] = {}
    for kind, shape, place in named(options):
        if not shape:
            found[kind] = drafter_named(kind, target)
            continue
        given = None if shape == "chain" else shipped.tree(kind, options.nodes)
        found[f"{kind}, {shape}"] = shipped.drafter(kind, target, given, where=Path(place) if place else None)
    return found


def table(options: argparse.Namespace, found: Sequence[Answer], arms: Sequence[str], dtype: str) -> Table:
    """Acceptance lengths by task; with --speed, speeds below."""
    made = scores(found, BASE)
    tasks = list(dict.fromkeys(a.task for a in found))
    out = Table(
        title=f"{len({a.number for a in found})} questions, {dtype}, temperature 0, {options.max_new_tokens} new tokens",
        box=SIMPLE_HEAD,
        caption="AL: acceptance length with the bonus, tokens a target pass. x: tokens a second relative to HF generate.",
    )
    out.add_column("")
    for task in (*tasks, "mean"):
        out.add_column(task.replace("_", " "), justify="right")
    for arm in arms:
        score = made[arm]
        if score.acceptance_length:
            cells = [f"{score.acceptance_length.get(t, float('nan')):.2f}" for t in tasks]
            out.add_row(f"{arm}, AL", *cells, f"{score.mean_acceptance_length:.2f}")
    if options.speed:
        for arm in arms:
            score = made[arm]
            out.add_row(
                f"{arm}, x", *(f"{score.speed.get(t, float('nan')):.2f}" for t in tasks), f"{score.mean_speed:.2f}"
            )
    return out

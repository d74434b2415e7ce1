"""`generate`: one prompt, seen live, as plain text, or compared."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.live import Live as Screen

from toolkit import shipped
from toolkit.drafting import Adaptive
from toolkit.engine import Engine, Session
from toolkit.engine.parts import DRAFTERS, SHAPES, drafter_named, shape_named
from toolkit.models import zoo
from toolkit.models.baseline import hf_options
from toolkit.models.hf import HFModel
from toolkit.protocols import Drafter
from toolkit.sampling import Sampling, Stopping
from toolkit.terminal.progress import download_bar
from toolkit.terminal.view import figures, page
from toolkit.trace import StepRecord, save
from toolkit.trace.files import savable
from toolkit.trace.words import tokens_in

USES = {  # which options mean something to which drafter and shape
    "length": {"ngram", "chain"},
    "branches": {"ngram"},
    "width": {"dynamic"},
    "depth": {"dynamic", "best-first"},
    "budget": {"dynamic", "best-first"},
    "exit_layer": {"early-exit"},
    "draft": {"draft-model"},
    "shape": {"early-exit", "draft-model", *shipped.NAMES},
}


@dataclass(frozen=True, slots=True)
class Job:
    """Everything a run needs, checked."""

    loaded: zoo.Loaded
    target: HFModel
    drafter: Drafter
    prompt: list[int]
    sampling: Sampling
    stopping: Stopping

    def engine(self, drafter: Drafter | None = None) -> Engine:
        return Engine(
            self.target,
            drafter or self.drafter,
            sampling=self.sampling,
            stopping=self.stopping,
            decode=self.loaded.decode,
        )


def generate(options: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    sampling, stopping = check(options)
    job = prepare(options, sampling, stopping)
    if options.compare:
        from toolkit.commands.compare import compare

        return compare(job, repeats=options.repeats, file=options.json)
    session = job.engine().start([job.prompt])
    try:
        if options.plain or not sys.stdout.isatty():
            return stream(job, session, figures_after=not options.plain)
        return watch(job, session, f"{job.loaded.name} · {type(job.drafter).__name__}")
    finally:
        if options.trace and session.trace.steps:  # what an interrupt left is worth looking at, too
            session.trace.words = job.loaded.words(tokens_in(session.trace))
            save(session.trace, options.trace)


def check(options: argparse.Namespace) -> tuple[Sampling, Stopping]:
    """Refuse, before any model is loaded, whatever can be refused then."""
    if options.prompt == "-":
        options.prompt = sys.stdin.read().strip("\n")
    if not options.prompt.strip():
        raise ValueError("the prompt is empty: give some text, or - to read it from standard input")
    if options.drafter not in DRAFTERS:
        raise ValueError(f"unknown drafter {options.drafter!r}: use one of {', '.join(DRAFTERS)}")
    if options.shape not in (None, *SHAPES):
        raise ValueError(f"unknown shape {options.shape!r}: use one of {', '.join(SHAPES)}")
    shaped = options.drafter in USES["shape"]
    active = {options.drafter, (options.shape or "chain") if shaped else ""}
    for name, users in USES.items():
        value = getattr(options, name)
        if value is None:
            continue
        if not users & active:
            raise ValueError(
                f"--{name.replace('_', '-')} has no effect with --drafter {options.drafter}"
                f"{f' --shape {options.shape}' if options.shape else ''}: it is for {' and '.join(sorted(users))}"
            )
        if isinstance(value, int) and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1; got {value}")
    if options.adaptive and options.drafter == "none":
        raise ValueError("--adaptive has no effect with --drafter none: name the drafter that may stop")
    if options.drafter == "draft-model" and options.draft is None:
        raise ValueError("--drafter draft-model needs --draft MODEL, a smaller model with the target's vocabulary")
    for name in ("repeats", "threads"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1; got {value}")
    if options.trace and options.compare:
        raise ValueError("--trace is of a single run: leave out --compare")
    if options.trace:
        savable(options.trace)
    if options.json and not options.compare:
        raise ValueError("--json writes the figures of --compare: give both")
    zoo.as_dtype(options.dtype)
    zoo.as_device(options.device)
    names = ("temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "min_new_tokens")
    names += ("repetition_penalty", "presence_penalty", "frequency_penalty")
    sampling = Sampling(**{name: getattr(options, name) for name in names})
    if options.compare:
        hf_options(sampling)
    return sampling, Stopping(options.max_new_tokens, (), tuple(options.stop))


def prepare(options: argparse.Namespace, sampling: Sampling, stopping: Stopping) -> Job:
    """Load the models and put the parts together."""
    if options.threads:
        torch.set_num_threads(options.threads)
    with download_bar("SmolLM2-135M-Instruct") as progress:
        loaded = zoo.load(options.target, dtype=options.dtype, device=options.device, progress=progress)
    target = HFModel(loaded.model)
    draft = (
        HFModel(zoo.load(options.draft, dtype=options.dtype, device=options.device).model) if options.draft else None
    )
    sizes = {k: v for k in ("length", "width", "depth", "budget") if (v := getattr(options, k)) is not None}
    lookup = {k: v for k in ("length", "branches") if (v := getattr(options, k)) is not None}
    head = options.drafter in shipped.NAMES  # which knows best how long its chain is to be
    drafter = drafter_named(
        options.drafter,
        target,
        shape=shape_named(options.shape or "chain", **sizes) if options.shape or sizes or not head else None,
        exit_layer=options.exit_layer,
        draft=draft,
        **lookup,
    )
    if options.adaptive:
        drafter = Adaptive(drafter)
    encode = zoo.plain if options.no_chat else zoo.chat
    ends = Stopping(stopping.max_new_tokens, loaded.stop_tokens, stopping.strings)
    return Job(loaded, target, drafter, encode(loaded.tokenizer, options.prompt), sampling, ends)


def stream(job: Job, session: Session, *, figures_after: bool) -> int:
    """The text as it comes, on stdout; the figures, if wanted, on stderr."""
    shown = ""
    try:
        for _ in job.engine().run(session):
            text = session.texts[0]
            print(text[len(shown) :], end="", flush=True)
            shown = text
    finally:
        print(flush=True)
        if figures_after and session.trace.steps:
            print(figures(session.trace.steps).plain, file=sys.stderr)
    return 0


def watch(job: Job, session: Session, title: str) -> int:
    """A live page in the terminal."""
    engine, decode = job.engine(), job.loaded.decode
    with Screen(console=Console(), auto_refresh=False, vertical_overflow="ellipsis") as screen:
        steps = session.trace.steps

        def draw(records: Sequence[StepRecord]) -> None:
            screen.update(page(steps, decode, title), refresh=True)

        draw(())
        with session.trace.watching(draw, every=0.1):
            for _ in engine.run(session):
                pass
    return 0

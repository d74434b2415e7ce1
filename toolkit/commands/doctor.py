"""`doctor`: what is wrong with a checkpoint of a draft head, and a repaired one on request."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from toolkit.doctor import Exam, asked, diagnose, page, repair, text
from toolkit.drafting import Nothing
from toolkit.engine import Engine
from toolkit.heads.dialects import named, read
from toolkit.models import zoo
from toolkit.models.hf import HFModel
from toolkit.sampling import Stopping
from toolkit.terminal.progress import doing, download_bar
from toolkit.training import texts_of
from toolkit.training.texts import Text


def doctor(options: argparse.Namespace) -> int:
    """Run the command; returns the exit status: 0 for a healthy head, 1 for findings."""
    if options.tokens < 16:
        raise ValueError(f"--tokens must be at least 16; got {options.tokens}")
    zoo.as_dtype(options.dtype)
    zoo.as_device(options.device)
    if options.dialect:
        named(options.dialect)
    if options.repair and Path(options.repair).exists() and any(Path(options.repair).iterdir()):
        raise ValueError(f"--repair {options.repair} is not empty: name a new folder")
    checkpoint = read(options.head)
    with download_bar("SmolLM2-135M-Instruct") as progress:
        loaded = zoo.load(options.target, dtype=options.dtype, device=options.device, progress=progress)
    target = HFModel(loaded.model)
    console = Console(stderr=True)
    with doing(console, "reading") as tell:
        exam, others = _exams(options, loaded, target)
        found = diagnose(checkpoint, target, exam, others=others, report=lambda what: tell(f"trying {what}"))
    print(text(found), end="")
    if options.html:
        Path(options.html).write_text(page(found), encoding="utf-8")
        console.print(f"report written to {options.html}")
    if options.repair:
        for note in repair(found, options.repair, target, exam, dialect=options.dialect):
            console.print(note)
        console.print(f"repaired checkpoint written to {options.repair}")
    return int(not found.healthy)


def _exams(options: argparse.Namespace, loaded: zoo.Loaded, target: HFModel) -> tuple[Exam, dict[str, Exam]]:
    """The exam, and those on the same questions put otherwise."""
    if options.texts:
        texts, left = [], options.tokens
        for found in texts_of(Path(options.texts), loaded.tokenizer):
            if left > 0 and (cut := found.cut(target.limit)):
                texts.append(cut)
                left -= cut.taught
        return Exam.of(target, texts), {}
    engine = Engine(target, Nothing(), stopping=Stopping(options.tokens, loaded.stop_tokens), decode=loaded.decode)
    able = loaded.tokenizer.chat_template is not None

    def of(chat: bool) -> list[Text]:
        return asked(engine, loaded.tokenizer, chat=chat, tokens=-(-options.tokens // 6))

    put = able and not options.no_chat
    exam = Exam.of(target, of(put))
    remedy = (
        "put the questions bare, without the chat template" if put else "put the questions through the chat template"
    )
    return exam, {remedy: Exam.of(target, of(not put))} if able else {}

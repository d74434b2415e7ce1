"""The search for the reading under which a head guesses best, one fault after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from toolkit.doctor.case import Case, Guess
from toolkit.doctor.exam import Exam, Grade, better_by, grade
from toolkit.doctor.mends import mends
from toolkit.doctor.readings import readings
from toolkit.doctor.traps import TRAPS
from toolkit.heads.dialects import Checkpoint, Loaded, read
from toolkit.models.hf import HFModel

GAIN, ERRORS, FAULTS = 0.02, 4.0, 5
"""A reading counts as better when a guess costs at least so many nats less, and so many standard errors; and so many faults are
looked for, one after another."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault. `before` is None where the checkpoint could not be read at all, `after` where nothing was changed."""

    trap: int
    wrong: str
    remedy: str
    before: Grade | None = None
    after: Grade | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """What was tried for one trap where no fault was found: the best of the other readings, against the one that stands.

    loss  nats a guess that the best of them costs more; None where nothing could be tried, and `why` says why
    """

    trap: int
    tried: int = 0
    loss: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a head, and the head as it should be read."""

    where: str
    target: str
    tokens: int
    dialect: str
    findings: tuple[Finding, ...]
    looked: tuple[Looked, ...]
    before: Grade | None  # as the files say
    after: Grade
    loaded: Loaded = field(repr=False)
    case: Case = field(repr=False)

    @property
    def healthy(self) -> bool:
        return not self.findings


def diagnose(
    source: str | Path | Checkpoint,
    target: HFModel,
    exam: Exam,
    *,
    others: Mapping[str, Exam] | None = None,
    report: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Grade a checkpoint under every reading, and keep what helps.

    others  exams on the same questions put otherwise, by what to do about it ("use the chat template")
    report  is told what is tried

    Raises ValueError for a checkpoint that can be read in no way, with the reason why it can't be read as it is.
    """
    case = Case(source if isinstance(source, Checkpoint) else read(source))
    findings: list[Finding] = []
    loaded, now, why = _tried(case, target, exam)
    before = now
    looked: dict[int, Looked] = {}
    for _ in range(FAULTS):
        looked = {}
        best = _best(case, loaded, now, target, exam, looked, report)
        if best is None:
            break
        guess, grown, graded = best
        findings.append(Finding(guess.trap, guess.wrong, guess.remedy, now, graded))
        case, loaded, now = guess.case, grown, graded
    if loaded is None or now is None:
        raise ValueError(f"{why} (and no other way of reading it was found)")
    findings += _large(loaded.head, exam, case)
    findings += _config(case.checkpoint)
    findings += _named(case.checkpoint, loaded)
    for remedy, other in (others or {}).items():
        findings += _put_otherwise(now, grade(loaded.head, other), remedy)
    findings += _strange(now, exam)
    found = {f.trap for f in findings}
    clean = tuple(
        looked.get(t.number, Looked(t.number, why=_reason(t.number, others))) for t in TRAPS if t.number not in found
    )
    return Diagnosis(
        case.checkpoint.where,
        target.name,
        exam.tokens,
        loaded.dialect,
        tuple(findings),
        clean,
        before,
        now,
        loaded,
        case,
    )


def _tried(case: Case, target: HFModel, exam: Exam) -> tuple[Loaded | None, Grade | None, str]:
    """The head under this reading and its grade, or why it has none."""
    try:
        loaded = case.open(target)
    except ValueError as error:
        return None, None, str(error)
    return loaded, grade(loaded.head, exam), ""


def _best(
    case: Case,
    loaded: Loaded | None,
    now: Grade | None,
    target: HFModel,
    exam: Exam,
    looked: dict[int, Looked],
    report: Callable[[str], None] | None,
) -> tuple[Guess, Loaded, Grade] | None:
    """The reading that helps most, if one helps; what was tried in vain goes to `looked`."""
    best: tuple[float, Guess, Loaded, Grade] | None = None
    for guess in _guesses(case, loaded, target):
        if report:
            report(guess.remedy)
        other, graded, _ = _tried(guess.case, target, exam)
        if other is None or graded is None:
            continue
        gain, errors = (float("inf"), float("inf")) if now is None else better_by(now, graded)
        score = -graded.cross_entropy
        if gain > GAIN and errors > ERRORS and (best is None or score > best[0]):
            best = score, guess, other, graded
        old = looked.get(guess.trap, Looked(guess.trap))
        loss = -gain if old.loss is None else min(old.loss, -gain)
        looked[guess.trap] = replace(old, tried=old.tried + 1, loss=loss)
    return None if best is None else best[1:]


def _guesses(case: Case, loaded: Loaded | None, target: HFModel) -> Iterator[Guess]:
    yield from mends(case, loaded, target)
    if loaded is not None:
        yield from readings(case, loaded, target)


def _named(c: Checkpoint, loaded: Loaded) -> Iterator[Finding]:
    """Trap 18, where the loader knew the prefix."""
    if prefix := loaded.conventions.prefix:
        yield Finding(18, f"its tensors' names begin with {prefix!r}", f"take {prefix!r} off the names")


def _config(c: Checkpoint) -> Iterator[Finding]:
    """Trap 17: a config that counts other layers than there are tensors of."""
    said = c.option("transformer_layer_config.num_hidden_layers", "num_hidden_layers")
    numbers = {part for n in c.tensors if "layers." in n for part in n.split("layers.")[1].split(".")[:1]}
    found = max(len({n for n in numbers if n.isdigit()}), int(any("midlayer." in n for n in c.tensors)))
    if isinstance(said, int) and found and said != found:
        yield Finding(
            17, f"its config says {said} layers, and there are tensors of {found}", f"num_hidden_layers={found}"
        )


@torch.inference_mode()
def _large(head: nn.Module, exam: Exam, case: Case) -> Iterator[Finding]:
    """Trap 12: what float16 cannot hold, in a file that asks for it."""
    bad = [n for n, t in case.checkpoint.tensors.items() if t.is_floating_point() and not t.isfinite().all()]
    if bad:
        yield Finding(12, f"{bad[0]!r} holds numbers that are not finite", "train or fetch it again")
        return
    half = any(t.dtype == torch.float16 for t in case.checkpoint.tensors.values())
    peak = 0.0

    def note(_: nn.Module, __: object, out: object) -> None:
        nonlocal peak
        if isinstance(out, Tensor) and out.is_floating_point():
            peak = max(peak, float(out[out.isfinite()].abs().amax()) if out.numel() else 0.0)

    hooks = [m.register_forward_hook(note) for m in head.modules()]
    try:
        grade(head, exam)
    finally:
        for hook in hooks:
            hook.remove()
    limit = torch.finfo(torch.float16).max
    if half and peak > limit:
        yield Finding(
            12, f"it is stored in float16, and its states reach {peak:.3g}, beyond {limit:g}", "dtype=bfloat16"
        )


def _put_otherwise(now: Grade, other: Grade, remedy: str) -> Iterator[Finding]:
    """Trap 13: the same questions, put as it was trained on them."""
    if other.right > now.right + 0.1 and other.acceptance_length > 1.15 * now.acceptance_length:
        yield Finding(13, "it was trained on texts that look otherwise than these", remedy, now, other)


def _strange(now: Grade, exam: Exam) -> Iterator[Finding]:
    """Trap 14: it guesses hardly better than one who always says the commonest token."""
    said = torch.cat([t.best[start - 1 : end - 1] for t in exam.every for start, end in t.text.answers])
    blind = float(said.bincount().max() / len(said))
    if now.right < max(0.05, 1.5 * blind):
        yield Finding(
            14,
            f"no reading makes it guess: {now.right:.0%} of its first guesses are right, and the commonest token alone would be "
            f"in {blind:.0%}",
            "train it on what this target writes, or use the target it was trained for",
            now,
        )


_WHY = {
    3: "it reads no last state",
    4: "this kind of head has no such switch",
    5: "this kind of head has no such switch",
    6: "this kind of head has no such norms",
    7: "it says every token",
    8: "it holds no embeddings, and reads the target's at their scale",
    9: "it has no LM head of its own",
    10: "this kind of head has no pairs",
    11: "this kind of head has no positions",
    12: "no state leaves what float16 holds, or the file is of another type",
    13: "not tried: give texts, or a tokenizer with a chat template",
    14: "it guesses far better than the commonest token",
    15: "the file holds no embeddings of its own to tell a rotation by",
    16: "all tables are as wide as the target's vocabulary",
    17: "the config agrees with the tensors",
    18: "the names begin as they should",
    19: "the width of fc fits the named taps",
    20: "this kind of head guesses no blocks",
}


def _reason(number: int, others: Mapping[str, Exam] | None) -> str:
    if number == 13 and others:
        return "other ways to put the questions are no better"
    return _WHY.get(number, "no other reading is possible")

"""A course: everything that a head's training depends on, in one TOML file.

    target = "smollm2"
    dtype = "bfloat16"

    [[texts]]                      # what the target writes itself; or file = "chats.jsonl"
    count = 4000
    openings = ["", "Write", "Explain"]
    prompt_tokens = 64
    answer_tokens = 192

    [head]
    kind = "eagle3"                # eagle3, eagle1, medusa, block, small
    draft_vocab = 6144

    [plan]                         # fields of `Plan`
    epochs = 4
    [plan.objective]               # fields of `Objective`
    terms = [["soft_ce", 1.0]]

Fields that are not there have the defaults of the classes they belong to; unknown ones are refused.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from toolkit.heads import BlockHead, Eagle3Head, EagleHead, MedusaHead, SmallLM
from toolkit.models.hf import HFModel
from toolkit.sampling import Sampling
from toolkit.training.losses import Decay, DPace, Fading, Objective
from toolkit.training.plan import Plan
from toolkit.training.synthesis import Recipe

T = TypeVar("T")
KINDS = ("eagle3", "eagle1", "medusa", "block", "small")
_WEIGHS: Mapping[str, Callable[..., Any]] = {"decay": Decay, "fading": Fading, "d-pace": DPace}


@dataclass(frozen=True, slots=True)
class Writing:
    """A part of the texts: `count` texts by a recipe, or as many of a file (0 for all), whose path is relative to the course."""

    count: int = 0
    recipe: Recipe = field(default_factory=Recipe)
    file: str | None = None

    @property
    def key(self) -> str:
        """Names what it writes: parts of different courses with the same key share their texts."""
        return hashlib.sha256(repr(self.recipe).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """kind of head, and what its class is made with.

    draft_vocab  size of a reduced vocabulary (eagle3), chosen by how often the target says a token
    layers       of the head; for a small LM, which of the target's it begins as
    taps         of the target (eagle3, block); None for the published choice
    norms        eagle3: a norm for every tap before they are fused, and the state goes on after its norm
    lm_head      eagle3: "own", which begins as the target's, or "target", which stays so: nothing to learn, to keep and to ship
    heads        of Medusa; block, mask: of a block head
    """

    kind: str
    draft_vocab: int | None = None
    layers: int | tuple[int, ...] | None = None
    taps: tuple[int, ...] | None = None
    norms: bool = False
    lm_head: str = "own"
    heads: int = 4
    block: int = 8
    mask: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind of head {self.kind!r}: use one of {', '.join(KINDS)}")
        if self.lm_head not in ("own", "target"):
            raise ValueError(f"unknown lm_head {self.lm_head!r} of a head: use own or target")

    @property
    def dialect(self) -> str | None:
        """The layout it is exported in; None for a small LM, which is written as a folder of its own kind."""
        if self.kind == "eagle3":
            return "speculators-eagle3" if self.norms else "eagle3"  # the official layout has no place for more norms
        return {"eagle1": "eagle1", "medusa": "medusa", "block": "dflash"}.get(self.kind)

    def make(self, target: HFModel, frequent: Callable[[int], Tensor]) -> nn.Module:
        """A new head; `frequent` gives that many of the most frequent tokens."""
        torch.manual_seed(self.seed)
        count = self.layers if isinstance(self.layers, int) else 1
        match self.kind:
            case "eagle3":
                tokens = None if self.draft_vocab is None else frequent(self.draft_vocab)
                head = Eagle3Head.of(
                    target,
                    taps=self.taps,
                    tokens=tokens,
                    layers=count,
                    norm_before_residual=self.norms,
                    fc_norm=self.norms,
                )
                head.lm_head.requires_grad_(self.lm_head == "own")
                return head
            case "eagle1":
                return EagleHead.of(target, layers=count)
            case "medusa":
                return MedusaHead.of(target, heads=self.heads, layers=count)
            case "block":
                mask = target.vocab - 1 if self.mask is None else self.mask
                return BlockHead.of(target, mask=mask, block=self.block, taps=self.taps, layers=count)
            case _:
                chosen = self.layers if isinstance(self.layers, tuple) else (0, target.layers - 1)
                return SmallLM.of(target, chosen)


@dataclass(frozen=True, slots=True)
class Course:
    """Of one head.

    told_apart  how many frequent tokens are told apart while learning, by heads that borrow the target's LM head; None for all
    start       a head's folder or another course, to go on from that head in all but its LM head and vocabulary; None for a new
                head. Another course's head is trained first, and its file is kept with this one's head
    """

    texts: tuple[Writing, ...]
    head: HeadPlan
    plan: Plan = field(default_factory=Plan)
    target: str = "smollm2"
    dtype: str = "bfloat16"
    told_apart: int | None = None
    start: str | None = None

    def __post_init__(self) -> None:
        if not self.texts:
            raise ValueError("a course needs [[texts]]: what the target is to write, or a file")
        if self.start and self.head.dialect is None:
            raise ValueError(f"a head of kind {self.head.kind!r} starts anew: take out start")
        if self.start and Path(self.start).name == "course.toml":
            raise ValueError(
                "the course to start from is kept beside this one, which becomes course.toml: give its head's folder"
            )


def course(file: Path) -> Course:
    """Read one. Raises ValueError in a sentence for what is not TOML, for unknown fields and for values that do not fit."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}): give a course, a TOML file") from error
    except ValueError as error:
        raise ValueError(f"{file} is not TOML ({error})") from error
    try:
        found = parsed(table)
        near = [replace(t, file=str(file.parent / t.file)) if t.file else t for t in found.texts]
        start = str(file.parent / found.start) if found.start else None
        return replace(found, texts=tuple(near), start=start)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from error


def parsed(table: Mapping[str, Any]) -> Course:
    """A course from the tables of a TOML file."""
    table = dict(table)
    texts = tuple(_writing(t, f"[[texts]] {i}") for i, t in enumerate(table.pop("texts", [])))
    head = _made(HeadPlan, _tuples(table.pop("head", {})), "[head]")
    plan = dict(table.pop("plan", {}))
    if "objective" in plan:
        plan["objective"] = _objective(dict(plan["objective"]))
    return _made(Course, table | {"texts": texts, "head": head, "plan": _made(Plan, plan, "[plan]")}, "the course")


def _writing(table: Mapping[str, Any], where: str) -> Writing:
    table = _tuples(table)
    own = {name: table.pop(name) for name in ("count", "file") if name in table}
    for name in ("prompt", "answers"):
        if name in table:
            given = table[name] if isinstance(table[name], tuple) else (table[name],)
            made = tuple(_made(Sampling, dict(one), f"{name} of {where}") for one in given)
            table[name] = made[0] if name == "prompt" else made
    return replace(_made(Writing, own, where), recipe=_made(Recipe, table, where))


def _objective(table: dict[str, Any]) -> Objective:
    if "terms" in table:
        table["terms"] = tuple((str(name), float(weight)) for name, weight in table["terms"])
    if "weigh" in table:
        name, *numbers = table["weigh"] if isinstance(table["weigh"], list) else [table["weigh"]]
        if name not in _WEIGHS:
            raise ValueError(f"unknown way to weigh depths {name!r}: use one of {', '.join(_WEIGHS)}")
        table["weigh"] = _WEIGHS[name](*numbers)
    return _made(Objective, table, "[plan.objective]")


def _made(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    if odd := sorted(values.keys() - set(known)):
        raise ValueError(f"{where} has no field {odd[0]!r}: it has {', '.join(known)}")
    return kind(**values)


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}


def digest(*parts: object) -> str:
    """A short name for whatever parts say."""
    return hashlib.sha256(json.dumps([repr(p) for p in parts]).encode()).hexdigest()[:8]

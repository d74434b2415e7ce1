"""Draft heads for SmolLM2-135M-Instruct, each trained by the course in its folder, with a log and a card beside it."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file

from toolkit.drafting import Block, Chain, DraftModel, Dynamic, Eagle, Medusa
from toolkit.heads import dialects
from toolkit.models.assembled import assembled
from toolkit.models.hf import HFModel
from toolkit.protocols import Drafter, Shape

_HERE = Path(__file__).parent
KINDS = ("eagle3", "eagle1", "medusa", "block", "small")
NAMES = tuple(name for name in KINDS if (_HERE / name / "config.json").exists())
"""Those whose weights are here. Of the others the package has the course alone."""
_SIZES = (49_152, 576, 30)  # vocabulary, hidden size and layers of the only target they are for


def folder(name: str) -> Path:
    """Where a head lies, with `course.toml`, `log.jsonl` and `card.md`. Raises ValueError for an unknown name."""
    if name not in NAMES:
        raise ValueError(f"there is no head {name!r} in the package: it has {', '.join(NAMES) or 'none'}")
    return _HERE / name


def fits(target: HFModel) -> bool:
    """Is this the target that the heads are for, as far as its sizes tell."""
    return (target.vocab, int(target.config.hidden_size), target.layers) == _SIZES


def drafter(name: str, target: HFModel, shape: Shape | None = None, *, where: Path | None = None) -> Drafter:
    """A drafter with the head `name`; without a shape, a chain of what one pass gives, or of five guesses.

    where  a folder with another head of the same kind, for instance one you trained by the same course

    Raises ValueError for a target that the heads are not for.
    """
    if where is None and not fits(target):
        raise ValueError(
            f"the heads of the package are for SmolLM2-135M-Instruct, and {target.name} has {target.vocab} tokens, hidden size "
            f"{target.config.hidden_size} and {target.layers} layers: train one for it, python -m toolkit train"
        )
    place = where or folder(name)
    if name == "small":
        layers = int(json.loads((place / "config.json").read_text(encoding="utf-8"))["layers"])
        return DraftModel(assembled(target, layers, load_file(place / "model.safetensors")), shape or Chain(5))
    head = dialects.load(place, target, dtype=target.dtype).head
    match name:
        case "medusa":
            return Medusa(head, shape or Chain(head.horizon))  # type: ignore[arg-type]
        case "block":
            return Block(head, shape or Chain(head.block - 1))  # type: ignore[arg-type]
        case _:
            return Eagle(head, shape or Chain(5))  # type: ignore[arg-type]


def tree(name: str, nodes: int = 32) -> Shape:
    """A dynamic tree of so many nodes besides the root, as deep as the head guesses well."""
    return Dynamic(8, 4 if name == "medusa" else 7 if name == "block" else 6, nodes)

"""Heads of your own on disk: their parameters as safetensors, for whoever has the class.

The published layouts of `dialects` are for heads that other software knows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

Head = TypeVar("Head", bound=nn.Module)
_WEIGHTS, _ABOUT = "model.safetensors", "config.json"


def save(head: nn.Module, folder: str | Path, **about: object) -> Path:
    """Write a head's parameters and buffers into `folder`, and in a config.json its class's name and whatever `about` says.
    What it borrows from the target is no part of it."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: t.detach().cpu().contiguous().clone() for name, t in head.state_dict().items()}, folder / _WEIGHTS)
    text = json.dumps({"specdec_head": type(head).__name__, **about}, indent=2)
    (folder / _ABOUT).write_text(text + "\n", encoding="utf-8")
    return folder


def load(head: Head, folder: str | Path) -> Head:
    """Fill a head of the same class with what `save` wrote, and return it. Raises ValueError for another class, and for files
    that are missing, damaged or of other shapes."""
    folder, name = Path(folder), type(head).__name__
    try:
        written = json.loads((folder / _ABOUT).read_text(encoding="utf-8")).get("specdec_head")
        tensors = load_file(folder / _WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(f"{folder} holds no head that can be read ({error}): write one with `save`") from error
    if written != name:
        raise ValueError(f"{folder} holds a {written}, and this is a {name}")
    try:
        head.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(
            f"the {name} in {folder} has other parameters than this one: {str(error).splitlines()[-1].strip()}"
        ) from error
    return head

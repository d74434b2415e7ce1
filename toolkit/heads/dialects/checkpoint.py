"""A checkpoint as it lies on disk: a config and named tensors. Nothing in it is ever executed.

Safetensors are read where there are any, else pickled tensors with `weights_only`. A config's `auto_map` is left alone.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

PARTS = ("mtp.", "medusa_head.")
"""Prefixes of heads that a whole model's files may hold; of such files nothing else is read."""
_PICKLES = (".bin", ".pt", ".pth")
_DERIVED = "rotary_emb.inv_freq"  # saved by old writers, and computed by all readers


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """config  of config.json, {} where there is none
    tensors by name; file: the weights' file name, which says in what container they come
    where   the folder or file, for messages
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    file: str = "model.safetensors"
    where: str = field(default="this checkpoint", compare=False)

    def shape(self, name: str) -> tuple[int, ...]:
        """() for a tensor that is not there."""
        return tuple(self.tensors[name].shape) if name in self.tensors else ()

    def need(self, name: str) -> Tensor:
        """Raises ValueError without it."""
        if name not in self.tensors:
            raise ValueError(f"{self.where} has no tensor {name!r}: it is incomplete, or of another layout")
        return self.tensors[name]

    def option(self, *names: str, default: Any = None) -> Any:
        """The first of several fields that is there and not null; a dot looks into a nested one."""
        for name in names:
            found: Any = self.config
            for part in name.split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
            if found is not None:
                return found
        return default

    def without(self, prefix: str) -> Checkpoint:
        """The same with `prefix` taken off the names that begin with it."""
        return self.renamed(lambda name: name.removeprefix(prefix)) if prefix else self

    def renamed(self, name: Callable[[str], str]) -> Checkpoint:
        """Raises ValueError where two tensors would get one name."""
        tensors: dict[str, Tensor] = {}
        for old, tensor in self.tensors.items():
            if name(old) in tensors:
                raise ValueError(
                    f"{self.where} holds {name(old)!r} twice, once of them as {old!r}: remove one of the two"
                )
            tensors[name(old)] = tensor
        return replace(self, tensors=tensors)


def read(path: str | Path) -> Checkpoint:
    """A checkpoint from a folder, or from a single file of weights with a config.json beside it or none. Raises ValueError
    for files that are missing, damaged or hold more than tensors."""
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    files = _files(path)
    tensors: dict[str, Tensor] = {}
    for file in files:
        found = _read_pickle(file) if file.suffix in _PICKLES else _read_safetensors(file)
        if twice := sorted(found.keys() & tensors.keys()):
            raise ValueError(f"{file} holds {twice[0]!r} again: remove the file that does not belong to the checkpoint")
        tensors |= found
    tensors = {name: t for name, t in tensors.items() if not name.endswith(_DERIVED)}
    return Checkpoint(_config(folder / "config.json"), tensors, files[0].name, str(path))


def write(checkpoint: Checkpoint, folder: str | Path) -> None:
    """Write config.json and the weights, every tensor bit for bit. Raises ValueError for a folder that holds other weights,
    which a reader would take for a part of these."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    others = [p.name for p in _weights(folder) if p.name != checkpoint.file]
    if others or any(folder.glob("*.index.json")):
        name = others[0] if others else "an index of shards"
        raise ValueError(f"{folder} already holds {name}: save into an empty folder")
    tensors = {name: t.detach().cpu().contiguous().clone() for name, t in checkpoint.tensors.items()}
    (folder / "config.json").write_text(json.dumps(dict(checkpoint.config), indent=2) + "\n", encoding="utf-8")
    if Path(checkpoint.file).suffix in _PICKLES:
        torch.save(tensors, folder / checkpoint.file)
    else:
        save_file(tensors, folder / checkpoint.file, metadata={"format": "pt"})


def _files(path: Path) -> Sequence[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"there is no folder or file {str(path)!r} to read a draft head from")
    for index in sorted(path.glob("*.index.json")):
        return _shards(index)
    if found := _weights(path):
        safe = [p for p in found if p.suffix == ".safetensors"]
        return safe or found
    raise ValueError(f"{path} holds no weights: a draft head is a .safetensors, .bin or .pt file with a config.json")


def _weights(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix in (".safetensors", *_PICKLES) and p.is_file())


def _shards(index: Path) -> Sequence[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise ValueError(f"{index} is no index of shards: it has no weight_map from tensors to files") from None
    shards = [index.parent / str(name) for name in names]
    for name, shard in zip(names, shards, strict=True):
        if Path(str(name)).name != name or not shard.is_file():
            raise ValueError(f"{index.name} names the shard {name!r}, which is not in {index.parent}: fetch it")
    return shards


def _config(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}): fetch the file again") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, and a config is a JSON object")
    return found


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in _wanted(list(file.keys()))}
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or cut short ({error}): fetch the file again") from None


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"{path} holds more than tensors, which would run code when read, and is refused: get a .safetensors file"
        ) from None
    except (RuntimeError, EOFError, ValueError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"{path} is damaged or cut short ({first}): fetch the file again") from None
    if isinstance(found, dict) and isinstance(found.get("draft_state_dict"), dict):  # a SpecForge trainer's state
        found = found["draft_state_dict"]
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) for t in found.values()):
        raise ValueError(f"{path} is no table of tensors: name the file that holds the head's weights")
    return {str(name): found[name] for name in _wanted([str(n) for n in found])}


def _wanted(names: Sequence[str]) -> Iterator[str]:
    whole = any(name.startswith(("model.layers.", "model.embed_tokens.")) for name in names)
    part = next((p for p in PARTS if whole and any(name.startswith(p) for name in names)), "")
    return (name for name in names if name.startswith(part))

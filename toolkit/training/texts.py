"""Texts to learn from: token ids, and which of them are answers. Kept as JSON lines, one text a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.models import zoo
from toolkit.models.chats import Spans, Tokenizer, answered


@dataclass(frozen=True, slots=True)
class Text:
    """tokens, and the spans [from, to) of them that the target itself would have to say: only those are learned from."""

    tokens: tuple[int, ...]
    answers: Spans

    def __post_init__(self) -> None:
        for start, end in self.answers:
            if not 0 <= start < end <= len(self.tokens):
                raise ValueError(f"an answer at {start}..{end} is not within a text of {len(self.tokens)} tokens")

    @property
    def taught(self) -> int:
        """Tokens of answers."""
        return sum(end - start for start, end in self.answers)

    def cut(self, length: int) -> Text | None:
        """Its first `length` tokens; None where no answer is left."""
        spans = tuple((a, min(b, length)) for a, b in self.answers if a < length)
        return Text(self.tokens[:length], spans) if spans else None


def save(texts: Iterable[Text], file: Path) -> None:
    """Write texts that `load` reads."""
    file.write_text("".join(line(text) for text in texts), encoding="utf-8")


def load(file: Path) -> list[Text]:
    """Read what `save` or `write_own` wrote, whose notes between the texts are passed over. Raises ValueError for any other
    line."""
    notes = ('{"recipe"', '{"left_out"')
    return [parse(text, f"{file}, line {i}") for i, text in enumerate(_lines(file), 1) if not text.startswith(notes)]


def line(text: Text, **more: object) -> str:
    return json.dumps({"tokens": text.tokens, "answers": text.answers, **more}, separators=(",", ":")) + "\n"


def parse(text: str, where: str) -> Text:
    try:
        value = json.loads(text)
        return Text(tuple(value["tokens"]), tuple((a, b) for a, b in value["answers"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{where} is no text: it needs "tokens" and "answers" ({error})') from error


def texts_of(source: Any, tokenizer: Tokenizer) -> Iterator[Text]:
    """Texts from whatever people have: a path to JSON lines, a Hugging Face dataset, or a list, whose items are

    - a string, learned from as a whole but for its first token;
    - a chat, a list of {"role", "content"} messages (or {"from", "value"}), of which the assistant's are learned from;
    - a mapping with "messages", "conversations", "tokens" and "answers", "prompt" and "response", or "text".

    Raises ValueError for anything else, with its place.
    """
    if isinstance(source, Path) or (isinstance(source, str) and Path(source).is_file()):
        items: Iterable[Any] = (json.loads(text) for text in _lines(Path(source)))
    elif isinstance(source, str):
        raise ValueError(f"there is no file {source!r}: give a path to JSON lines, a dataset or a list of texts")
    else:
        items = source
    for i, item in enumerate(items):
        found = _text_of(item, tokenizer, f"text {i}")
        if found is not None:
            yield found


def _lines(file: Path) -> list[str]:
    try:
        return [text for text in file.read_text(encoding="utf-8").splitlines() if text.strip()]
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}): give a file of JSON lines") from error


def _text_of(item: Any, tokenizer: Tokenizer, where: str) -> Text | None:
    """None for a text with nothing to learn from."""
    if isinstance(item, str):
        ids = tuple(zoo.plain(tokenizer, item))
        return Text(ids, ((1, len(ids)),)) if len(ids) > 1 else None
    if isinstance(item, Mapping):
        if "tokens" in item:
            return parse(json.dumps(dict(item)), where)
        if chat := item.get("messages") or item.get("conversations"):
            return _chat(chat, tokenizer, where)
        if "prompt" in item and "response" in item:
            pair = ({"role": "user", "content": item["prompt"]}, {"role": "assistant", "content": item["response"]})
            return _chat(pair, tokenizer, where)
        if isinstance(item.get("text"), str):
            return _text_of(item["text"], tokenizer, where)
        raise ValueError(
            f'{where} has {sorted(item)}: it needs "messages", "conversations", "prompt" and "response", or "text"'
        )
    if isinstance(item, Sequence):
        return _chat(item, tokenizer, where)
    raise ValueError(f"{where} is a {type(item).__name__}: give strings, chats or mappings")


def _chat(messages: Sequence[Any], tokenizer: Tokenizer, where: str) -> Text | None:
    turns = [_message(m, where) for m in messages]
    try:
        whole, spans = answered(tokenizer, turns)
    except ValueError as error:
        raise ValueError(f"{where} cannot be used: {error}") from error
    return Text(tuple(whole), spans) if spans else None


def _message(message: Any, where: str) -> dict[str, str]:
    names = {"human": "user", "gpt": "assistant"}
    try:
        role, content = (
            (message["role"], message["content"]) if "role" in message else (message["from"], message["value"])
        )
    except (TypeError, KeyError) as error:
        raise ValueError(f'{where} holds a message without "role" and "content"') from error
    return {"role": names.get(role, role), "content": content}

"""Chats as token ids: how a template writes turns, and where the answers stand in what it wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transformers import PreTrainedTokenizerBase as Tokenizer

Spans = tuple[tuple[int, int], ...]
_MARK = "\u2063\u2063content\u2063\u2063"  # unlikely to be part of a template


def rendered(tokenizer: Tokenizer, turns: Sequence[Mapping[str, str]], *, begun: bool = False) -> list[int]:
    """Token ids of the turns; `begun` adds the beginning of an answer. Raises ValueError without a chat template."""
    return ids(tokenizer, _template(tokenizer, turns, begun=begun)) if turns or begun else []


def answered(tokenizer: Tokenizer, turns: Sequence[Mapping[str, str]]) -> tuple[list[int], Spans]:
    """A whole chat, and the spans [from, to) of what the assistant says in it, the token that ends a turn included.

    Raises ValueError for a template that writes a turn in another way once others follow, as some drop earlier thoughts.
    """
    whole, spans = rendered(tokenizer, turns), []
    for i, turn in enumerate(turns):
        if turn["role"] != "assistant":
            continue
        before = rendered(tokenizer, turns[:i], begun=True)
        after = rendered(tokenizer, turns[: i + 1])
        if whole[: len(before)] != before or whole[: len(after)] != after:
            raise ValueError(
                "the chat template writes earlier turns in another way once others follow, so answers cannot be found in what "
                "it wrote: give one answer a chat"
            )
        spans.append((len(before), len(after)))
    return whole, tuple(spans)


def user_turn(tokenizer: Tokenizer) -> tuple[str, str]:
    """The text before and after what a user says, the latter with the answer begun."""
    text = _template(tokenizer, [{"role": "user", "content": _MARK}], begun=True)
    before, mark, after = text.partition(_MARK)
    if not mark:
        raise ValueError("the chat template does not write what the user says as it stands, so a turn cannot be begun")
    return before, after


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of text in which special tokens are written out; nothing is added."""
    return [int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]


def _template(tokenizer: Tokenizer, turns: Sequence[Mapping[str, str]], *, begun: bool) -> str:
    if tokenizer.chat_template is None:
        raise ValueError("the tokenizer has no chat template: give plain texts")
    made = tokenizer.apply_chat_template([dict(t) for t in turns], add_generation_prompt=begun, tokenize=False)
    return str(made)

"""What is refused before any work is done, each in one sentence."""

from __future__ import annotations

import operator
from reprlib import repr as short
from typing import Any


def whole(value: Any, name: str, least: int = 1) -> int:
    """`value` as an int. Raises ValueError, naming it and its limit, for what is no whole number or below `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, at least {least}; got {short(value)}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")
    return number


def token_ids(prompt: Any, name: str) -> list[int]:
    """`prompt` as ints. Raises ValueError for what is no sequence of whole numbers."""
    try:
        if not hasattr(prompt, "__getitem__") or hasattr(prompt, "keys"):
            raise TypeError
        return [operator.index(t) for t in prompt]
    except TypeError:
        raise ValueError(
            f"{name} must be one sequence of token ids; got {short(prompt)}: encode a text with the tokenizer first"
        ) from None


def answers(part: Any, method: str, name: str) -> None:
    """Raise ValueError unless `part` is an object with this method, or a function where the method is `__call__`."""
    if isinstance(part, type):
        raise ValueError(f"{name} is the class {part.__name__}: give an object of it, as {part.__name__}() makes")
    if not callable(getattr(part, method, None)):
        wanted = "be a function" if method == "__call__" else f"have a method `{method}`"
        raise ValueError(f"{name} must {wanted}; got {short(part)}")


def kind(value: Any, wanted: type, name: str) -> None:
    """Raise ValueError for a value of another class."""
    if not isinstance(value, wanted):
        raise ValueError(f"{name} must be of the class {wanted.__name__}; got {short(value)}")

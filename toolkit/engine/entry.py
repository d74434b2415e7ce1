"""One request on its way: its text, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from torch import Tensor

from toolkit.protocols import Drafter, Rule
from toolkit.sampling import Sampling, TokenLogprob
from toolkit.sampling.stopping import Judge

SPARE = 64  # slots for tokens of a verdict that reach past a request's end


@dataclass(slots=True, eq=False)
class Entry:
    """A row of a batch. It keeps its text whether it is in a batch or not, so it can leave and come back."""

    prompt: tuple[int, ...]
    sampling: Sampling
    judge: Judge
    text: np.ndarray  # [S] committed tokens, then junk
    length: int  # committed tokens
    drafter: Drafter | None = None  # None for the engine's, whichever it is in a step
    rule: Rule | None = None
    scores: list[TokenLogprob] = field(default_factory=list)  # of the new tokens, where they were asked for
    feature: Tensor | None = None  # [n, F] of the settled tokens, while it is in no batch
    recalled: bool = False  # features of what was found in the prefix cache have been fetched

    @classmethod
    def of(cls, prompt: Sequence[int], sampling: Sampling, judge: Judge) -> Self:
        """A request of which only the prompt is committed."""
        text = np.zeros(len(prompt) + judge.room + SPARE, np.int64)
        text[: len(prompt)] = prompt
        return cls(tuple(map(int, prompt)), sampling, judge, text, len(prompt))

    @property
    def output(self) -> list[int]:
        """The new tokens."""
        return self.text[len(self.prompt) : self.length].tolist()

    @property
    def room(self) -> int:
        """Guesses that could still be committed: the bonus takes one of what may come."""
        return max(0, self.judge.room - 1)

    def take(self, tokens: Sequence[int]) -> int:
        """Commit tokens until the request ends; returns how many."""
        try:
            taken = self.judge.take(tokens)
        except BaseException:
            self.judge.rewind(self.length - len(self.prompt))
            raise
        self.text[self.length : self.length + taken] = tokens[:taken]
        self.length += taken
        return taken

    def undo(self, tokens: int) -> None:
        """Take back the last tokens; the request has not ended then."""
        if tokens:
            self.length -= tokens
            self.judge.rewind(self.judge.count - tokens)
            del self.scores[self.judge.count :]

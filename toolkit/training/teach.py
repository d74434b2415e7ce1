"""How a head of each socket makes guesses about whole texts, as it will while it drafts.

Every way yields the guesses of one depth after another. A guess has a start, the place whose next token is pending, and is
about the token `depth` places after the pending one. A head with a method `teach(lesson)` that yields the same is taught its
own way.

Letters: B texts, N tokens, M guesses, H hidden size, W tokens told apart, K heads, C blocks of a text, J places of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from toolkit.heads.whole import Blocks, Rollout
from toolkit.training.lessons import Lesson


@dataclass(frozen=True, slots=True)
class Guess:
    """The guesses of one depth, at all places where they are about a token to be taught."""

    depth: int  # 1 for the token after the pending one
    row: Tensor  # [M] which text
    at: Tensor  # [M] the guessed token's index in it
    logits: Tensor  # [M, W]
    state: Tensor | None = None  # [M, H] the head's own state, where it is to be like the target's after the token before

    @property
    def start(self) -> Tensor:
        """[M] the last token before the pending one."""
        return self.at - self.depth - 1


def guesses(head: nn.Module, lesson: Lesson, *, steps: int, blocks: int = 0, generator: torch.Generator | None = None) -> Iterator[Guess]:
    """The guesses of a head of any socket.

    steps   guesses in a chain, for heads that go on from their own states
    blocks  drawn at random a text, for block heads; 0 for one at every place

    Raises ValueError for a head without a socket that is known.
    """
    given: Any = head
    if hasattr(head, "teach"):
        yield from given.teach(lesson)
    elif hasattr(head, "remember"):
        yield from blockwise(given, lesson, blocks, generator)
    elif hasattr(head, "fuse"):
        yield from unrolled(given, lesson, steps)
    elif hasattr(head, "horizon"):
        yield from marginal(given, lesson)
    else:
        raise ValueError(
            f"{type(head).__name__} cannot be taught: it needs `fuse` and `logits` (pairs), `horizon` (several guesses from one "
            f"state), `remember` (blocks), or a method `teach` of its own"
        )


def places(lesson: Lesson, ahead: int) -> tuple[Tensor, Tensor]:
    """The rows and starts [M] from which the token `ahead` places on is one to be taught."""
    row, at = lesson.taught[:, ahead:].nonzero(as_tuple=True)
    return row, at


def unrolled(head: Any, lesson: Lesson, steps: int) -> Iterator[Guess]:
    """Heads over pairs: the first guess stands on true features, each further one on the head's own states."""
    say: Callable[[Tensor], Tensor] = getattr(head, "said", head.logits)
    n = lesson.token.shape[1] - 1
    state, attend = head.fuse(lesson.feature[:, :-1]), Rollout()
    place = torch.arange(n, device=lesson.token.device).expand(len(lesson.token), -1)
    for k in range(steps):
        token = torch.zeros_like(lesson.token[:, :-1])
        token[:, : n - k] = lesson.token[:, 1 + k :]
        state = head(token, state, place + k, attend)
        attend.turn()
        row, start = places(lesson, k + 2)
        if not len(row):
            return
        mine = state[row, start]
        yield Guess(k + 1, row, start + k + 2, say(mine), mine)


def marginal(head: Any, lesson: Lesson) -> Iterator[Guess]:
    """Heads that guess several tokens from one state."""
    any_taught = torch.zeros_like(lesson.taught)
    for h in range(head.horizon):
        any_taught[:, : -(h + 2)] |= lesson.taught[:, h + 2 :]
    row, start = any_taught.nonzero(as_tuple=True)
    if not len(row):
        return
    logits = head(lesson.feature[row, start])  # [M, K, W]
    for h in range(head.horizon):
        at = start + h + 2
        here = (at < lesson.token.shape[1]) & lesson.taught[row, at.clamp(max=lesson.token.shape[1] - 1)]
        if here.any():
            yield Guess(h + 1, row[here], at[here], logits[here, h])


def blockwise(head: Any, lesson: Lesson, blocks: int, generator: torch.Generator | None) -> Iterator[Guess]:
    """Block heads: whole blocks from anchors, which are pending tokens; a place counts while all before it in the block are
    to be taught as well."""
    rows, n = lesson.token.shape
    anchor = _anchors(lesson, blocks, generator)  # [B, C], -1 for none
    attend = Blocks(anchor.clamp(min=0))
    whole = torch.arange(n, device=anchor.device).expand(rows, -1)
    head.remember(lesson.feature, whole, attend.write)
    place = anchor.clamp(min=0).reshape(-1, 1) + torch.arange(head.block, device=anchor.device)  # [B * C, J]
    row = torch.arange(rows, device=anchor.device).repeat_interleave(anchor.shape[1])
    pending = lesson.token[row[:, None], place[:, :1]]
    logits = head(pending, place, attend)  # [B * C, J - 1, W]
    good = anchor.reshape(-1) > 0
    markov = getattr(head, "markov_head", None)
    for j in range(1, head.block):
        at = place[:, j]
        good = good & (at < n) & lesson.taught[row, at.clamp(max=n - 1)]
        if not good.any():
            return
        said = logits[good, j - 1]
        if markov is not None:
            said = said + markov(lesson.token[row[good], at[good] - 1])
        yield Guess(j, row[good], at[good], said)


def _anchors(lesson: Lesson, blocks: int, generator: torch.Generator | None) -> Tensor:
    """[B, C] places with a token to be taught after them, in random order; all of them for blocks = 0. -1 fills up."""
    able = torch.zeros_like(lesson.taught)
    able[:, :-1] = lesson.taught[:, 1:]
    able[:, 0] = False  # nothing stands before it to have a feature of
    noise = torch.rand(able.shape, generator=generator).to(able.device) if blocks else torch.zeros(able.shape, device=able.device)
    order = torch.where(able, noise, 2.0).argsort(1, stable=True)
    count = int(able.sum(1).max()) if not blocks else min(blocks, able.shape[1])
    order = order[:, : max(1, count)]
    return torch.where(able.gather(1, order), order, -1)

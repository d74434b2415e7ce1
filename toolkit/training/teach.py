"""How a head of each socket makes guesses about whole texts, as it will while it drafts.

Every way yields the guesses of one depth after another. A guess has a start, the place whose next token is pending, and is
about the token `depth` places after the pending one. A head with a method `teach(lesson)` that yields the same is taught its
own way.

Letters: B texts, N tokens, M guesses, H hidden size, W tokens told apart, K heads, C blocks of a text, J places of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    state: Tensor | None = (
        None  # [M, H] the head's own state, where it is to be like the target's after the token before
    )

    @property
    def start(self) -> Tensor:
        """[M] the last token before the pending one."""
        return self.at - self.depth - 1


def guesses(head: nn.Module, lesson: Lesson, *, steps: int, anchors: Tensor | None = None) -> Iterator[Guess]:
    """The guesses of a head of any socket.

    steps    guesses in a chain, for heads that go on from their own states
    anchors  [B, C] pending tokens, -1 for none, from which block heads guess; None for every place

    Raises ValueError for a head without a socket that is known.
    """
    given: Any = head
    if hasattr(head, "teach"):
        yield from given.teach(lesson)
    elif hasattr(head, "remember"):
        yield from blockwise(given, lesson, all_anchors(lesson) if anchors is None else anchors)
    elif hasattr(head, "fuse"):
        yield from unrolled(given, lesson, steps)
    elif hasattr(head, "speak"):
        yield from textwise(given, lesson)
    elif hasattr(head, "horizon"):
        yield from marginal(given, lesson)
    else:
        raise ValueError(
            f"{type(head).__name__} cannot be taught: it needs `fuse` and `logits` (pairs), `horizon` (several guesses from one "
            f"state), `remember` (blocks), `speak` (whole texts), or a method `teach` of its own"
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


def textwise(head: Any, lesson: Lesson) -> Iterator[Guess]:
    """Language models, which read tokens alone. A chain of theirs is one while all its guesses are right, and then each is
    what the text itself leads to: so all depths repeat the first, and only who judges wants more than that one."""
    state = head.speak(lesson.token)
    for depth in range(1, 2 if head.training else head.horizon + 1):
        row, start = places(lesson, depth + 1)
        if len(row):
            yield Guess(depth, row, start + depth + 1, head.logits(state[row, start + depth]))


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


def blockwise(head: Any, lesson: Lesson, anchor: Tensor) -> Iterator[Guess]:
    """Block heads: whole blocks from anchors [B, C]; a place counts while all before it in the block are to be taught as
    well."""
    rows, n = lesson.token.shape
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


def all_anchors(lesson: Lesson) -> Tensor:
    """[B, C] all places that a token to be taught comes after, in order; -1 fills up."""
    return _chosen(_able(lesson), torch.zeros(lesson.taught.shape), lesson.taught.shape[1])


def draw_anchors(lesson: Lesson, blocks: int, keys: Sequence[int]) -> Tensor:
    """[B, C] at most `blocks` of them a text, at random; a text's draw depends on its key alone."""
    noise = torch.ones(lesson.taught.shape)
    for b, key in enumerate(keys):
        generator = torch.Generator().manual_seed(key)
        n = int(lesson.real[b].sum())
        noise[b, :n] = torch.rand(n, generator=generator)
    return _chosen(_able(lesson), noise, blocks)


def _able(lesson: Lesson) -> Tensor:
    able = torch.zeros_like(lesson.taught)
    able[:, 1:-1] = lesson.taught[:, 2:]  # before the first token nothing stands that could have a feature
    return able


def _chosen(able: Tensor, noise: Tensor, most: int) -> Tensor:
    order = torch.where(able, noise.to(able.device), 2.0).sort(dim=1, stable=True).indices
    order = order[:, : max(1, min(most, int(able.sum(1).max())))]
    return torch.where(able.gather(1, order), order, -1)

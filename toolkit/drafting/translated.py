"""Draft models with another tokenizer than the target's (Timor et al. 2025, "Accelerating LLM Inference with Lossless
Speculative Decoding Algorithms for Heterogeneous Vocabularies").

Both drafters below read the committed text through its characters: decoded by the target's tokenizer, encoded by their own.

Letters: B rows, S slots, N nodes, M nodes just read, V target vocabulary, D draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from toolkit.drafting.growth import at, cache_for, catch_up, grow, no_guess, shape_of
from toolkit.drafting.shapes import Chain
from toolkit.protocols import LM, Context, KVCache, Proposal, Shape, ShapeChoice
from toolkit.tree import TokenTree


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is needed."""

    def encode(self, text: str, add_special_tokens: bool = ...) -> list[int]: ...
    def decode(self, token_ids: list[int], skip_special_tokens: bool = ...) -> str: ...
    def get_vocab(self) -> dict[str, int]: ...


@dataclass(frozen=True, slots=True)
class Vocabularies:
    """The tokens that two tokenizers share, by what they spell: draft [K] and target [K] ids of the same token.

    Raises ValueError when there are none.
    """

    draft: Tensor
    target: Tensor

    @classmethod
    def of(cls, target: Tokenizer, draft: Tokenizer, *, target_vocab: int, draft_vocab: int) -> Vocabularies:
        """Ids beyond the models' vocabularies are left out."""
        ours, theirs = spelled(target), spelled(draft)
        both = sorted(s for s in ours.keys() & theirs.keys() if ours[s] < target_vocab and theirs[s] < draft_vocab)
        if not both:
            raise ValueError("the two tokenizers share no token: use Reencode, which goes through the text")
        return cls(torch.tensor([theirs[s] for s in both]), torch.tensor([ours[s] for s in both]))


def spelled(tokenizer: Tokenizer) -> dict[str, int]:
    """Token strings with the mark that the tokenizer uses for a leading space made a space, so that two can be compared."""
    mark = {t[0] for t in ("\u2581", "\u0120") if any(name.startswith(t) for name in tokenizer.get_vocab())}
    return {(" " + s[1:] if s[:1] in mark else s): i for s, i in tokenizer.get_vocab().items()}


@dataclass(slots=True)
class Intersection:
    """Guesses among the shared tokens alone (the paper calls it TLI): q is the draft model's distribution over them.

    Any shape, any rule, any temperature; exact, since q is 0 for the rest. Acceptance cannot exceed the target's mass on the
    shared tokens. Encodes each row's text anew in every step, on the host.
    """

    draft: LM
    draft_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    target_vocab: int
    shape: Shape | ShapeChoice = field(default_factory=Chain)
    cache: KVCache | None = field(default=None, repr=False)
    _shared: Vocabularies | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._shared = Vocabularies.of(
            self.target_tokenizer, self.draft_tokenizer, target_vocab=self.target_vocab, draft_vocab=self.draft.vocab
        )

    def propose(self, context: Context) -> Proposal:
        shape = shape_of(self.shape, context)
        if shape is None:
            return no_guess(context)
        own = retold(context, self.target_tokenizer, self.draft_tokenizer)
        self.cache = cache = cache_for(self.draft, self.cache, own)
        reading, pending = catch_up(self.draft, cache, own)

        def read(tree: TokenTree, start: int) -> Tensor:
            return self._widen(self.draft.read(self._narrow(tree), cache, start).logits)

        return grow(read, shape, context, self._widen(at(reading.logits, pending)))

    def release(self, who: Hashable) -> None:
        if self.cache is not None:
            self.cache.release(who)

    @property
    def shared(self) -> Vocabularies:
        assert self._shared is not None
        return self._shared

    def _widen(self, logits: Tensor) -> Tensor:
        """[B, M, D] to [B, M, V], -inf for what the draft model cannot say."""
        draft, target = (ids.to(logits.device) for ids in (self.shared.draft, self.shared.target))
        out = logits.new_full((*logits.shape[:-1], self.target_vocab), -torch.inf)
        return out.index_copy(-1, target, logits[..., draft])

    def _narrow(self, tree: TokenTree) -> TokenTree:
        """The same tree in draft ids; guesses are shared tokens, and the root has been read under its own id."""
        ids = torch.zeros(self.target_vocab, dtype=torch.long).index_copy(0, self.shared.target, self.shared.draft)
        return TokenTree(ids.to(tree.token.device)[tree.token], tree.parent, tree.real, linear=tree.linear)


@dataclass(slots=True)
class Reencode:
    """Guesses text (the paper calls it SLEM): the draft model's greedy continuation, decoded by its tokenizer and encoded by the
    target's. A chain of certain guesses a row, for any two tokenizers.

    length    draft tokens a step
    lookback  target tokens that are encoded again together with the new text; where they come out otherwise, the new text
              would change the pending token, and nothing is guessed
    """

    draft: LM
    draft_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    length: int = 5
    lookback: int = 12
    cache: KVCache | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("length", "lookback"):
            if getattr(self, name) < 1:
                raise ValueError(f"Reencode needs {name} of at least 1; got {getattr(self, name)}")

    def propose(self, context: Context) -> Proposal:
        own = retold(context, self.target_tokenizer, self.draft_tokenizer)
        self.cache = cache = cache_for(self.draft, self.cache, own)
        reading, pending = catch_up(self.draft, cache, own)
        tree, logits = TokenTree.chain(own.pending), at(reading.logits, pending)
        for _ in range(self.length - 1):
            tree = tree.grow(tree.parent.new_full((tree.rows, 1), tree.size - 1), logits.argmax(-1), linear=True)
            logits = self.draft.read(tree, cache, tree.size - 1).logits
        said = torch.cat([tree.token[:, 1:], logits.argmax(-1)], 1).tolist()  # [B, length]
        paths = [self._guess(context, own, b, said[b]) if context.room[b] else [] for b in range(context.rows)]
        return Proposal(
            TokenTree.from_paths(context.pending, [[p[: context.room[b]]] if p else [] for b, p in enumerate(paths)])
        )

    def release(self, who: Hashable) -> None:
        if self.cache is not None:
            self.cache.release(who)

    def _guess(self, context: Context, own: Context, b: int, said: Sequence[int]) -> list[int]:
        before = own.row(b)[-self.lookback :].tolist()  # some draft tokens before, so that spaces come out right
        text = self.draft_tokenizer.decode(before, skip_special_tokens=False)
        longer = self.draft_tokenizer.decode([*before, *said], skip_special_tokens=False)
        if not longer.startswith(text):
            return []
        new = longer[len(text) :].rstrip("\ufffd")
        tail = context.row(b)[-self.lookback :].tolist()
        again = self.target_tokenizer.encode(
            self.target_tokenizer.decode(tail, skip_special_tokens=False) + new, add_special_tokens=False
        )
        return again[len(tail) :] if again[: len(tail)] == tail else []


def retold(context: Context, source: Tokenizer, to: Tokenizer) -> Context:
    """The context with each row's text in another tokenizer's ids, of which there is at least one."""
    rows = [
        to.encode(source.decode(context.row(b).tolist(), skip_special_tokens=False), add_special_tokens=False) or [0]
        for b in range(context.rows)
    ]
    lengths = tuple(map(len, rows))
    host = np.zeros((len(rows), max(lengths) + 64), np.int64)
    for line, row in zip(host, rows, strict=True):
        line[: len(row)] = row
    device = context.token.device
    return replace(
        context,
        token=torch.from_numpy(host.copy()).to(device),
        length=torch.tensor(lengths, device=device),
        host=host,
        lengths=lengths,
        feature=None,
    )

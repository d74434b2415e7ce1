"""What a step was judged on, small enough to keep: with it the step can be judged again without any model.

Of every distribution the likeliest tokens are kept with their numbers, and of all others together how much they weigh.
Numbers are little-endian bytes, for a step holds thousands of them; `toolkit.whatif` reads them.

Letters: N real nodes, R rows of q in use, K likeliest tokens, T = K + N + 1 tokens a row, C pairs of a parent and a row of q.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Evidence:
    """Of one row in one step. A row's T tokens are its own K likeliest, the tokens of all nodes, and the bonus.

    k          K
    vocab      tokens in the target's vocabulary
    rule       the rule that judged, as its repr says it
    draw       how the guesses were drawn, one of `toolkit.protocols.Draw`
    temperature, top_k, top_p, min_p, typical_p, seed  the sampling parameters of the request; what its penalties, biases and
               constraints did is in the logits
    source     [N] which row of q each node was drawn from, -1 where it was certain
    token      [N, K] ids, two bytes each where the vocabulary has at most 65,536 tokens and four elsewhere
    logit      [N, T] float32 logits after each node, before temperature and truncation
    tail       [N, 3] float32 of the tokens that are left out: the largest of their logits, their logsumexp, and their
               logsumexp at the request's own temperature (at 1 for temperature 0)
    q_token    [R, K] ids
    q          [R, T] float32 probabilities that guesses were drawn from, as they were drawn from
    q_tail     [R] float32 mass of the tokens that are left out
    q_along    [C, K] float32 the same at the K likeliest tokens of the target after a parent, one line for each parent and
               row of q of its children, in the order of the first such child
    """

    k: int
    vocab: int
    rule: str
    draw: str
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    seed: int
    source: tuple[int, ...]
    token: bytes = field(repr=False)
    logit: bytes = field(repr=False)
    tail: bytes = field(repr=False)
    q_token: bytes = field(default=b"", repr=False)
    q: bytes = field(default=b"", repr=False)
    q_tail: bytes = field(default=b"", repr=False)
    q_along: bytes = field(default=b"", repr=False)

    @property
    def id_type(self) -> str:
        """How numpy reads the ids."""
        return id_type(self.vocab)

    @property
    def size(self) -> int:
        """Bytes of its numbers."""
        parts = (self.token, self.logit, self.tail, self.q_token, self.q, self.q_tail, self.q_along)
        return sum(map(len, parts)) + 4 * len(self.source)


def id_type(vocab: int) -> str:
    """The narrowest type that holds the ids of a vocabulary, as numpy names it."""
    return "<u2" if vocab <= 1 << 16 else "<u4"


def pairs(parent: tuple[int, ...], source: tuple[int, ...]) -> list[tuple[int, int]]:
    """The pairs of a parent and a row of q that `q_along` has its lines for."""
    return list(dict.fromkeys((p, s) for p, s in zip(parent, source, strict=True) if p >= 0 and s >= 0))

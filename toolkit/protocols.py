"""The values that pass between the parts of a step, and the sockets the parts plug into.

    Context --drafter--> Proposal --target--> Reading --rule--> Verdict --commit--> StepRecord

A socket is a Protocol: a class typed into a notebook cell with the right method is as good as ours. Nothing to inherit,
nothing to register.

Letters: B rows (requests), N nodes, M nodes just read, Q rows of q, S slots, V vocabulary, F features, W nodes grown.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from torch import Tensor

from toolkit.tree import TokenTree

if TYPE_CHECKING:
    from toolkit.trace.records import StepRecord

Draw = Literal["certain", "independent", "distinct", "coupled"]
Tap = int | Literal["final"]
"""Which hidden state to hand out: 0 the embeddings, i the raw output of layer i (counted from 1), "final" the state the
LM head reads, after the last norm."""


@dataclass(frozen=True, slots=True)
class Paging:
    """Caches made of pages: tokens a page, pages in all (None: as many as it takes), and whether full pages are kept for
    requests that begin alike."""

    size: int = 16
    count: int | None = None
    shared: bool = True


@dataclass(frozen=True, slots=True)
class Context:
    """What is committed so far. The last committed token of a row is its *pending* token: no model has read it yet."""

    token: Tensor  # [B, S] int64, committed tokens, then junk
    length: Tensor  # [B] int64, how many are committed
    host: np.ndarray  # [B, S] int64, the same tokens on the host
    lengths: tuple[int, ...]  # the same lengths on the host
    room: tuple[int, ...]  # guesses that could still be committed, a row; 0 where a row has ended
    sampler: Sampler
    feature: Tensor | None = None  # [B, S, F] target hidden states of the committed tokens but the pending one
    cache: KVCache | None = None  # the target's own, of use to a drafter that is made of the target's layers
    who: tuple[Hashable, ...] = ()  # names of the rows' requests, where rows come and go; () where they never do
    paging: Paging | None = None  # how caches are to be made; None for one plain row of memory a row
    origin: object = None  # tells features of one session, target and choice of taps from those of another
    chunk: int = 256  # tokens that are read in one pass at most while a cache is brought up to date

    @property
    def rows(self) -> int:
        return len(self.lengths)

    @property
    def longest(self) -> int:
        return max(self.lengths)

    @property
    def pending(self) -> Tensor:
        """[B, 1]"""
        return self.token.gather(1, self.length[:, None] - 1)

    def row(self, b: int) -> np.ndarray:
        """The committed tokens of row b on the host: [length]."""
        return self.host[b, : self.lengths[b]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A token tree, how the nodes were drawn, and the distributions q they were drawn from.

    draw  `certain`: every node is a deterministic function of the context (n-grams, top-k, EAGLE-2).
          `independent`: siblings were drawn with replacement from the same q; duplicates are kept.
          `distinct`: siblings were drawn one after another without replacement; their index order is the draw order.
          `coupled`: drawn with the very noise the target's own draw at that position will use (`guess_coupled`).
    q     [B, Q, V] what the tokens were REALLY drawn from, after temperature and truncation. None when all is certain.
    q_row [B, N] which row of q a node was drawn from; siblings share theirs; -1 marks a node that is certain. None
          means that q has one row a node (Q == N) and children were drawn from their parent's row.
    """

    tree: TokenTree
    q: Tensor | None = None
    draw: Draw = "certain"
    q_row: Tensor | None = None
    confidence: Tensor | None = None  # [B, N] the drafter's probability of a node given its path; no rule looks at it

    def __post_init__(self) -> None:
        if (self.q is None) != (self.draw == "certain"):
            raise ValueError(f"draw={self.draw!r} {'needs' if self.q is None else 'has no use for'} q")
        if self.q is not None and self.q_row is None and self.q.shape[1] != self.tree.size:
            raise ValueError(f"q has {self.q.shape[1]} rows for {self.tree.size} nodes: say with q_row which is whose")

    @property
    def source(self) -> Tensor:
        """[B, N] the row of q each node was drawn from, -1 where it is certain."""
        if self.q is None:
            return self.tree.parent.new_full(self.tree.parent.shape, -1)
        return self.tree.parent if self.q_row is None else self.q_row


@dataclass(frozen=True, slots=True)
class Reading:
    """What a model says about the nodes it has just read."""

    logits: Tensor  # [B, M, V], or of as many last nodes as were asked for
    feature: Tensor | None = None  # [B, M, F] the taps asked for, side by side


@dataclass(frozen=True, slots=True)
class Tests:
    """Every acceptance test a rule made, for the record. Values at nodes without a test are not looked at."""

    outcome: Tensor  # [B, N] int64: 0 not tested, 1 accepted, 2 rejected
    p: Tensor  # [B, N] target probability of the node's token given its path
    q: Tensor  # [B, N] probability it was drawn with; 1 when certain
    accept: Tensor  # [B, N] probability that this test accepts
    u: Tensor  # [B, N] the uniform number used, accepted when u < accept; NaN where nothing was left to chance


@dataclass(frozen=True, slots=True)
class Verdict:
    """tip: the last accepted node, its path is what was accepted. bonus: the token that the target adds after the tip,
    called a *correction* when a child of the tip was tested and rejected."""

    tip: Tensor  # [B]
    bonus: Tensor  # [B]
    tests: Tests | None = None


class KVCache(Protocol):
    """Keys and values of the committed tokens, then provisional ones of one tree. Between steps a cache holds all
    committed tokens but the pending one."""

    length: Tensor  # [B] settled slots
    used: int  # an upper bound of `length`, known on the host
    filled: np.ndarray  # [B] settled slots that the host knows of
    found: dict[Hashable, int]  # how many tokens of a request were found in the prefix cache when it came

    def write(self, layer: int, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Put k, v [B, heads, M, size] of nodes start..start+M; return all keys and values in reach of the nodes."""
        ...

    def keep(self, tree: TokenTree, path: Tensor) -> None:
        """Settle the nodes where path [B, N] is True and forget the other provisional ones."""
        ...

    def trust(self, host: np.ndarray, filled: np.ndarray) -> None:
        """The host vouches that the first `filled` [B] tokens of each row of `host` [B, S] are settled now."""
        ...

    def agree(self, context: Context) -> None:
        """Make the rows those of the context's requests, and trust only the common prefix of what is settled and what is
        committed now, the pending token left out."""
        ...

    def release(self, who: Hashable) -> None:
        """Give back what a request holds, if it holds anything."""
        ...

    def file(self, feature: Tensor, slot: Tensor, real: Tensor) -> None:
        """Keep features [B, M, F] of the tokens at slots [B, M] where `real` with what the prefix cache shares."""
        ...

    def recall(self, row: int, count: int) -> Tensor:
        """[count, F] features of a row's first tokens."""
        ...


class Reader(Protocol):
    """Something with a key-value cache that can read token trees: a model, or a draft head with its features."""

    def read(
        self, tree: TokenTree, cache: KVCache, start: int = 0, *, taps: Sequence[Tap] = (), last: int | None = None
    ) -> Reading:
        """Read the nodes from `start` on, the earlier ones being in the provisional slots already. Logits come for the
        `last` nodes, for all when None."""
        ...


class LM(Reader, Protocol):
    """A causal language model that can read token trees."""

    vocab: int
    limit: int  # positions it can hold

    def open(self, rows: int, slots: int, paging: Paging | None = None) -> KVCache:
        """An empty cache for `rows` rows, with room for `slots` tokens a row at first."""
        ...


class Sampler(Protocol):
    """The sampling parameters and the keyed randomness of a batch, bound to what is committed now.

    The token at depth d of a tree gets absolute position length - 1 + d; rules speak of depth and never of positions.
    """

    @property
    def greedy(self) -> bool:
        """Every row at temperature 0, known on the host."""
        ...

    def probs(self, logits: Tensor, tree: TokenTree, start: int = 0) -> Tensor:
        """[B, M, V] distributions after temperature, truncation and penalties, from logits of the nodes from `start`
        on, each along its own path."""
        ...

    def processed(self, logits: Tensor, tree: TokenTree, start: int = 0) -> Tensor:
        """[B, M, V] logits of the nodes from `start` on with biases, penalties and constraints of each one's path, before
        temperature and truncation."""
        ...

    def best(self, logits: Tensor, tree: TokenTree) -> Tensor:
        """[B, N] what each node's distribution has all its mass on at temperature 0, without making the distribution."""
        ...

    def coin(self, prob: Tensor, depth: Tensor, lane: Tensor | int = 0) -> tuple[Tensor, Tensor]:
        """[B] bool, True with probability prob [B], and the uniform number used. depth [B] >= 1 is the tested node's;
        lane tells tests of one depth apart (its rank among its siblings)."""
        ...

    def emit(self, probs: Tensor, depth: Tensor) -> Tensor:
        """[B] tokens for depth [B] from probs [B, V], which need not be normalised."""
        ...

    def guess(self, probs: Tensor, depth: int, lanes: int = 1) -> Tensor:
        """[B, M, lanes] draft tokens for `depth`, drawn independently from probs [B, M, V]."""
        ...

    def guess_coupled(self, probs: Tensor, depth: int) -> Tensor:
        """[B, M] draft tokens for `depth`: what `emit` would draw there if probs [B, M, V] were the target's."""
        ...

    def apart(self, salt: int) -> Sampler:
        """The same sampler with noise of its own for `guess`: for several drafters in one step."""
        ...


class Drafter(Protocol):
    """Guesses. It keeps nothing that it could not rebuild from the context, so it may be swapped at any step.

    A drafter that wants target features says so by an attribute `taps: tuple[Tap, ...]`. One that reads through the
    target's cache names that target by an attribute `shares: LM`; the cache then holds all committed tokens but the pending
    one, and what the drafter leaves in the provisional slots is overwritten by the target. One that learns from the
    target's own predictions has a method `observe(context, proposal, logits, verdict)`, called in every step after the rule;
    context and proposal are those of the step, logits [B, N, V] the target's after each node. It must not change them. A drafter
    made of others names them by an attribute `parts`; taps and `observe` are then asked of those."""

    def propose(self, context: Context) -> Proposal: ...


class Shape(Protocol):
    """How a tree grows from a model's predictions. `depth` is the number of levels below the root, at most."""

    @property
    def draw(self) -> Draw: ...

    @property
    def depth(self) -> int: ...

    def level(self, depth: int, score: Tensor, probs: Tensor, sampler: Sampler) -> tuple[Tensor, Tensor] | None:
        """The nodes of `depth` (1 for the children of the root) from the path scores [B, M] (natural logarithms) and
        next-token probs [B, M, V] of the nodes read last: each new node's slot among those and its token (-1 for
        none), both [B, W], siblings in draw order; or None to stop early."""
        ...

    def expand(self, depth: int, score: Tensor) -> Tensor:
        """[B, M] rising indices of the level's nodes that are read to grow the next one, from their scores [B, W]."""
        ...

    def keep(self, score: Tensor) -> Tensor | None:
        """[B, K] rising indices of the nodes to send, closed under parents, from all path scores [B, N]; None for all."""
        ...


class ShapeChoice(Protocol):
    """Stands where a shape stands, and chooses one anew in every step."""

    def pick(self, context: Context) -> Shape | None:
        """The shape of this step; None to guess nothing and spend nothing."""
        ...


class Rule(Protocol):
    """Decides which guesses are accepted. All rows at once, no host sync, all chance through the sampler.

    A rule may carry `lossless: bool` and `draws: frozenset[Draw]`, the draws it is made for; any other proposal is then
    refused by name."""

    def __call__(self, proposal: Proposal, logits: Tensor, sampler: Sampler) -> Verdict: ...


class Watcher(Protocol):
    """Looks at records while they come. Called now and then with those it has not had; its errors never reach the loop."""

    def __call__(self, records: Sequence[StepRecord]) -> None: ...

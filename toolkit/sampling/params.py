"""What a request asks of sampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from toolkit.draws import mix
from toolkit.sampling import check

if TYPE_CHECKING:
    from toolkit.sampling.grammar import Grammar

Processor = Callable[[Tensor, Tensor], Tensor]
"""(input_ids [k, L], scores [k, V]) to scores [k, V]: the calling convention of Hugging Face's LogitsProcessor."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of one request.

    Applied in the order of the fields of Hugging Face's `generate`: logit_bias, repetition_penalty, presence_penalty
    and frequency_penalty, bad_words, min_new_tokens, allowed, grammar, forced, processors; then, above temperature 0,
    temperature, top_k, top_p, min_p, typical_p. At temperature 0 the likeliest token of the processed logits is taken.
    Every token sees the text before it on its own path of the tree, and nothing of its siblings.

    temperature  0 is greedy. None means 0 when nothing else is asked for, and 1 when a filter is set, so that
                 `Sampling(top_k=40)` samples. Filters are top_k, top_p, min_p and typical_p.
    top_k        keep the k most likely tokens (ties with the k-th are kept); 0 keeps all.
    top_p        keep the smallest set of most likely tokens whose mass reaches top_p; in (0, 1].
    min_p        keep tokens at least min_p times as likely as the most likely one; in [0, 1].
    seed         names the randomness: the same seed and prompt give the same draws. Any int64 number.
    typical_p    keep the tokens whose surprise is nearest to the entropy until their mass reaches typical_p; in (0, 1]
                 (Meister et al. 2023, "Locally typical sampling").
    repetition_penalty  divides the positive and multiplies the negative logits of all tokens of prompt and new text
                 (Keskar et al. 2019, "CTRL", section 4.1); 1 changes nothing.
    presence_penalty    subtracted once from the logit of a token that stands in the new text; the prompt does not count.
    frequency_penalty   subtracted once for each time it stands in the new text.
    logit_bias   token id, or tuple of ids, to a number added to the logit. A sequence's number is added to its last
                 token where the tokens before it stand at the end of the text, prompt included.
    bad_words    sequences of ids that never come out; they are looked for in the prompt as well. A stop token alone is
                 obeyed like any other (transformers drops it from the list).
    min_new_tokens  no stop token of the request before this many new tokens.
    allowed      the only ids that may come out; None allows all.
    forced       index of a new token (0 is the first) to the id that must stand there.
    grammar      what the new text must obey, made by `toolkit.sampling.grammar.Grammars`.
    processors   functions like Hugging Face's LogitsProcessors. They must depend on their arguments alone: guesses are
                 scored that are later refused, and several nodes come in one call.
    logprobs     record each new token's log-probability and this many likeliest alternatives; None records nothing.
    logprobs_of  "raw" is the model's own distribution, "processed" what the token was drawn from.

    Raises ValueError, naming the value and its limits.
    """

    temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int | tuple[int, ...], float] = field(default_factory=dict, hash=False)
    bad_words: Sequence[Sequence[int]] = field(default=(), hash=False)
    min_new_tokens: int = 0
    allowed: Sequence[int] | None = field(default=None, hash=False)
    forced: Mapping[int, int] = field(default_factory=dict, hash=False)
    processors: Sequence[Processor] = field(default=(), hash=False)
    grammar: Grammar | None = None
    logprobs: int | None = None
    logprobs_of: Literal["raw", "processed"] = "raw"

    def __post_init__(self) -> None:
        check.filters(self.temperature, self.top_k, self.top_p, self.min_p, self.typical_p)
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed must fit into 64 bits with sign; got {self.seed}")
        check.penalties(self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        check.constraints(self.biases, self.bad_words, self.min_new_tokens, self.allowed, self.forced)
        check.outputs(self.processors, self.logprobs, self.logprobs_of)

    @property
    def heat(self) -> float:
        """The temperature meant: see `temperature`."""
        if self.temperature is not None:
            return float(self.temperature)
        return 1.0 if self.top_k or self.top_p < 1 or self.min_p or self.typical_p < 1 else 0.0

    @property
    def biases(self) -> dict[tuple[int, ...], float]:
        """`logit_bias` with every key a sequence."""
        return {(k,) if isinstance(k, int) else tuple(k): float(v) for k, v in self.logit_bias.items()}

    def sample(self, index: int) -> Sampling:
        """The request that draws the index-th of several samples of one prompt: 0 is this one, the others have seeds
        derived from its seed."""
        if index == 0:
            return self
        return replace(self, seed=int(mix(mix(torch.tensor(self.seed)) + index)))

"""Sampling parameters that make no sense, each refused in one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkit.sampling.params import Sampling
    from toolkit.sampling.stopping import Stopping


def filters(temperature: float | None, top_k: int, top_p: float, min_p: float, typical_p: float) -> None:
    if temperature is not None and not (0 <= temperature < math.inf):
        raise ValueError(f"temperature must be a finite number >= 0 (0 is greedy); got {temperature}")
    if not float(top_k).is_integer() or top_k < 0:
        raise ValueError(f"top_k must be a whole number >= 0 (0 keeps all tokens); got {top_k}")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1] (1 keeps all tokens); got {top_p}")
    if not 0 <= min_p <= 1:
        raise ValueError(f"min_p must lie in [0, 1] (0 keeps all tokens); got {min_p}")
    if not 0 < typical_p <= 1:
        raise ValueError(f"typical_p must lie in (0, 1] (1 keeps all tokens); got {typical_p}")


def penalties(repetition: float, presence: float, frequency: float) -> None:
    if not 0 < repetition < math.inf:
        raise ValueError(f"repetition_penalty must be a finite number > 0 (1 changes nothing); got {repetition}")
    for name, value in (("presence_penalty", presence), ("frequency_penalty", frequency)):
        if not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number (0 changes nothing); got {value}")


def constraints(
    biases: Mapping[tuple[int, ...], float],
    bad_words: Sequence[Sequence[int]],
    min_new_tokens: int,
    allowed: Sequence[int] | None,
    forced: Mapping[int, int],
) -> None:
    for ids, bias in biases.items():
        if not ids or min(ids) < 0:
            raise ValueError(f"a key of logit_bias must be a token id >= 0 or a non-empty tuple of them; got {ids}")
        if math.isnan(bias) or bias == math.inf:
            raise ValueError(f"logit_bias of {ids} must be a number below infinity (-inf forbids); got {bias}")
    for word in bad_words:
        if isinstance(word, int) or not len(word) or min(word) < 0:
            raise ValueError(f"each of bad_words must be a non-empty sequence of token ids >= 0; got {word!r}")
    if not float(min_new_tokens).is_integer() or min_new_tokens < 0:
        raise ValueError(f"min_new_tokens must be a whole number >= 0; got {min_new_tokens}")
    if allowed is not None:
        banned = {w[0] for w in bad_words if len(w) == 1} | {
            i[0] for i, b in biases.items() if (len(i), b) == (1, -math.inf)
        }
        if not set(allowed) - banned or min(allowed) < 0:
            raise ValueError(f"allowed must hold a token id >= 0 that is not forbidden as well; got {tuple(allowed)}")
    for index, token in forced.items():
        if index < 0 or token < 0:
            raise ValueError(f"forced maps the index >= 0 of a new token to a token id >= 0; got {index}: {token}")


def outputs(processors: Sequence[object], logprobs: int | None, logprobs_of: str) -> None:
    for processor in processors:
        if not callable(processor):
            raise ValueError(
                f"a processor is called with input_ids and scores; got {processor!r}, which is not callable"
            )
    if logprobs is not None and (not float(logprobs).is_integer() or logprobs < 0):
        raise ValueError(f"logprobs must be None or a whole number >= 0 of alternatives; got {logprobs}")
    if logprobs_of not in ("raw", "processed"):
        raise ValueError(f"logprobs_of must be 'raw' or 'processed'; got {logprobs_of!r}")


def request(sampling: Sampling, stopping: Stopping, vocab: int) -> None:
    """Raise ValueError when sampling asks for tokens the model has not, or leaves nothing to say."""
    ids = [t for seq in (*sampling.biases, *sampling.bad_words) for t in seq]
    ids += [*(sampling.allowed or ()), *sampling.forced.values()]
    if ids and max(ids) >= vocab:
        raise ValueError(f"sampling names token {max(ids)}, outside the target's vocabulary 0..{vocab - 1}")
    if (sampling.logprobs or 0) > vocab:
        raise ValueError(f"logprobs asks for {sampling.logprobs} alternatives, and the vocabulary has {vocab} tokens")
    if sampling.grammar and (sampling.min_new_tokens or stopping.strings):
        raise ValueError(
            "the end of a grammar ends a request, and min_new_tokens or stop strings would end it elsewhere: drop either"
        )
    if sampling.min_new_tokens > stopping.max_new_tokens:
        raise ValueError(
            f"min_new_tokens is {sampling.min_new_tokens} and max_new_tokens {stopping.max_new_tokens}: "
            f"ask for at least as many as the minimum"
        )
    if sampling.min_new_tokens and sampling.allowed is not None and not set(sampling.allowed) - set(stopping.tokens):
        raise ValueError("min_new_tokens forbids the stop tokens, and allowed holds nothing else: allow another token")

"""Output that obeys a grammar: a JSON schema, a regular expression or an EBNF.

llguidance says which tokens may come next; here its matcher walks the tree, so that each node has the mask of its own
path. A matcher follows the text by the common prefix: what it has read and is no longer there is rolled back, what is
new is read. Rejected guesses, rewinding and swapped parts need no further code.

    grammars = Grammars(tokenizer)
    Sampling(grammar=grammars.json({"type": "object"}))

The end of the grammar ends the request, with the reason "grammar".

Letters: B rows, M nodes, V vocabulary.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toolkit.sampling.constraints import fit
from toolkit.sampling.paths import Paths


@dataclass(frozen=True, slots=True)
class Grammar:
    """Made by `Grammars`."""

    text: str
    tokenizer: Any = field(repr=False, compare=False)

    def walk(self) -> Walk:
        """A matcher at the beginning."""
        return Walk(_library().LLMatcher(self.tokenizer, self.text), self.tokenizer.vocab_size)


class Grammars:
    """Grammars over the tokens of a fast Hugging Face tokenizer. Takes about a second to make: keep it.

    `end` is the token that may end a text early, the tokenizer's own end token unless given. Raises ValueError without
    one, and for a grammar that llguidance refuses; ImportError, with the remedy, without llguidance.
    """

    def __init__(self, tokenizer: Any, end: int | None = None) -> None:
        end = tokenizer.eos_token_id if end is None else end
        if end is None:
            raise ValueError("a grammar needs an end token, and the tokenizer has none: give one by `end`")
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise ValueError(f"a grammar needs a fast tokenizer; got {type(tokenizer).__name__}")
        self._tokenizer = _library().LLTokenizer(tokenizer.backend_tokenizer.to_str(), eos_token=end)

    def json(self, schema: Mapping[str, Any] | None = None) -> Grammar:
        """Text that is valid JSON of a JSON schema; None is any object."""
        schema = {"type": "object"} if schema is None else dict(schema)
        return self._checked(_library().LLMatcher.grammar_from_json_schema(schema))

    def regex(self, pattern: str) -> Grammar:
        """Text that matches the whole pattern, in the syntax of Rust's regex crate."""
        return self._checked(_library().LLMatcher.grammar_from_regex(pattern))

    def ebnf(self, text: str) -> Grammar:
        """An EBNF in Lark's notation, whose first rule is `start`."""
        return self._checked(_library().LLMatcher.grammar_from_lark(text))

    def _checked(self, text: str) -> Grammar:
        if wrong := _library().LLMatcher.validate_grammar(text, self._tokenizer):
            raise ValueError(f"the grammar is refused: {wrong.strip().splitlines()[0]}")
        return Grammar(text, self._tokenizer)


@dataclass(slots=True)
class Walk:
    """A matcher and what it has read."""

    matcher: Any
    vocab: int
    read: list[int] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Nothing may follow."""
        return self.matcher.is_stopped()

    def go(self, text: Sequence[int]) -> bool:
        """Stand after `text`; False, and somewhere before, when the grammar forbids it or ends earlier."""
        same = next((i for i, (a, b) in enumerate(zip(self.read, text, strict=False)) if a != b), None)
        same = min(len(self.read), len(text)) if same is None else same
        if back := len(self.read) - same:
            self.matcher.rollback(back)
            del self.read[same:]
        for token in text[same:]:
            if self.ended or token >= self.vocab or not self.matcher.try_consume_tokens([token]):
                return False
            self.read.append(token)
        return True

    def mask(self) -> np.ndarray:
        """[V] bool: what may come next."""
        bits = np.frombuffer(self.matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self.vocab].astype(bool)


@dataclass(frozen=True, slots=True)
class Grammatical:
    """The stage of a batch. Works on the host, so it waits for the device; only batches that use it pay.

    Nodes whose path the grammar forbids keep their logits: nothing can reach them, as their token has no probability.
    """

    walks: tuple[Walk | None, ...]  # None in rows without a grammar

    def __call__(self, logits: Tensor, paths: Paths) -> Tensor:
        out, tree, start = logits.clone(), paths.tree, paths.start
        lengths, prompts = paths.length.tolist(), paths.prompt.tolist()
        parents, tokens, reals = tree.parent.tolist(), tree.token.tolist(), tree.real.tolist()
        for b, walk in enumerate(self.walks):
            if walk is None:
                continue
            texts: list[list[int]] = [paths.token[b, prompts[b] : lengths[b]].tolist()]
            for i in range(1, tree.size):
                texts.append([*texts[parents[b][i]], tokens[b][i]] if reals[b][i] else [])
            nodes = [i for i in range(start, tree.size) if reals[b][i]]
            for i in sorted(nodes, key=texts.__getitem__):  # neighbours share most of their paths
                if walk.go(texts[i]) and not walk.ended:
                    mask = fit(torch.from_numpy(walk.mask())[None], logits.shape[-1])[0]
                    out[b, i - start] = out[b, i - start].masked_fill(~mask.to(out.device), -torch.inf)
                    if i == 0 and bool((out[b, 0] == -torch.inf).all()):
                        raise ValueError(
                            f"the grammar of row {b} and its other constraints leave no token after {len(texts[0])} new ones: "
                            f"drop one of them"
                        )
        return out


def _library() -> Any:
    try:
        return importlib.import_module("llguidance")
    except ImportError as error:
        raise ImportError("grammars need the package llguidance: run `pip install llguidance`") from error

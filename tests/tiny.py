"""Tiny random models, drafters that say what a test wants, and the reference outputs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from toolkit.models.hf import HFModel
from toolkit.models.zoo import Loaded
from toolkit.protocols import Context, Proposal
from toolkit.tree import TokenTree

V = 64
PROMPTS = [[1, 2, 3, 4, 5], [7, 8, 9], [4] * 17, [5, 6]]


@functools.cache
def tiny(seed: int = 0, layers: int = 2, vocab: int = V, sharp: float = 3.0) -> LlamaForCausalLM:
    """A random Llama in float64 whose weights are scaled up so that its arg-max is decided. Shared: do not change it."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        pad_token_id=0,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).double().eval()
    for p in model.parameters():
        p.data.mul_(sharp if p.ndim > 1 else 1)
    return model


@functools.cache
def lm(seed: int = 0, layers: int = 2, vocab: int = V, sharp: float = 3.0) -> HFModel:
    return HFModel(tiny(seed, layers, vocab, sharp))


@functools.cache
def noisy_lm(seed: int = 0, sd: float = 0.05) -> HFModel:
    """The target with noise on its LM head: a drafter that is right now and then."""
    torch.manual_seed(seed + 100)
    model = LlamaForCausalLM(tiny(seed).config).double().eval()
    model.load_state_dict(tiny(seed).state_dict())
    model.lm_head.weight.data.add_(torch.randn_like(model.lm_head.weight) * sd * model.lm_head.weight.std() * 10)
    return HFModel(model)


@torch.inference_mode()
def reference(model: PreTrainedModel, prompt: Sequence[int], n: int, end: int | None = None) -> list[int]:
    """transformers' own greedy decoding."""
    out = model.generate(
        torch.tensor([list(prompt)]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=n,
        do_sample=False,
        eos_token_id=end,
        pad_token_id=0,
    )
    return out[0, len(prompt) :].tolist()


@functools.cache
def greedy(seed: int = 0, n: int = 40) -> list[list[int]]:
    """`reference` for all PROMPTS."""
    return [reference(tiny(seed), p, n) for p in PROMPTS]


@dataclass
class Scripted:
    """Proposes, in every step, what `say(context, row)` returns: paths of token ids."""

    say: object

    def propose(self, context: Context) -> Proposal:
        paths = [self.say(context, b) for b in range(context.rows)]
        return Proposal(TokenTree.from_paths(context.pending, paths))


@dataclass
class Knows:
    """Knows the right continuation of each row, and proposes `length` tokens of it, spoiled from `wrong_at` on."""

    answers: Sequence[Sequence[int]]
    starts: Sequence[int]
    length: int = 4
    wrong_at: int | None = None

    def propose(self, context: Context) -> Proposal:
        paths = []
        for b in range(context.rows):
            at = context.lengths[b] - self.starts[b]
            path = list(self.answers[b][at : at + self.length])
            if self.wrong_at is not None:
                path = [t if i < self.wrong_at else (t + 1) % V for i, t in enumerate(path)]
            paths.append([path] if path else [])
        return Proposal(TokenTree.from_paths(context.pending, paths))


@dataclass
class RandomTrees:
    """Trees of random shape; one path in each follows the answers for a while, so that some drafts are accepted."""

    answers: Sequence[Sequence[int]]
    starts: Sequence[int]
    seed: int = 0
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def _int(self, high: int) -> int:
        return int(torch.randint(0, high, (1,), generator=self.generator))

    def propose(self, context: Context) -> Proposal:
        paths = []
        for b in range(context.rows):
            at = context.lengths[b] - self.starts[b]
            right = list(self.answers[b][at : at + self._int(4)])
            guesses = [[self._int(V) for _ in range(1 + self._int(3))] for _ in range(self._int(4))]
            guesses += [[*right[: self._int(len(right) + 1)], self._int(V)]]
            paths.append(guesses)
        tree = TokenTree.from_paths(context.pending, paths)
        return Proposal(TokenTree(tree.token, tree.parent, tree.real))


class Parrot:
    """Repeats the pending token."""

    def propose(self, context: Context) -> Proposal:
        return Proposal(TokenTree.chain(context.pending.expand(-1, 4)))


def exact_law(model: PreTrainedModel, prompt: Sequence[int], probs: object, steps: int) -> dict[tuple[int, ...], float]:
    """The joint law of the next `steps` tokens by enumeration; `probs(logits [V]) -> [V]` applies the sampling."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(steps):
        grown: dict[tuple[int, ...], float] = {}
        for path, mass in law.items():
            with torch.inference_mode():
                logits: Tensor = model(input_ids=torch.tensor([[*prompt, *path]]), use_cache=False).logits[0, -1]
            for token, p in enumerate(probs(logits).tolist()):
                if p > 0:
                    grown[(*path, token)] = mass * p
        law = grown
    return law


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level, without merges: 256 ids, an emoji is four tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


@functools.cache
def loaded(seed: int = 0, layers: int = 2) -> Loaded:
    """A tiny model with a tokenizer, for everything that shows text."""
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=2048,
            eos_token_id=None,
            bos_token_id=None,
        )
    ).eval()
    torch.manual_seed(seed)
    for p in model.parameters():
        p.data.normal_(0, 0.3 if p.ndim > 1 else 0.0)
        if p.ndim == 1:
            p.data.fill_(1.0)
    model.generation_config.eos_token_id = None
    return Loaded("tiny", model, tokenizer())

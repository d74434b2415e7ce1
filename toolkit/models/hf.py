"""Any Hugging Face causal language model as an `LM`.

Letters: B rows, N nodes, M nodes just read, V vocabulary, F features.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from toolkit.cache import LayerSpec, Slab, Store, layout_for
from toolkit.models.attention import attention_configs, our_attention
from toolkit.models.masks import additive, near, positions, visible
from toolkit.models.taps import Taps, layers_of
from toolkit.protocols import KVCache, Paging, Reading, Tap
from toolkit.tree import TokenTree

KINDS = ("full_attention", "sliding_attention")


class HFModel:
    """Reads token trees with an unchanged transformers model.

    The model is used as it is: nothing is patched and nothing stays behind on it between reads. At construction a
    five-token tree is read and compared with plain passes over its paths; a model that cannot read trees (recurrent or
    linear-attention layers, ALiBi without position ids, ...) is refused in one sentence, before any work.

    vocab  size of the vocabulary; limit  positions the model was made for.
    Raises ValueError for models that cannot read trees.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        name = type(model).__name__
        self.model = model.eval()
        self.config = model.config.get_text_config()
        self.name = name
        self.vocab = int(self.config.vocab_size)
        self.limit = int(getattr(self.config, "max_position_embeddings", None) or 2**31)
        self.layers = int(self.config.num_hidden_layers)
        self.kinds = tuple(dict.fromkeys(getattr(self.config, "layer_types", None) or ("full_attention",)))
        self.dtype = model.dtype
        self.part_of: HFModel | None = None  # the model whose first layers these are
        self._takes = frozenset(inspect.signature(model.forward).parameters)
        self.decoder = _refuse_by_name(self)  # the decoder layers, in order
        self._configs = attention_configs(model)
        self.specs = _look(self)
        _compare(self)

    @property
    def device(self) -> torch.device:
        """Where token ids go: the device of the input embeddings."""
        return next(self.model.get_input_embeddings().parameters()).device

    @property
    def embedding(self) -> nn.Module:
        """Token ids to input states, for draft heads to share."""
        return self.model.get_input_embeddings()

    @property
    def unembedding(self) -> nn.Linear:
        """The LM head, for draft heads to share. Raises ValueError for a model whose head is not one linear map."""
        head = self.model.get_output_embeddings()
        if not isinstance(head, nn.Linear):
            raise ValueError(f"{self.name} has no linear LM head that a draft head could share")
        return head

    def __repr__(self) -> str:
        return f"HFModel({self.name}, {self.layers} layers, {str(self.dtype).removeprefix('torch.')}, {self.device})"

    def open(self, rows: int, slots: int, paging: Paging | None = None) -> Store:
        """An empty cache for `rows` rows, with room for `slots` tokens at first."""
        return Store.empty(layout_for(paging), self.specs, rows, slots, self.device)

    @torch.inference_mode()
    def read(
        self, tree: TokenTree, cache: KVCache, start: int = 0, *, taps: Sequence[Tap] = (), last: int | None = None
    ) -> Reading:
        """Read the nodes from `start` on; their keys go to the cache's provisional slots.

        Returns logits [B, M, V] of all these nodes, or of the `last` ones alone, in the model's dtype, and the tapped
        features [B, M, F]. Long prompts want few logits: each costs a row of the LM head.
        """
        layers = [_Layer(cache, i, start) for i in range(self.layers)]
        with our_attention(self._configs), Taps(self.model, self.decoder, taps) as tapped:
            out = self._forward(tree, cache, start, layers, last)
        skip = 0 if last is None else out.logits.shape[1] - last
        return Reading(out.logits[:, skip:], tapped.features())

    def _forward(self, tree: TokenTree, cache: KVCache, start: int, layers: list[Any], last: int | None) -> Any:
        extra: dict[str, Any] = {}
        if last is not None and "logits_to_keep" in self._takes:
            extra["logits_to_keep"] = max(1, last)  # transformers takes 0 for all
        return self.model(
            input_ids=tree.token[:, start:],
            position_ids=positions(tree, cache)[:, start:].clamp(max=self.limit - 1),
            attention_mask=self._masks(tree, cache, start),
            use_cache=True,
            cache=Cache(layers=layers),
            **extra,
        )

    def _masks(self, tree: TokenTree, cache: KVCache, start: int) -> Tensor | dict[str, Tensor]:
        """One mask a kind of layer: a single 4-D mask on a model with a sliding window would drop the window."""
        window = getattr(self.config, "sliding_window", None)
        if self._sees_all(tree, cache, window):
            empty = torch.empty(tree.rows, 1, 1, 0, dtype=self.dtype, device=tree.token.device)
            return dict.fromkeys(self.kinds, empty) if len(self.kinds) > 1 else empty
        full = visible(tree, cache, start)
        sliding = full & near(tree, cache, start, window) if window else full
        masks = {k: additive(sliding if k == "sliding_attention" else full, self.dtype) for k in self.kinds}
        if getattr(self.config, "layer_types", None) is None:  # one unnamed kind, and the window is for all layers
            return additive(sliding, self.dtype)
        return masks if len(masks) > 1 else masks[self.kinds[0]]

    def _sees_all(self, tree: TokenTree, cache: KVCache, window: int | None) -> bool:
        """Is this plain decoding of rows of one length: then a mask would only cost time, twice that of attention."""
        level = bool((cache.filled == cache.used).all())
        return bool(self._configs) and tree.size == 1 and level and (not window or cache.used < window)


class _Layer(CacheLayerMixin):
    """One layer's window onto our cache, in the shape transformers asks for."""

    is_sliding = False

    def __init__(self, cache: KVCache, layer: int, start: int) -> None:
        super().__init__()
        self.cache, self.layer, self.start = cache, layer, start

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to prepare: the cache made its memory when it was opened."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self.cache.write(self.layer, self.start, key_states, value_states)

    def get_seq_length(self) -> int:
        return self.cache.used + self.start

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1


class _Notes(CacheLayerMixin):
    """Notes what a layer writes, and keeps nothing."""

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.spec: LayerSpec | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to prepare."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        k, v = key_states, value_states
        self.spec = LayerSpec(k.shape[1], k.shape[3], v.shape[3], k.device, k.dtype)
        return k, v

    def get_seq_length(self) -> int:
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_max_length(self) -> int:
        return -1


def _refuse_by_name(lm: HFModel) -> nn.ModuleList:
    remedy = "choose a decoder with ordinary attention in every layer (Llama, Qwen, Mistral, Gemma, GPT-OSS, ...)"
    if odd := sorted(set(lm.kinds) - set(KINDS)):
        raise ValueError(f"{lm.name} cannot read token trees: it has {', '.join(odd)} layers; {remedy}")
    if "position_ids" not in lm._takes or getattr(lm.config, "alibi", False):
        raise ValueError(
            f"{lm.name} cannot read token trees: siblings of a tree share a position, and it takes no position_ids; {remedy}"
        )
    if getattr(lm.config, "is_encoder_decoder", False):
        raise ValueError(f"{lm.name} is an encoder-decoder, not a causal language model; {remedy}")
    layers = layers_of(lm.model)
    if "cache" not in lm._takes or layers is None:
        raise ValueError(f"{lm.name} has no layer list or takes no key-value cache; {remedy}")
    return layers


def _scratch_tree(lm: HFModel) -> TokenTree:
    """Five tokens with a branch; ids from the middle of the vocabulary, to stay clear of special ones."""
    parent = torch.tensor([[-1, 0, 0, 1, 2]], device=lm.device)
    token = torch.arange(5, device=lm.device)[None] * 7 % lm.vocab + lm.vocab // 2
    return TokenTree(token % lm.vocab, parent, torch.ones_like(parent, dtype=torch.bool))


@torch.inference_mode()
def _look(lm: HFModel) -> dict[int, LayerSpec]:
    """What each layer writes, seen by letting it write once."""
    tree = TokenTree.chain(_scratch_tree(lm).token[:, :1])
    notes = [_Notes() for _ in range(lm.layers)]
    with our_attention(lm._configs):
        lm._forward(tree, Store.empty(Slab(), {}, 1, 1, lm.device), 0, notes, last=None)
    return {i: replace(note.spec, window=_window(lm.config, i)) for i, note in enumerate(notes) if note.spec}


def _window(config: Any, layer: int) -> int | None:
    """How far back a layer looks; None for all."""
    window, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    return window if window and (kinds is None or kinds[layer] == "sliding_attention") else None


@torch.inference_mode()
def _compare(lm: HFModel) -> None:
    """Raise ValueError unless a tree read after a two-token prefix gives what plain passes over its paths give."""
    tree, cache = _scratch_tree(lm), lm.open(1, 8)
    prefix = TokenTree.chain(tree.token[:, 3:])
    lm.read(prefix, cache)
    cache.keep(prefix, prefix.real)
    got = lm.read(tree, cache).logits
    for path in ([0, 1, 3], [0, 2, 4]):
        ids = torch.cat([prefix.token, tree.token[:, path]], 1)
        want = lm.model(input_ids=ids, use_cache=False).logits[:, 2:]
        if not want.isfinite().all():
            raise ValueError(
                f"{lm.name} gives logits that are not finite numbers: its weights are broken, load them again"
            )
        gap, scale = (got[:, path] - want).abs().max().item(), want.abs().max().item()
        allowed = 0.1 if lm.dtype in (torch.bfloat16, torch.float16) else 1e-3
        if not gap <= allowed * max(scale, 1e-6):
            raise ValueError(
                f"{lm.name} cannot read token trees: on a five-token tree its logits are off by {gap:.3g} (largest logit "
                f"{scale:.3g}) from plain passes over the same paths; its attention ignores masks or position ids"
            )

"""Checkpoints of draft heads: every layout told from every other, written and read back without the loss of a bit, and
refused in a sentence where it is broken, unsafe or has no words for a head."""

from __future__ import annotations

import copy
import functools
import json
import pickle
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tiny import PROMPTS, V, lm, tiny
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from toolkit.drafting import Chain, Eagle
from toolkit.engine import Engine
from toolkit.heads import BlockHead, Eagle3Head, EagleHead, MedusaHead, MTPHead, PEagleHead, dialects
from toolkit.heads.dialects import DIALECTS, Checkpoint
from toolkit.heads.dialects.values import Export
from toolkit.heads.whole import Causal
from toolkit.models.hf import HFModel
from toolkit.sampling import Stopping

LAYERS = 8
SOME = torch.tensor([3, 4, 7, 11, 12, 20, 33, 34, 35, 50, 51, 63])
SHUFFLED = SOME[torch.randperm(len(SOME), generator=torch.Generator().manual_seed(2))]


def target() -> HFModel:
    return lm(0, LAYERS)


def own(head: nn.Module) -> nn.Module:
    """The head with embeddings of its own, not unlike the target's."""
    rows = target().embedding.weight.detach()
    head.embed_tokens = nn.Embedding(*rows.shape, dtype=rows.dtype)
    head.embed_tokens.weight.data.copy_(rows + 0.1 * torch.randn_like(rows))
    return head


MAKE = {
    "eagle": lambda t: EagleHead.of(t),
    "eagle, no bias": lambda t: EagleHead.of(t, bias=False, layers=2),
    "eagle 3": lambda t: Eagle3Head.of(t, tokens=SOME),
    "eagle 3, shuffled": lambda t: Eagle3Head.of(t, tokens=SHUFFLED),
    "eagle 3, all tokens": lambda t: Eagle3Head.of(t),
    "eagle 3.1": lambda t: Eagle3Head.of(t, tokens=SOME, taps=(1, 4, 8), fc_norm=True),
    "eagle 3, one norm": lambda t: Eagle3Head.of(t, taps=(1, 2, 3, 4, 5), input_norm=True),
    "eagle 3, other switches": lambda t: Eagle3Head.of(t, tokens=SOME, norm_before_residual=True, norm_output=True, layers=3),
    "p-eagle": lambda t: PEagleHead.of(t, mask=9, depths=5, layers=2, tokens=SOME),
    "block": lambda t: BlockHead.of(t, mask=9, block=5),
    "block, anchored": lambda t: BlockHead.of(t, mask=9, block=4, anchored=True, taps=(2, 5)),
    "block, some tokens": lambda t: BlockHead.of(t, mask=9, own_lm_head=True, tokens=SOME),
    "block, markov": lambda t: BlockHead.of(t, mask=9, markov_rank=6, anchored=True, confidence="markov"),
    "block, gated": lambda t: BlockHead.of(
        t, mask=9, markov_rank=6, markov_kind="gated", anchored=True, confidence="state", own_lm_head=True, tokens=SOME
    ),
    "block, rnn": lambda t: BlockHead.of(t, mask=9, markov_rank=5, markov_kind="rnn", anchored=True),
    "mtp": lambda t: MTPHead.of(t),
    "medusa": lambda t: MedusaHead.of(t, heads=3),
    "medusa, own lm heads": lambda t: MedusaHead.of(t, heads=2, layers=2, own_lm_heads=True),
}  # fmt: skip


@functools.cache
def head(kind: str) -> nn.Module:
    """A head with random weights everywhere. Shared: do not change it."""
    made = MAKE[kind](target())
    torch.manual_seed(len(kind))
    for p in made.parameters():
        p.data.normal_(1 if p.ndim == 1 else 0, 0.3)
    return made


class Everything:
    """Attention to all that was remembered and to one another; answers `Attend` and a block head's `write`."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        self.kept[layer] = k, v

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (torch.cat(pair, 2) for pair in zip(self.kept[layer], (k, v), strict=True))
        return scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2)


@torch.inference_mode()
def logits(made: nn.Module) -> Tensor:
    """What a head says about random features, two guesses deep."""
    generator = torch.Generator().manual_seed(7)
    dtype = next(made.parameters()).dtype
    feature = torch.randn(2, 6, made.width, generator=generator, dtype=torch.float64).to(dtype)
    token, place = torch.randint(0, V, (2, 6), generator=generator), torch.arange(6).expand(2, 6)
    if isinstance(made, MedusaHead):
        return made(feature[:, 0])
    if isinstance(made, BlockHead):
        attend = Everything()
        made.remember(feature, place, attend.write)
        states = made.states(token[:, :1], 6 + torch.arange(made.block).expand(2, -1), attend)
        said = made.said(states)
        if made.markov_head is not None:
            before = token[:, :1].expand(states.shape[:2])
            memory = made.memory(token[:, :1], states).expand(-1, made.block, -1)
            said = said + made.markov_head.step(before, states, memory)[0]
        sure = [made.confidence(states, token[:, :1].expand(states.shape[:2]))] if made.confidence_head else []
        return torch.cat([made.widen(said).flatten(), *(s.flatten() for s in sure)])
    state = made(token, made.fuse(feature), place, Causal())
    out = [made.logits(state), made.logits(made(token, state, place, Causal()))]
    if isinstance(made, PEagleHead):
        out.append(made.logits(made.open_state().expand(2, -1, -1)))
    return torch.cat(out, 1)


def kept(made: nn.Module, layout: str, folder: Path, **how: object) -> tuple[dialects.Loaded, tuple[str, ...]]:
    """Saved and read back."""
    notes = dialects.save(made, folder, layout, target=target(), verifier="owner/name", **how)
    return dialects.load(folder, target()), notes


FAMILIES = (
    ("eagle", ("eagle1",)),
    ("eagle, no bias", ("eagle1",)),
    *product(
        ("eagle 3", "eagle 3, all tokens", "eagle 3.1", "eagle 3, one norm"),
        [("eagle3", "specforge", "modelopt", "speculators-eagle3")],
    ),
    ("eagle 3, other switches", ("speculators-eagle3",)),
    ("p-eagle", ("speculators-peagle",)),
    ("block", ("dflash", "speculators-dflash")),
    ("block, anchored", ("dflash", "speculators-dflash", "deepspec")),
    ("block, some tokens", ("speculators-dflash",)),
    ("block, markov", ("speculators-dspark", "deepspec")),
    ("block, rnn", ("speculators-dspark", "deepspec")),
    ("block, gated", ("speculators-dspark",)),
    ("mtp", ("mtp", "speculators-mtp")),
    ("medusa", ("medusa", "medusa-pt", "medusa-vllm")),
    ("medusa, own lm heads", ("medusa", "medusa-pt", "medusa-vllm")),
)
PAIRS = [(kind, a, b) for kind, layouts in FAMILIES for a, b in product(layouts, layouts)]


@pytest.mark.parametrize(("kind", "a", "b"), PAIRS)
def test_a_head_goes_from_layout_to_layout_without_the_loss_of_a_bit(kind, a, b, tmp_path):
    first, _ = kept(head(kind), a, tmp_path / "a")
    second, _ = kept(first.head, b, tmp_path / "b")
    assert (first.dialect, second.dialect) == (a, b)
    assert second.head.taps == head(kind).taps
    assert torch.equal(logits(second.head), logits(head(kind)))
    again = dialects.load(tmp_path / "b", target())
    assert again.head.state_dict().keys() == head(kind).state_dict().keys()
    for name, tensor in head(kind).state_dict().items():
        assert torch.equal(again.head.state_dict()[name], tensor), name


def test_every_layout_is_in_the_round_trips():
    assert {a for _, a, _ in PAIRS} == {d.name for d in DIALECTS}


@pytest.mark.parametrize("kind", ["eagle", "eagle 3", "p-eagle", "block, gated", "mtp", "medusa, own lm heads"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_dtypes_are_kept_bit_for_bit(kind, dtype, tmp_path):
    made = copy.deepcopy(head(kind)).to(dtype)
    layout = next(layouts[0] for k, layouts in FAMILIES if k == kind)
    back, _ = kept(made, layout, tmp_path)
    assert next(back.head.parameters()).dtype == dtype and torch.equal(logits(back.head), logits(made))
    assert {t.dtype for t in dialects.read(tmp_path).tensors.values()} <= {dtype, torch.bool, torch.int64}
    wide = dialects.load(tmp_path, target(), dtype=torch.float64)
    assert next(wide.head.parameters()).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_target_of_the_same_dtype_shares_what_is_its_own(dtype, tmp_path):
    """Embeddings and LM head of the file are the target's: they are not kept twice."""
    same = HFModel(copy.deepcopy(tiny(0, LAYERS, sharp=1.0)).to(dtype))
    made = BlockHead.of(same, mask=3, anchored=True)
    dialects.save(made, tmp_path, "deepspec", target=same)
    assert {"embed_tokens.weight", "lm_head.weight"} <= dialects.read(tmp_path).tensors.keys()
    back = dialects.load(tmp_path, same)
    assert back.head.embed_tokens is None and back.head.lm_head is None and back.conventions.embeddings == "target"
    assert torch.equal(logits(back.head), logits(made))


# What the files hold.

LAYER = (
    "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight",
    "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight", "post_attention_layernorm.weight",
)  # fmt: skip
WIDE = (*LAYER, "hidden_norm.weight", "input_layernorm.weight")
NORMED = (*LAYER, "input_layernorm.weight", "self_attn.q_norm.weight", "self_attn.k_norm.weight")
EAGLE3 = {"fc.weight", "norm.weight", "lm_head.weight"}
DFLASH = {"fc.weight", "hidden_norm.weight", "norm.weight"} | {f"layers.{i}.{n}" for i in (0, 1) for n in NORMED}
WHOLE = {"embed_tokens.weight", "lm_head.weight"}
MARKOV = {"markov_head.markov_w1.weight", "markov_head.markov_w2.weight"}
CONFIDENCE = {"confidence_head.proj.weight", "confidence_head.proj.bias"}
BLOCKS = {f"{h}.0.linear.{x}" for h in range(3) for x in ("weight", "bias")}
KEYS = [
    ("eagle", "eagle1", {"fc.weight", "fc.bias"} | {f"layers.0.{n}" for n in LAYER}),
    (
        "eagle, no bias",
        "eagle1",
        {"fc.weight", "layers.1.input_layernorm.weight"} | {f"layers.{i}.{n}" for i in (0, 1) for n in LAYER},
    ),
    ("eagle 3", "eagle3", EAGLE3 | {"d2t", "t2d"} | {f"midlayer.{n}" for n in WIDE}),
    ("eagle 3, all tokens", "eagle3", EAGLE3 | {f"midlayer.{n}" for n in WIDE}),
    ("eagle 3", "specforge", EAGLE3 | {"d2t", "t2d"} | {f"midlayer.{n}" for n in WIDE}),
    ("eagle 3, all tokens", "specforge", EAGLE3 | {"d2t", "t2d"} | {f"midlayer.{n}" for n in WIDE}),
    ("eagle 3", "modelopt", EAGLE3 | {"d2t"} | {f"layers.0.{n}" for n in WIDE}),
    ("eagle 3", "speculators-eagle3", EAGLE3 | {"d2t", "t2d", "embed_tokens.weight"} | {f"layers.0.{n}" for n in WIDE}),
    (
        "eagle 3.1",
        "eagle3",
        EAGLE3 | {"d2t", "t2d"} | {f"fc_norm.{i}.weight" for i in range(3)} | {f"midlayer.{n}" for n in WIDE},
    ),
    ("eagle 3, one norm", "modelopt", EAGLE3 | {"input_norm.weight"} | {f"layers.0.{n}" for n in WIDE}),
    (
        "p-eagle",
        "speculators-peagle",
        EAGLE3
        | {"d2t", "t2d", "embed_tokens.weight", "mask_hidden", "layers.1.input_layernorm.weight"}
        | {f"layers.0.{n}" for n in WIDE}
        | {f"layers.1.{n}" for n in LAYER},
    ),
    ("block", "dflash", DFLASH),
    ("block", "speculators-dflash", DFLASH | WHOLE),
    ("block, some tokens", "speculators-dflash", DFLASH | WHOLE | {"d2t", "t2d"}),
    ("block, anchored", "deepspec", DFLASH | WHOLE),
    ("block, markov", "speculators-dspark", DFLASH | WHOLE | MARKOV | CONFIDENCE),
    (
        "block, gated",
        "speculators-dspark",
        DFLASH
        | WHOLE
        | MARKOV
        | CONFIDENCE
        | {"d2t", "t2d"}
        | {f"markov_head.gate_proj.{x}" for x in ("weight", "bias")},
    ),
    ("block, rnn", "deepspec", DFLASH | WHOLE | MARKOV | {f"markov_head.joint_proj.{x}" for x in ("weight", "bias")}),
    (
        "mtp",
        "mtp",
        {"mtp.fc.weight", "mtp.norm.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.pre_fc_norm_embedding.weight"}
        | {f"mtp.layers.0.{n}" for n in (*LAYER, "input_layernorm.weight")},
    ),
    (
        "mtp",
        "speculators-mtp",
        {f"mtp_layers.0.{n}.weight" for n in ("input_proj", "hidden_layernorm", "token_layernorm", "final_layernorm")}
        | {f"mtp_layers.0.{n}" for n in (*LAYER, "input_layernorm.weight")},
    ),
    ("medusa", "medusa", BLOCKS),
    ("medusa", "medusa-pt", BLOCKS),
    (
        "medusa, own lm heads",
        "medusa-pt",
        {f"{h}.{i}.linear.{x}" for h in (0, 1) for i in (0, 1) for x in ("weight", "bias")}
        | {"0.2.weight", "1.2.weight"},
    ),
    (
        "medusa, own lm heads",
        "medusa-vllm",
        {f"blocks.{h}.layers.{i}.{x}" for h in (0, 1) for i in (0, 1) for x in ("weight", "bias")}
        | {"lm_heads.0.weight", "lm_heads.1.weight"},
    ),
    (
        "medusa",
        "medusa-vllm",
        {f"blocks.{h}.layers.0.{x}" for h in range(3) for x in ("weight", "bias")} | {"lm_heads.0.weight"},
    ),
]


@pytest.mark.parametrize(("kind", "layout", "keys"), KEYS)
def test_the_files_hold_the_published_names_and_no_others(kind, layout, keys, tmp_path):
    kept(head(kind), layout, tmp_path)
    assert dialects.read(tmp_path).tensors.keys() == keys


@pytest.mark.parametrize(
    ("kind", "layout", "fields"),
    [
        ("eagle", "eagle1", {"bias": True, "qkv_bias": False, "num_hidden_layers": 1, "model_type": "llama"}),
        (
            "eagle 3",
            "eagle3",
            {
                "architectures": ["LlamaForCausalLM"],
                "draft_vocab_size": 12,
                "vocab_size": V,
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 4, 5], "use_aux_hidden_state": True},
            },
        ),
        (
            "eagle 3",
            "specforge",
            {
                "architectures": ["LlamaForCausalLMEagle3"],
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "use_aux_hidden_state": True},
            },
        ),
        ("eagle 3.1", "eagle3", {"fc_norm": True}),
        (
            "eagle 3, other switches",
            "speculators-eagle3",
            {
                "architectures": ["Eagle3Speculator"],
                "speculators_model_type": "eagle3",
                "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
                "norm_before_residual": True,
                "norm_output": True,
                "norm_before_fc": False,
                "fc_norm": False,
                "draft_vocab_size": 12,
                "target_hidden_size": 32,
            },
        ),
        ("p-eagle", "speculators-peagle", {"mask_token_id": 9, "speculators_model_type": "peagle"}),
        (
            "block",
            "dflash",
            {
                "architectures": ["DFlashDraftModel"],
                "model_type": "qwen3",
                "block_size": 5,
                "num_target_layers": 8,
                "dflash_config": {"mask_token_id": 9, "target_layer_ids": [1, 3, 4]},
            },
        ),
        (
            "block",
            "speculators-dflash",
            {"aux_hidden_state_layer_ids": [2, 4, 5], "sample_from_anchor": False, "block_size": 5, "mask_token_id": 9},
        ),
        (
            "block, markov",
            "speculators-dspark",
            {
                "markov_rank": 6,
                "markov_head_type": "vanilla",
                "enable_confidence_head": True,
                "confidence_head_with_markov": True,
                "sample_from_anchor": True,
            },
        ),
        (
            "block, rnn",
            "deepspec",
            {
                "architectures": ["Qwen3DSparkModel"],
                "target_layer_ids": [1, 3, 4],
                "markov_head_type": "rnn",
                "enable_confidence_head": False,
                "mask_token_id": 9,
            },
        ),
        ("mtp", "speculators-mtp", {"architectures": ["MTPDraftModel"], "num_nextn_predict_layers": 1}),
        (
            "medusa",
            "medusa-pt",
            {"medusa_num_heads": 3, "medusa_num_layers": 1, "base_model_name_or_path": "owner/name"},
        ),
        (
            "medusa",
            "medusa-vllm",
            {"num_heads": 3, "num_hidden_layers": 1, "truncated_vocab_size": V, "original_lm_head": True},
        ),
    ],
)
def test_configs_say_what_readers_of_the_layout_ask_for(kind, layout, fields, tmp_path):
    kept(head(kind), layout, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert {name: config.get(name) for name in fields} == fields


def test_speculators_are_told_who_verifies(tmp_path):
    kept(head("block, anchored"), "speculators-dflash", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    told = config["speculators_config"]
    assert told["verifier"] == {"name_or_path": "owner/name", "architectures": ["LlamaForCausalLM"]}
    assert told["proposal_methods"][0]["speculative_tokens"] == 4 and told["algorithm"] == "dflash"
    layers = config["transformer_layer_config"]
    assert (layers["num_hidden_layers"], layers["vocab_size"], layers["model_type"]) == (2, V, "qwen3")
    notes = dialects.save(head("mtp"), tmp_path / "mtp", "speculators-mtp", target=target(), verifier="")
    assert any("names no verifier" in note for note in notes)


# Which layout is this?

OF = {layout: kind for kind, layouts in reversed(FAMILIES) for layout in layouts}
ALIKE = {  # what may be meant where there is no config
    "eagle1": {"eagle1"},
    "eagle3": {"eagle3", "specforge"},
    "specforge": {"eagle3", "specforge"},
    "modelopt": {"modelopt", "speculators-eagle3"},
    "speculators-eagle3": {"speculators-eagle3"},
    "speculators-peagle": {"speculators-peagle"},
    "speculators-dspark": {"speculators-dspark", "deepspec"},
    "deepspec": {"speculators-dflash", "deepspec"},
    "dflash": {"dflash", "speculators-dflash"},
    "speculators-dflash": {"speculators-dflash", "deepspec"},
    "mtp": {"mtp"},
    "speculators-mtp": {"speculators-mtp"},
    "medusa": {"medusa"},
    "medusa-pt": {"medusa-pt"},
    "medusa-vllm": {"medusa-vllm"},
}


@functools.cache
def written(layout: str) -> Checkpoint:
    """A checkpoint of each layout, in memory. Shared: do not change it."""
    return dialects.named(layout).save(head(OF[layout]), Export(target(), "owner/name"))[0]


@pytest.mark.parametrize("detector", DIALECTS, ids=lambda d: d.name)
@pytest.mark.parametrize("layout", ALIKE)
def test_a_layout_is_told_from_every_other(layout, detector):
    mine = dialects.named(layout).detect(written(layout))
    assert mine == 2
    assert (detector.detect(written(layout)) == 2) == (detector.name == layout)
    bare = replace(written(layout), config={})
    assert (detector.name in ALIKE[layout]) == (detector in dialects.candidates(bare)[1])


@pytest.mark.parametrize("layout", ALIKE)
def test_tensors_are_believed_before_configs(layout):
    """A config of another kind changes nothing where tensors leave no doubt, and what remains in doubt is said."""
    for other in ALIKE:
        lying = replace(written(layout), config=written(other).config)
        assert dialects.detect(lying).name in ALIKE[layout]
    fits = dialects.candidates(replace(written(layout), config={}))[1]
    assert {d.name for d in fits} == ALIKE[layout]


def test_an_ambiguous_file_is_read_with_a_note_and_a_named_one_without():
    bare = replace(written("eagle3"), config={})
    assert any("ambiguous" in n and "specforge" in n for n in dialects.load(bare, target()).notes)
    assert not any("ambiguous" in n for n in dialects.load(bare, target(), "specforge").notes)
    assert dialects.load(bare, target(), dialects.named("specforge")).conventions.tap_ids == "output"


@pytest.mark.parametrize("prefix", ["draft_model.", "model.", "module."])
def test_prefixes_are_found_and_can_be_named(prefix):
    plain = written("modelopt")
    wrapped = plain.renamed(lambda name: name if name == "lm_head.weight" else prefix + name)
    back = dialects.load(wrapped, target())
    assert back.conventions.prefix == prefix and back.dialect == "modelopt"
    assert torch.equal(logits(back.head), logits(head("eagle 3")))
    odd = plain.renamed(lambda name: "inner." + name)
    assert dialects.load(odd, target(), prefix="inner.", dialect="modelopt").conventions.prefix == "inner."
    refused(lambda: dialects.load(plain, target(), prefix="inner."), "begins with 'inner.'")


# Conventions.


def test_sizes_of_a_step_come_back():
    assert dialects.load(written("speculators-peagle"), target()).head.horizon == 5
    assert dialects.load(written("dflash"), target()).head.horizon == 4
    assert dialects.load(written("deepspec"), target()).head.horizon == 4
    assert dialects.load(written("medusa"), target()).head.horizon == 3
    assert dialects.load(written("speculators-peagle"), target()).head.mask == 9


def test_what_a_file_leaves_open_is_recorded():
    told = {layout: dialects.load(written(layout), target()).conventions for layout in ALIKE}
    assert [told[n].tap_ids for n in ("eagle3", "specforge", "modelopt", "speculators-eagle3", "dflash", "deepspec")] == [
        "boundary", "output", "output", "boundary", "output", "output",
    ]  # fmt: skip
    assert all(told[n].taps == (2, 4, 5) for n in ("eagle3", "specforge", "modelopt", "speculators-eagle3", "dflash"))
    assert [told[n].first for n in ("eagle1", "eagle3", "speculators-eagle3", "speculators-peagle", "mtp", "dflash")] == [
        0, 0, 1, 0, 0, None,
    ]  # fmt: skip
    assert [told[n].anchored for n in ("dflash", "speculators-dflash", "speculators-dspark", "deepspec", "mtp")] == [
        False, False, True, True, None,
    ]  # fmt: skip
    assert told["eagle3"].d2t == "offset" and told["eagle1"].d2t is None
    assert told["modelopt"].norm_before_residual is False and told["eagle1"].norm_before_residual is None
    assert told["mtp"].norm_output is True and told["medusa"].taps == ("final",)


def test_taps_can_be_moved_named_and_are_the_usual_ones_where_nothing_is_said():
    c = written("eagle3")
    silent = replace(c, config={k: v for k, v in c.config.items() if k != "eagle_config"})
    assert dialects.load(silent, target()).head.taps == (2, 4, 5)
    assert dialects.load(c, target(), tap_shift=1).head.taps == (3, 5, 6)
    moved = dialects.load(c, target(), tap_shift=-1)
    assert moved.head.taps == moved.conventions.taps == (1, 3, 4)
    assert dialects.load(c, target(), taps=[1, 2, "final"]).head.taps == (1, 2, "final")
    assert dialects.load(written("dflash"), target(), tap_shift=1).head.taps == (3, 5, 6)
    assert dialects.load(written("eagle1"), target(), taps=(8,)).head.taps == (8,)
    shifted = replace(c, config={**c.config, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}})
    assert any("tap_shift=1" in n for n in dialects.load(shifted, target()).notes)
    assert not any("tap_shift" in n for n in dialects.load(c, target()).notes)
    last = replace(c, config={**c.config, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 4, 8]}})
    assert any("last layer's raw output" in n for n in dialects.load(last, target()).notes)


@pytest.mark.parametrize(
    ("layout", "name", "value", "seen"),
    [
        ("eagle3", "norm_before_residual", True, lambda h: h.layers[0].norm_before_residual),
        ("eagle3", "norm_output", True, lambda h: h.norm_output),
        ("mtp", "norm_output", False, lambda h: h.norm_output),
        ("eagle3", "rope_theta", 5e5, lambda h: h.config.rope_theta),
        ("eagle1", "rope_theta", 5e5, lambda h: h.config.rope_theta),
        ("dflash", "rope_theta", 5e5, lambda h: h.config.rope_theta),
        ("speculators-eagle3", "first", 0, lambda h: h.config.first),
        ("eagle3", "first", 1, lambda h: h.config.first),
        ("eagle1", "first", 1, lambda h: h.config.first),
        ("dflash", "anchored", True, lambda h: h.anchored),
        ("deepspec", "anchored", False, lambda h: h.anchored),
    ],
)
def test_each_convention_can_be_overridden(layout, name, value, seen):
    plain, changed = (dialects.load(written(layout), target(), **how) for how in ({}, {name: value}))
    assert seen(plain.head) != value and seen(changed.head) == value
    assert getattr(changed.conventions, name) == value != getattr(plain.conventions, name)


def test_norms_of_features_can_be_left_out_and_not_made_up():
    """Off leaves tensors unread, with a note; on without tensors is refused."""
    for kind, flag in (("eagle 3.1", "fc_norm"), ("eagle 3, one norm", "input_norm")):
        c = dialects.named("eagle3").save(head(kind), export())[0]
        assert getattr(dialects.load(c, target()).conventions, flag) is True
        off = dialects.load(c, target(), **{flag: False})
        assert getattr(off.head, flag) is None and any("unread" in n for n in off.notes)
    refused(lambda: dialects.load(written("eagle3"), target(), fc_norm=True), "lacks 'fc_norm.0.weight' and 2 more")
    lying = replace(written("eagle3"), config={**written("eagle3").config, "norm_before_fc": True})
    refused(lambda: dialects.load(lying, target()), "lacks 'input_norm.weight'")


def test_an_override_that_means_nothing_is_refused():
    refused(lambda: dialects.load(written("medusa"), target(), first=1), "no first to override: it has", "taps")
    refused(lambda: dialects.load(written("eagle3"), target(), norm_befor_residual=True), "norm_befor_residual")
    refused(lambda: dialects.load(written("eagle3"), target(), d2t="ids"), "d2t='ids'")


def test_the_first_position_travels_with_the_head():
    """A drafter asks the head; what it is told itself goes before."""
    loaded = dialects.load(written("speculators-eagle3"), target()).head
    for made, said, want in ((loaded, None, 1), (loaded, 0, 0), (head("eagle 3"), None, 0)):
        seen: list[int] = []
        spy = copy.copy(made)
        spy.forward = lambda token, state, position, attend, made=made, seen=seen: (
            seen.append(int(position.min())),
            made.forward(token, state, position, attend),
        )[1]
        Engine(target(), Eagle(spy, Chain(2), first=said), stopping=Stopping(3)).generate(PROMPTS[:1])
        assert min(seen) == want


def test_positions_may_all_be_moved_by_one():
    """Rotary positions are relative: a first pair at 1 makes the same guesses, but for rounding."""
    loaded = dialects.load(written("speculators-eagle3"), target()).head
    outputs = [
        Engine(target(), Eagle(loaded, Chain(3), first=first), stopping=Stopping(12)).generate(PROMPTS)
        for first in (0, 1)
    ]
    a, b = ([[r.token for r in step.rows if r] for step in s.trace.steps] for s in outputs)
    assert a == b


# Vocabularies.


def with_tables(layout: str = "eagle3", **tables: Tensor | None) -> Checkpoint:
    c = written(layout)
    tensors = {**c.tensors, **tables}
    return replace(c, tensors={n: t for n, t in tensors.items() if t is not None})


def said_by(c: Checkpoint, **how: object) -> list[int] | None:
    vocabulary = dialects.load(c, target(), **how).head.vocabulary
    return None if vocabulary is None else vocabulary.tokens.tolist()


def test_the_tables_of_a_reduced_vocabulary_come_in_many_ways():
    steps = torch.arange(len(SOME))
    none, every = torch.zeros(V, dtype=torch.bool), torch.ones(V, dtype=torch.bool)
    assert said_by(written("eagle3")) == SOME.tolist()
    assert said_by(with_tables(t2d=None)) == SOME.tolist()  # t2d is never needed
    assert said_by(with_tables(t2d=every)) == SOME.tolist()  # as it is before training
    assert said_by(with_tables(t2d=none.index_fill(0, SOME, True).int())) == SOME.tolist()
    assert said_by(with_tables(d2t=SHUFFLED - steps)) == SHUFFLED.tolist()  # by frequency, offsets below zero
    assert (SHUFFLED - steps).min() < 0
    assert said_by(with_tables(d2t=SOME)) == SOME.tolist()  # ids, which t2d gives away
    assert any("token ids" in n for n in dialects.load(with_tables(d2t=SOME), target()).notes)
    assert said_by(with_tables(d2t=SOME, t2d=None), d2t="absolute") == SOME.tolist()
    even = 2 * steps  # as offsets these name tokens as well, and other ones than t2d
    assert said_by(with_tables(d2t=even, t2d=none.index_fill(0, even, True))) == even.tolist()
    assert said_by(with_tables(d2t=even, t2d=None)) == (3 * steps).tolist()
    empty = dialects.load(with_tables(d2t=torch.zeros(12, dtype=torch.long), t2d=every), target())
    assert empty.head.vocabulary.tokens.tolist() == steps.tolist() and any("all zeros" in n for n in empty.notes)
    assert said_by(with_tables(d2t=None)) == SOME.tolist()
    assert any("order of their ids" in n for n in dialects.load(with_tables(d2t=None), target()).notes)
    other = dialects.load(with_tables(t2d=none.index_fill(0, SOME - 1, True)), target())
    assert other.head.vocabulary.tokens.tolist() == SOME.tolist() and any("d2t is believed" in n for n in other.notes)


def test_a_whole_vocabulary_needs_no_tables():
    c = dialects.named("eagle3").save(head("eagle 3, all tokens"), export())[0]
    identity = {"d2t": torch.zeros(V, dtype=torch.long), "t2d": torch.ones(V, dtype=torch.bool)}
    for tables in ({}, identity, {"d2t": identity["d2t"]}, {"t2d": identity["t2d"]}):
        back = dialects.load(replace(c, tensors={**c.tensors, **tables}), target())
        assert back.head.vocabulary is None and torch.equal(logits(back.head), logits(head("eagle 3, all tokens")))
    absolute = dialects.load(replace(c, tensors={**c.tensors, "d2t": torch.arange(V)}), target())
    assert absolute.head.vocabulary is None


@pytest.mark.parametrize("layout", ["eagle3", "specforge", "speculators-eagle3"])
def test_a_shuffled_vocabulary_is_sorted_where_trainers_take_t2d_for_the_order(layout, tmp_path):
    back, notes = kept(head("eagle 3, shuffled"), layout, tmp_path)
    assert any("sorted" in n for n in notes) and back.head.vocabulary.tokens.tolist() == SOME.tolist()
    torch.testing.assert_close(logits(back.head), logits(head("eagle 3, shuffled")))
    _, quiet = kept(head("eagle 3"), layout, tmp_path / "sorted")
    assert not any("sorted" in n for n in quiet)


def test_a_shuffled_vocabulary_stays_where_order_is_free(tmp_path):
    back, notes = kept(head("eagle 3, shuffled"), "modelopt", tmp_path)
    assert notes == () and back.head.vocabulary.tokens.tolist() == SHUFFLED.tolist()
    assert torch.equal(logits(back.head), logits(head("eagle 3, shuffled")))


def test_a_markov_head_is_sorted_along(tmp_path):
    made = BlockHead.of(target(), mask=9, markov_rank=6, anchored=True, own_lm_head=True, tokens=SHUFFLED)
    made.markov_head.markov_w2.weight.data.normal_()
    back, _ = kept(made, "speculators-dspark", tmp_path)
    assert back.head.vocabulary.tokens.tolist() == SOME.tolist()
    torch.testing.assert_close(logits(back.head), logits(made))


def test_medusa_says_a_part_of_the_vocabulary_through_a_token_map(tmp_path):
    made = MedusaHead.of(target(), heads=2)
    rows = target().unembedding.weight.detach()
    part = MedusaHead(made.config, made.borrowed, heads=2, own_lm_heads=True, tokens=SHUFFLED).double()
    for lm_head in part.own:
        lm_head.weight.data.copy_(rows[SHUFFLED])
    assert torch.isinf(logits(part)).sum(-1).unique().tolist() == [V - len(SHUFFLED)]
    back, _ = kept(part, "medusa-vllm", tmp_path)
    assert dialects.read(tmp_path).tensors["token_map"].tolist() == SHUFFLED.tolist()
    assert dialects.read(tmp_path).config["truncated_vocab_size"] == len(SHUFFLED)
    assert torch.equal(logits(back.head), logits(part))
    c = dialects.read(tmp_path)
    uncut = {n: rows if n.startswith("lm_heads.") else t for n, t in c.tensors.items()}
    assert torch.equal(logits(dialects.load(replace(c, tensors=uncut), target()).head), logits(part))
    refused(lambda: kept(part, "medusa", tmp_path / "no"), "no reduced vocabulary", "medusa-vllm")


# Embeddings.


def test_own_embeddings_are_read_and_the_targets_can_be_taken_instead(tmp_path):
    made = own(copy.deepcopy(head("eagle 3")))
    assert not torch.equal(logits(made), logits(head("eagle 3")))
    for layout in ("eagle3", "modelopt", "speculators-eagle3"):
        back, _ = kept(made, layout, tmp_path / layout)
        assert torch.equal(logits(back.head), logits(made)) and back.conventions.embeddings == "own"
        assert any("are not the target's (mean cosine" in n for n in back.notes)
        lent = dialects.load(tmp_path / layout, target(), embeddings="target")
        assert torch.equal(logits(lent.head), logits(head("eagle 3"))) and lent.head.embed_tokens is None
    assert dialects.read(tmp_path / "eagle3").config["target_hidden_size"] == 32
    back, _ = kept(own(copy.deepcopy(head("eagle"))), "eagle1", tmp_path / "eagle1")
    assert back.head.embed_tokens is not None
    refused(lambda: dialects.load(written("eagle3"), target(), embeddings="own"), "no tensor 'embed_tokens.weight'")


@pytest.mark.parametrize(("kind", "layout"), [("eagle 3", "speculators-eagle3"), ("p-eagle", "speculators-peagle")])
def test_copies_of_the_targets_embeddings_can_be_left_out(kind, layout, tmp_path):
    dialects.save(head(kind), tmp_path / "whole", layout, target=target())
    dialects.save(head(kind), tmp_path / "lean", layout, target=target(), lean=True)
    whole, lean = (dialects.read(tmp_path / name) for name in ("whole", "lean"))
    assert whole.tensors.keys() - lean.tensors.keys() == {"embed_tokens.weight"} and whole.config == lean.config
    back = dialects.load(tmp_path / "lean", target())
    assert (back.dialect, back.notes) == (layout, dialects.load(tmp_path / "whole", target()).notes)
    assert torch.equal(logits(back.head), logits(head(kind)))


def test_a_heads_own_embeddings_are_never_left_out(tmp_path):
    made = own(copy.deepcopy(head("eagle 3")))
    dialects.save(made, tmp_path, "speculators-eagle3", target=target(), lean=True)
    assert torch.equal(logits(dialects.load(tmp_path, target()).head), logits(made))


def test_embeddings_of_noise_are_noticed():
    noise = torch.randn(V, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    back = dialects.load(with_tables(**{"embed_tokens.weight": noise}), target())
    assert any("unlike the target's" in n and "embeddings='target'" in n for n in back.notes)
    same = with_tables(**{"embed_tokens.weight": target().embedding.weight.detach().clone()})
    assert dialects.load(same, target()).notes == dialects.load(written("eagle3"), target()).notes


def test_a_narrower_head_needs_embeddings_of_its_own(tmp_path):
    config = replace(head("eagle 3").config, hidden=16, intermediate=24, draft_vocab=None)
    made = Eagle3Head(config, head("eagle 3").borrowed, (1, 4), target_hidden=32, own_embeddings=True).double().eval()
    back, _ = kept(made, "eagle3", tmp_path)
    assert torch.equal(logits(back.head), logits(made)) and back.head.config.hidden == 16
    refused(lambda: dialects.load(tmp_path, target(), embeddings="target"), "width 16", "needs its own")


# What is lost.


def export(lossy: bool = False) -> Export:
    return Export(target(), "owner/name", lossy)


@pytest.mark.parametrize(
    ("make", "layout", "words"),
    [
        (lambda: Eagle3Head.of(target(), norm_before_residual=True), "eagle3", "norm_before_residual"),
        (lambda: Eagle3Head.of(target(), norm_before_residual=True), "specforge", "norm_before_residual"),
        (lambda: Eagle3Head.of(target(), norm_output=True), "modelopt", "norm_output"),
        (lambda: own(Eagle3Head.of(target())), "specforge", "holds no embeddings"),
        (lambda: BlockHead.of(target(), mask=1), "deepspec", "pending token's place"),
        (lambda: own(BlockHead.of(target(), mask=1)), "dflash", "borrows the target's embeddings"),
        (lambda: own(BlockHead.of(target(), mask=1)), "speculators-dflash", "replace by the target's"),
        (lambda: head("block, rnn"), "dflash", "holds no Markov head"),
        (lambda: head("block, rnn"), "speculators-dflash", "holds no Markov head"),
        (lambda: MTPHead.of(target(), norm_output=False), "speculators-mtp", "state before its norm"),
        (lambda: MTPHead.of(target(), tap=3), "mtp", "reads tap 3"),
    ],
)
def test_what_would_change_guesses_is_refused_and_can_be_allowed(make, layout, words, tmp_path):
    made = make()
    refused(lambda: kept(made, layout, tmp_path / "no"), words, "lossy=True")
    assert not (tmp_path / "no").exists()
    _, notes = kept(made, layout, tmp_path / "yes", lossy=True)
    assert any(note.startswith("lossy: ") and words in note for note in notes)
    assert layout not in ("specforge", "dflash") or "embed_tokens.weight" not in dialects.read(tmp_path / "yes").tensors


@pytest.mark.parametrize(
    ("make", "layout", "words"),
    [
        (lambda: Eagle3Head.of(target(), taps=(1, "final")), "eagle3", "'final' tap"),
        (lambda: Eagle3Head.of(target(), taps=(0, 1)), "modelopt", "tap 0, the embeddings"),
        (lambda: Eagle3Head.of(target(), layers=2), "eagle3", "one layer, and this head has 2"),
        (lambda: Eagle3Head.of(target(), layers=2), "specforge", "one layer, and this head has 2"),
        (lambda: Eagle3Head.of(target(), norm_output=True), "specforge", "normed state"),
        (lambda: Eagle3Head.of(target(), fc_norm=True, input_norm=True), "speculators-eagle3", "one of two ways"),
        (lambda: head("eagle"), "eagle3", "a Eagle3Head, and this is a EagleHead"),
        (lambda: head("p-eagle"), "eagle3", "this is a PEagleHead"),
        (lambda: head("block, some tokens"), "dflash", "own: use 'speculators-dflash'"),
        (lambda: head("block, some tokens"), "deepspec", "no reduced vocabulary"),
        (lambda: head("block"), "speculators-dspark", "this one has none: use 'speculators-dflash'"),
        (lambda: BlockHead.of(target(), mask=1, taps=(2, 8), anchored=True), "deepspec", "below the last, 7"),
        (lambda: BlockHead.of(target(), mask=1, taps=(4, 2), anchored=True), "deepspec", "rising layers"),
        (lambda: head("medusa"), "medusa-onnx", "no layout 'medusa-onnx': use one of eagle1"),
    ],
)
def test_what_a_layout_has_no_words_for_is_refused_whatever_is_allowed(make, layout, words, tmp_path):
    made = make()
    refused(lambda: dialects.save(made, tmp_path / "no", layout, target=target(), lossy=True), words)
    assert not (tmp_path / "no").exists()


def test_losses_that_change_no_guess_are_told(tmp_path):
    made = BlockHead.of(target(), mask=1, confidence="state", taps=(2, 8))
    back, notes = kept(made, "speculators-dflash", tmp_path)
    assert any("confidence head" in n for n in notes) and any("tap 8 is the target's last layer" in n for n in notes)
    assert back.head.taps == (2, 8) and back.head.confidence_head is None
    assert back.head.width == made.width  # no column of fc goes with the tap


@pytest.mark.parametrize("layout", ["speculators-mtp", "speculators-dflash", "dflash", "deepspec"])
def test_layers_that_readers_of_a_layout_do_not_know_are_told(layout, tmp_path):
    made = head("mtp")
    if layout != "speculators-mtp":
        plain = replace(head("block").config, qk_norm=False)
        made = BlockHead(plain, head("block").borrowed, (2, 5), mask=1, anchored=True).double().eval()
    back, notes = kept(made, layout, tmp_path)
    assert any("Qwen3's layers alone" in n for n in notes) and torch.equal(logits(back.head), logits(made))
    if layout != "speculators-mtp":
        assert not any("Qwen3" in n for n in kept(head("block, anchored"), layout, tmp_path)[1])


def test_embeddings_of_the_target_stand_for_tap_0_in_deepspec(tmp_path):
    made = BlockHead.of(target(), mask=1, taps=(0, 4), anchored=True)
    assert kept(made, "deepspec", tmp_path)[0].head.taps == (0, 4)
    assert dialects.read(tmp_path).config["target_layer_ids"] == [-1, 3]


# Files.


def test_shards_are_read_together(tmp_path):
    c = written("speculators-eagle3")
    names, where = sorted(c.tensors), {}
    for i, part in enumerate((names[:5], names[5:])):
        file = f"model-0000{i}-of-00002.safetensors"
        save_file({n: c.tensors[n].contiguous().clone() for n in part}, tmp_path / file)
        where |= dict.fromkeys(part, file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    (tmp_path / "config.json").write_text(json.dumps(dict(c.config)))
    assert torch.equal(logits(dialects.load(tmp_path, target()).head), logits(head("eagle 3")))
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    refused(lambda: dialects.read(tmp_path), "model-00001-of-00002.safetensors", "fetch it")
    (tmp_path / "inner").mkdir()
    save_file({"a": torch.zeros(1)}, tmp_path / "outside.safetensors")
    (tmp_path / "inner" / index.name).write_text(json.dumps({"weight_map": {"a": "../outside.safetensors"}}))
    refused(lambda: dialects.read(tmp_path / "inner"), "../outside.safetensors")
    index.write_text("[]")
    refused(lambda: dialects.read(tmp_path), "no weight_map")


def test_pickled_tensors_are_read_where_nothing_else_is_there(tmp_path):
    c = written("eagle1")
    torch.save(dict(c.tensors), tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps(dict(c.config)))
    assert torch.equal(logits(dialects.load(tmp_path, target()).head), logits(head("eagle")))
    assert torch.equal(logits(dialects.load(tmp_path / "pytorch_model.bin", target()).head), logits(head("eagle")))
    (tmp_path / "other.pt").write_bytes(b"")
    save_file({n: t.clone() for n, t in c.tensors.items()}, tmp_path / "model.safetensors")
    assert dialects.read(tmp_path).file == "model.safetensors"


def test_a_trainers_state_and_a_whole_models_part_are_read(tmp_path):
    torch.save({"strategy": "eagle3", "draft_state_dict": dict(written("specforge").tensors)}, tmp_path / "state.pt")
    assert dialects.detect(tmp_path / "state.pt").name in ALIKE["specforge"]
    whole = {"model.embed_tokens.weight": torch.zeros(4, 4), "model.layers.0.mlp.weight": torch.zeros(4, 4)}
    (tmp_path / "whole").mkdir()
    tensors = {n: t.clone() for n, t in written("mtp").tensors.items()}
    save_file(whole | tensors, tmp_path / "whole" / "model.safetensors")
    assert dialects.read(tmp_path / "whole").tensors.keys() == tensors.keys()
    assert torch.equal(logits(dialects.load(tmp_path / "whole", target()).head), logits(head("mtp")))
    medusa = {"medusa_head." + n: t.clone() for n, t in written("medusa").tensors.items()}
    save_file(whole | medusa, tmp_path / "whole" / "model.safetensors")
    assert torch.equal(logits(dialects.load(tmp_path / "whole", target()).head), logits(head("medusa")))


class Runs:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path(self.path),)


def test_nothing_in_a_checkpoint_is_run(tmp_path):
    mark = tmp_path / "ran"
    for name, data in (("a.bin", {"x": Runs(str(mark))}), ("b.pt", Runs(str(mark)))):
        torch.save(data, tmp_path / name)
        refused(lambda name=name: dialects.read(tmp_path / name), "more than tensors", "safetensors")
    (tmp_path / "c.bin").write_bytes(pickle.dumps(Runs(str(mark)), protocol=2))
    refused(lambda: dialects.read(tmp_path / "c.bin"), "c.bin")
    c = written("dflash")
    remote = replace(c, config={**c.config, "auto_map": {"AutoModel": "modeling_dflash.DFlashDraftModel"}})
    dialects.write(remote, tmp_path / "dflash")
    (tmp_path / "dflash" / "modeling_dflash.py").write_text(f"open({str(mark)!r}, 'w')")
    dialects.load(tmp_path / "dflash", target())
    assert not mark.exists()


def test_broken_files_are_one_sentence(tmp_path):
    dialects.write(written("eagle3"), tmp_path / "cut")
    path = tmp_path / "cut" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    refused(lambda: dialects.read(tmp_path / "cut"), "damaged or cut short")
    dialects.write(written("medusa-pt"), tmp_path / "pt")
    path = tmp_path / "pt" / "medusa_lm_head.pt"
    path.write_bytes(path.read_bytes()[:500])
    refused(lambda: dialects.read(tmp_path / "pt"), "damaged or cut short")
    path.write_bytes(b"")
    refused(lambda: dialects.read(tmp_path / "pt"), "damaged or cut short")
    torch.save([torch.zeros(2)], path)
    refused(lambda: dialects.read(tmp_path / "pt"), "no table of tensors")
    dialects.write(written("eagle3"), tmp_path / "json")
    (tmp_path / "json" / "config.json").write_text("{")
    refused(lambda: dialects.read(tmp_path / "json"), "is not JSON")
    (tmp_path / "json" / "config.json").write_text("[]")
    refused(lambda: dialects.read(tmp_path / "json"), "a config is a JSON object")
    (tmp_path / "none").mkdir()
    refused(lambda: dialects.read(tmp_path / "none"), "holds no weights")
    refused(lambda: dialects.read(tmp_path / "nowhere"), "there is no folder or file")


def test_weights_are_not_written_beside_others(tmp_path):
    kept(head("eagle"), "eagle1", tmp_path)
    kept(head("eagle, no bias"), "eagle1", tmp_path)  # the same file again
    refused(lambda: kept(head("medusa"), "medusa", tmp_path), "already holds model.safetensors", "empty folder")
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


# Tensors and configs that do not fit.


def changed(layout: str, config: dict[str, object] | None = None, **tensors: Tensor | None) -> Checkpoint:
    """Names with dots are given with two underscores."""
    c = written(layout)
    given = {**c.tensors, **{n.replace("__", "."): t for n, t in tensors.items()}}
    return replace(c, tensors={n: t for n, t in given.items() if t is not None}, config={**c.config, **(config or {})})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: changed("eagle3", fc__weight=None), ("no tensor 'fc.weight'",)),
        (lambda: changed("eagle3", norm__weight=None), ("lacks 'norm.weight'", "incomplete")),
        (lambda: changed("eagle3", midlayer__mlp__up_proj__weight=torch.zeros(3, 32)), ("[3, 32]", "[64, 32] fits")),
        (lambda: changed("eagle3", prefix_gru__weight=torch.zeros(2)), ("'prefix_gru.weight'", "no place for")),
        (lambda: changed("eagle3", norm__weight=torch.ones(32, dtype=torch.int8)), ("int8", "convert")),
        (lambda: changed("eagle3", fc__weight=torch.zeros(32, 90)), ("width 90", "hidden size 32", "another target")),
        (lambda: changed("eagle3", fc__weight=torch.zeros(32, 64)), ("weights for 2 taps, and 3 are named",)),
        (lambda: changed("eagle3", {"eagle_config": {}}, fc__weight=torch.zeros(32, 64)), ("2 taps", "taps=(...)")),
        (
            lambda: changed("eagle3", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 4, 9]}}),
            ("tap 9 does not exist", "to 8"),
        ),
        (lambda: changed("eagle3", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": "2"}}), ("list of layer",)),
        (lambda: changed("eagle3", {"norm_output": "yes"}), ("norm_output='yes'", "true or false")),
        (lambda: changed("eagle3", {"rms_norm_eps": "tiny"}), ("rms_norm_eps='tiny'", "no number")),
        (lambda: changed("eagle3", {"head_dim": 7, "num_attention_heads": 5}), ("no whole heads of size 7",)),
        (lambda: changed("eagle3", d2t=SOME * 9, t2d=None), ("names no 12 different tokens", "d2t='absolute'")),
        (lambda: changed("eagle3", d2t=SOME[:5], t2d=None), ("d2t of 5 tokens and an lm_head of 12",)),
        (lambda: changed("eagle3", t2d=torch.ones(V + 2, dtype=torch.bool)), ("t2d of 66 tokens", "target has 64")),
        (lambda: changed("eagle3", d2t=None, t2d=None), ("says 12 of 64 tokens", "no d2t")),
        (
            lambda: changed("modelopt", {"eagle_config": {"parallel_draft_step": 4}}),
            ("parallel_draft_step=4", "only 1"),
        ),
        (lambda: changed("eagle1", fc__weight=None), ("no draft head of a known layout",)),
        (lambda: changed("eagle1", layers__2__mlp__up_proj__weight=torch.zeros(2)), ("layers [0, 2]", "gap")),
        (lambda: changed("speculators-peagle", {"mask_token_id": None}), ("mask_token_id",)),
        (lambda: changed("speculators-peagle", mask_hidden=torch.zeros(1, 1, 5)), ("[1, 1, 5]", "[1, 1, 96] fits")),
        (lambda: changed("dflash", {"block_size": None}), ("block_size",)),
        (lambda: changed("dflash", {"dflash_config": {}}), ("mask_token_id",)),
        (lambda: changed("dflash", {"output_multiplier": 0.5}), ("output_multiplier=0.5", "another network")),
        (lambda: changed("dflash", {"layer_types": ["sliding_attention"] * 2}), ("sliding layers [0, 1]", "causally")),
        (lambda: changed("deepspec", lm_head__weight=torch.zeros(V + 2, 32)), ("66", "64")),
        (lambda: changed("deepspec", {"sample_from_anchor": 3}), ("true or false",)),
        (lambda: changed("mtp", mtp__layers__0__mlp__experts__0__up_proj__weight=torch.zeros(2)), ("experts",)),
        (lambda: changed("mtp", {"model_type": "qwen3_next"}), ("qwen3_next", "1 + weight")),
        (lambda: changed("medusa", **{"1__0__linear__weight": None}), ("lacks 'blocks.1.0.linear.weight'",)),
        (lambda: Checkpoint({}, {"weird": torch.zeros(2)}), ("no draft head of a known layout", "'weird'", "eagle1")),
        (lambda: Checkpoint({}, {}), ("holds nothing",)),
    ],
)
def test_what_does_not_fit_is_one_sentence(make, words):
    refused(lambda: dialects.load(make(), target()), *words)


def refused(call: object, *words: str) -> None:
    """In one sentence that holds these words."""
    with pytest.raises(ValueError) as caught:
        call()
    said = str(caught.value)
    assert "\n" not in said and len(said) < 900
    for word in words:
        assert word in said, said


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: changed("eagle3", {"num_hidden_layers": 40}), "says 40 layers, and there are tensors of 1"),
        (lambda: changed("eagle3", {"rope_scaling": {"type": "yarn", "factor": 32}}), "yarn rotary scaling"),
        (lambda: changed("medusa", {"medusa_num_heads": 2}), "says 2 heads, and there are tensors of 3"),
        (lambda: changed("eagle3", lm_head__weight=None), "the target's is taken"),
        (lambda: changed("modelopt", {"norm_before_residual": None}), "does not say norm_before_residual"),
        (lambda: changed("eagle3", embed_tokens__weight=torch.ones(V, 32).double()), "does not set target_hidden_size"),
        (
            lambda: changed(
                "dflash",
                {"layer_types": ["sliding_attention"] * 2, "sliding_window": 9, "sliding_window_non_causal": True},
            ),
            "look back 9 tokens",
        ),
    ],
)
def test_what_is_assumed_is_noted(make, words):
    c = make()
    assert any(words in note for note in dialects.load(c, target()).notes)
    assert not any(words in note for note in dialects.load(written(c_layout(c)), target()).notes)


def c_layout(c: Checkpoint) -> str:
    return dialects.detect(c).name


def test_float16_is_warned_of():
    c = written("eagle3")
    half = replace(c, tensors={n: t.half() if t.is_floating_point() else t for n, t in c.tensors.items()})
    assert any("float16" in n for n in dialects.load(half, target()).notes)


def test_older_names_of_a_markov_head_are_known():
    c = written("speculators-dspark")
    old = c.renamed(lambda name: name.replace("markov_head.", "logit_head."))
    assert dialects.detect(old).name == "speculators-dspark"
    assert torch.equal(logits(dialects.load(old, target()).head), logits(head(OF["speculators-dspark"])))


def test_biases_are_read_off_the_tensors(tmp_path):
    config = replace(head("eagle 3").config, qkv_bias=True, o_bias=True, mlp_bias=True, draft_vocab=None)
    made = Eagle3Head(config, head("eagle 3").borrowed, (1, 4, 5), target_hidden=32).double().eval()
    back, _ = kept(made, "speculators-eagle3", tmp_path)
    assert back.head.config.o_bias and torch.equal(logits(back.head), logits(made))


def test_a_loaded_head_drafts_and_changes_no_token(tmp_path):
    want = Engine(target(), stopping=Stopping(10)).generate(PROMPTS).outputs
    back, _ = kept(head("eagle 3, other switches"), "speculators-eagle3", tmp_path)
    assert Engine(target(), Eagle(back.head, Chain(3)), stopping=Stopping(10)).generate(PROMPTS).outputs == want

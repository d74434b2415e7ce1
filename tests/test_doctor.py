"""The draft doctor: every damage is found by its name and repaired, and a sound head gets a clean bill."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from taught import own_texts, plan
from tiny import V, lm, tiny
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from toolkit.doctor import Exam, diagnose, page, repair, text
from toolkit.heads import BlockHead, Eagle3Head, EagleHead, MedusaHead, dialects
from toolkit.heads.dialects import Checkpoint
from toolkit.heads.dialects.embeddings import rows
from toolkit.models.hf import HFModel
from toolkit.training import Frequencies, Reader, Text, fit

LAYERS = 8


def target() -> HFModel:
    return lm(0, LAYERS)


@functools.cache
def texts() -> tuple[Text, ...]:
    return tuple(own_texts(40, model=target()))


@functools.cache
def exam() -> Exam:
    return Exam.of(target(), texts()[:8])


def some() -> Tensor:
    return Frequencies.of(texts(), V).choose(30)


def own(head: nn.Module) -> nn.Module:
    head.embed_tokens = nn.Embedding.from_pretrained(rows(target(), torch.float64).clone(), freeze=True)
    return head


MAKE: dict[str, Callable[[], nn.Module]] = {
    "eagle3": lambda: Eagle3Head.of(target(), tokens=some()),
    "eagle3, own embeddings": lambda: own(Eagle3Head.of(target(), tokens=some())),
    "eagle3, the last layer's norm": lambda: Eagle3Head.of(target(), taps=(2, 4, "final"), tokens=some()),
    "eagle3, before residual": lambda: Eagle3Head.of(target(), tokens=some(), norm_before_residual=True),
    "eagle3, norm out": lambda: Eagle3Head.of(target(), tokens=some(), norm_output=True),
    "eagle1": lambda: EagleHead.of(target()),
    "eagle1, own embeddings": lambda: own(EagleHead.of(target())),
    "eagle1, raw": lambda: tapped(EagleHead.of(target()), (LAYERS,)),
    "medusa": lambda: MedusaHead.of(target(), heads=3),
    "block": lambda: BlockHead.of(target(), mask=V - 1, block=4, taps=(2, 5), anchored=False),
}
SAID_BY_NO_LAYOUT = ("eagle3, the last layer's norm", "eagle1, raw")
LAYOUT = {
    "eagle3, before residual": "speculators-eagle3",
    "eagle3, norm out": "speculators-eagle3",
    "block": "speculators-dflash",
}


def tapped(head: nn.Module, taps: tuple[int | str, ...]) -> nn.Module:
    head.taps = taps
    return head


@functools.cache
def trained(kind: str) -> nn.Module:
    torch.manual_seed(0)
    head = MAKE[kind]()
    for _ in fit(head, target().unembedding, Reader(target(), texts(), head.taps), plan(epochs=40, every=1000)):
        pass
    return head.float()


def written(kind: str, folder: Path, **attributes: object) -> Checkpoint:
    """A trained head's checkpoint; `attributes` are what it says of itself instead of the truth."""
    head = copy.copy(trained(kind))
    for name, value in attributes.items():
        setattr(head, name, value)
    layout = LAYOUT.get(kind, kind.split(",")[0])
    dialects.save(head, folder, layout, target=target())
    return dialects.read(folder)


def changed(c: Checkpoint, tensors: dict[str, Tensor | None] | None = None, **config: object) -> Checkpoint:
    kept = {n: t for n, t in {**c.tensors, **(tensors or {})}.items() if t is not None}
    return replace(c, tensors=kept, config={**c.config, **config})


def quick(name: str, kind: str) -> object:
    """All but what needs the one head that the quick tests teach."""
    return name if kind == "eagle3" else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize("kind", [quick(kind, kind) for kind in MAKE if kind not in SAID_BY_NO_LAYOUT])
def test_a_sound_head_gets_a_clean_bill(kind: str, tmp_path: Path) -> None:
    found = diagnose(written(kind, tmp_path / "head"), target(), exam())
    assert found.healthy, text(found)
    assert found.after.right > 0.5
    assert "clean bill" in text(found)
    assert {one.trap for one in found.looked} == set(range(1, 21))


def _taps_the_other_way(folder: Path) -> Checkpoint:
    c = written("eagle3", folder)
    ids = [i - 1 for i in c.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]]
    return changed(c, eagle_config={"eagle_aux_hidden_state_layer_ids": ids})


def _raw_for_normed(folder: Path) -> Checkpoint:
    return written("eagle3, the last layer's norm", folder, taps=(2, 4, LAYERS))


def _eagle1_on_the_raw_state(folder: Path) -> Checkpoint:
    return written("eagle1, raw", folder, taps=("final",))


def _flag(kind: str, name: str) -> Callable[[Path], Checkpoint]:
    def damage(folder: Path) -> Checkpoint:
        c = written(kind, folder)
        assert c.config[name] is True
        return changed(c, **{name: False})

    return damage


def _norms_that_are_not_there(folder: Path) -> Checkpoint:
    return changed(written("eagle3", folder), fc_norm=True)


def _table_of_ids(folder: Path) -> Checkpoint:
    c = written("eagle3", folder)
    tokens = c.tensors["d2t"] + torch.arange(len(c.tensors["d2t"]))
    # offsets that name tokens as well, so that nothing but the guesses tells the two apart
    return changed(c, {"d2t": tokens.flip(0) - torch.arange(len(tokens)), "t2d": None})


def _table_never_filled(folder: Path) -> Checkpoint:
    c = written("eagle3", folder)
    return changed(c, {"d2t": torch.zeros_like(c.tensors["d2t"])})


def _scaled_embeddings(folder: Path) -> Checkpoint:
    """Of EAGLE-1: EAGLE-3 norms its embeddings, and does not mind."""
    c = written("eagle1, own embeddings", folder)
    return changed(c, {"embed_tokens.weight": c.tensors["embed_tokens.weight"] / 32**0.5})


def _embeddings_of_noise(folder: Path) -> Checkpoint:
    torch.manual_seed(5)
    return changed(written("eagle3", folder), {"embed_tokens.weight": torch.randn(V, 32)})


def _lm_head_of_noise(folder: Path) -> Checkpoint:
    c = written("eagle3", folder)
    torch.manual_seed(5)
    return changed(c, {"lm_head.weight": torch.randn_like(c.tensors["lm_head.weight"])})


def _rotary_base(folder: Path) -> Checkpoint:
    c = written("eagle3", folder)
    config = {k: v for k, v in c.config.items() if k not in ("rope_theta", "rope_parameters")}
    return replace(c, config={**config, "rope_theta": 2.0})


def _padded(folder: Path) -> Checkpoint:
    c = written("eagle3", folder)
    wide = torch.zeros(V + 8, dtype=torch.bool)
    wide[:V] = c.tensors["t2d"]
    return changed(c, {"t2d": wide})


def _layers_that_are_not_there(folder: Path) -> Checkpoint:
    return changed(written("eagle3", folder), num_hidden_layers=3)


def _wrapped(folder: Path) -> Checkpoint:
    c = written("eagle3", folder)
    return replace(c, tensors={f"trainer.net.{name}": t for name, t in c.tensors.items()})


def _wrapped_as_known(folder: Path) -> Checkpoint:
    c = written("eagle3", folder)
    return replace(c, tensors={f"draft_model.{name}": t for name, t in c.tensors.items()})


def _two_taps_named(folder: Path) -> Checkpoint:
    return changed(written("eagle3", folder), eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 5]})


def _anchored(folder: Path) -> Checkpoint:
    c = written("block", folder)
    return changed(c, sample_from_anchor=True)


def _half(folder: Path) -> Checkpoint:
    """The first norm takes the factor out again, so only the numbers in between are large."""
    c = written("eagle3, before residual", folder)
    made = {n: t.half() if t.is_floating_point() else t for n, t in c.tensors.items()}
    return replace(
        c, tensors={**made, "fc.weight": (c.tensors["fc.weight"] * 6e4 / c.tensors["fc.weight"].abs().max()).half()}
    )


DAMAGES: dict[str, tuple[int, Callable[[Path], Checkpoint]]] = {
    "taps counted the other way": (1, _taps_the_other_way),
    "raw for normed": (2, _raw_for_normed),
    "eagle-1 on the raw state": (3, _eagle1_on_the_raw_state),
    "norm_before_residual": (4, _flag("eagle3, before residual", "norm_before_residual")),
    "norm_output": (5, _flag("eagle3, norm out", "norm_output")),
    "norms that are not there": (6, _norms_that_are_not_there),
    "a table in another order": (7, _table_of_ids),
    "a table never filled": (7, _table_never_filled),
    "scaled embeddings": (8, _scaled_embeddings),
    "embeddings of noise": (8, _embeddings_of_noise),
    "an LM head of noise": (9, _lm_head_of_noise),
    "the rotary base": (11, _rotary_base),
    "float16": (12, _half),
    "padded tables": (16, _padded),
    "layers that are not there": (17, _layers_that_are_not_there),
    "names with a prefix": (18, _wrapped),
    "names with a known prefix": (18, _wrapped_as_known),
    "two taps named, weights for three": (19, _two_taps_named),
    "place 0": (20, _anchored),
}


OTHER_HEADS = (
    "raw for normed",
    "eagle-1 on the raw state",
    "norm_before_residual",
    "norm_output",
    "scaled embeddings",
    "float16",
    "place 0",
)


@pytest.mark.parametrize("name", [quick(name, "" if name in OTHER_HEADS else "eagle3") for name in DAMAGES])
def test_a_damage_is_found_and_repaired(name: str, tmp_path: Path) -> None:
    trap, damage = DAMAGES[name]
    found = diagnose(damage(tmp_path / "sick"), target(), exam())
    assert trap in {f.trap for f in found.findings}, text(found)
    assert {f.trap for f in found.findings} <= {trap, 12}, text(found)
    if found.before is not None and trap not in (12, 17, 18):
        assert found.after.cross_entropy < found.before.cross_entropy - 0.02
    if damage in (_raw_for_normed, _eagle1_on_the_raw_state):
        with pytest.raises(ValueError, match=r"final|tap"):
            repair(found, tmp_path / "well", target(), exam())
        return
    repair(found, tmp_path / "well", target(), exam())
    again = diagnose(tmp_path / "well", target(), exam())
    assert again.healthy, text(again)
    assert again.after.cross_entropy == pytest.approx(found.after.cross_entropy, abs=0.02)


def test_two_damages_at_once_are_told_apart(tmp_path: Path) -> None:
    c = _taps_the_other_way(tmp_path / "sick")
    c = changed(c, {"d2t": torch.zeros_like(c.tensors["d2t"])})
    found = diagnose(c, target(), exam())
    assert {f.trap for f in found.findings} == {1, 7}, text(found)


def test_the_first_position_does_not_matter_and_is_said_so(tmp_path: Path) -> None:
    found = diagnose(written("eagle3", tmp_path / "head"), target(), exam())
    assert "no matter" in next(line for line in text(found).splitlines() if line.startswith("T10"))


def test_questions_put_otherwise(tmp_path: Path) -> None:
    """The head learned greedy texts; what the target says at random is another kind of text."""
    odd = Exam.of(target(), own_texts(8, temperature=3.0, model=target()))
    found = diagnose(written("eagle3", tmp_path / "head"), target(), odd, others={"ask greedily": exam()})
    assert [f.remedy for f in found.findings if f.trap == 13] == ["ask greedily"]


def test_a_head_of_another_target_is_told(tmp_path: Path) -> None:
    torch.manual_seed(9)
    stranger = Eagle3Head.of(target(), tokens=some())
    for p in stranger.parameters():
        p.data = torch.randn_like(p) * p.std()
    dialects.save(stranger.float(), tmp_path / "head", "eagle3", target=target())
    found = diagnose(tmp_path / "head", target(), exam())
    assert 14 in {f.trap for f in found.findings}, text(found)


@pytest.mark.slow
def test_a_rotated_target_is_found_and_folded_in(tmp_path: Path) -> None:
    turned = rotated(target())
    found = diagnose(written("eagle3, own embeddings", tmp_path / "head"), turned, Exam.of(turned, texts()[:8]))
    assert [f.trap for f in found.findings] == [15], text(found)
    straight = diagnose(tmp_path / "head", target(), exam())
    assert found.after.cross_entropy == pytest.approx(straight.after.cross_entropy, abs=0.02)


def rotated(lm: HFModel) -> HFModel:
    """The same function of tokens, its hidden states turned by a random rotation as quantizers do it (QuaRot, section 3)."""
    model = LlamaForCausalLM(lm.config).double().eval()
    model.load_state_dict(lm.model.state_dict())
    turn, _ = torch.linalg.qr(torch.randn(32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    body = model.model
    model.lm_head.weight.data = model.lm_head.weight * body.norm.weight @ turn
    body.embed_tokens.weight.data = body.embed_tokens.weight @ turn
    for layer in body.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for norm, into in (
            (layer.input_layernorm, (attention.q_proj, attention.k_proj, attention.v_proj)),
            (layer.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj)),
        ):
            for linear in into:
                linear.weight.data = linear.weight * norm.weight @ turn
            norm.weight.data = torch.ones_like(norm.weight)
        for linear in (attention.o_proj, mlp.down_proj):
            linear.weight.data = turn.T @ linear.weight
    body.norm.weight.data = torch.ones_like(body.norm.weight)
    return HFModel(model)


def test_a_checkpoint_that_nothing_helps_is_refused_with_the_first_reason(tmp_path: Path) -> None:
    c = written("eagle3", tmp_path / "head")
    with pytest.raises(ValueError, match=r"lacks 'layers.0.mlp.up_proj.weight'.*no other way"):
        diagnose(changed(c, {"midlayer.mlp.up_proj.weight": None}), target(), exam())


def test_the_page_stands_alone_and_escapes(tmp_path: Path) -> None:
    found = replace(diagnose(_table_never_filled(tmp_path / "sick"), target(), exam()), where="<script>")
    html = page(found)
    assert html.count("<tr") >= 20 and "http" not in html and "<script>" not in html


def test_an_exam_needs_answers() -> None:
    with pytest.raises(ValueError, match="nothing to grade"):
        Exam.of(target(), [Text((1, 2, 3), ())])


def test_the_tiny_rotation_is_the_same_function() -> None:
    token = torch.tensor([[1, 5, 9, 2]])
    turned = rotated(target()).model(token).logits
    assert torch.allclose(turned, tiny(0, LAYERS)(token).logits, atol=1e-8)

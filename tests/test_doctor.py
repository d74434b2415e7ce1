"""The draft doctor: every damage is found by its name and repaired, and a sound head gets a clean bill."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from damages import DAMAGES, changed, half, rotated, table_never_filled, table_of_ids, taps_the_other_way
from taught import own_texts, plan
from tiny import V, lm, tiny
from torch import Tensor, nn

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


def of(kind: str, damage: Callable[[Checkpoint], Checkpoint]) -> Callable[[Path], Checkpoint]:
    return lambda folder: damage(written(kind, folder))


def _raw_for_normed(folder: Path) -> Checkpoint:
    return written("eagle3, the last layer's norm", folder, taps=(2, 4, LAYERS))


def _eagle1_on_the_raw_state(folder: Path) -> Checkpoint:
    return written("eagle1, raw", folder, taps=("final",))


def off(name: str) -> Callable[[Checkpoint], Checkpoint]:
    def damage(c: Checkpoint) -> Checkpoint:
        assert c.config[name] is True
        return changed(c, **{name: False})

    return damage


def _scaled(c: Checkpoint) -> Checkpoint:
    """For EAGLE-1: EAGLE-3 norms its embeddings, and does not mind."""
    return changed(c, {"embed_tokens.weight": c.tensors["embed_tokens.weight"] / 32**0.5})


OTHERS: dict[str, tuple[int, Callable[[Path], Checkpoint]]] = {
    "raw for normed": (2, _raw_for_normed),
    "eagle-1 on the raw state": (3, _eagle1_on_the_raw_state),
    "norm_before_residual, off": (4, of("eagle3, before residual", off("norm_before_residual"))),
    "norm_output, off": (5, of("eagle3, norm out", off("norm_output"))),
    "scaled embeddings": (8, of("eagle1, own embeddings", _scaled)),
    "float16": (12, of("eagle3, before residual", half)),
    "place 0": (20, of("block", lambda c: changed(c, sample_from_anchor=True))),
}


MATTERS_NOT = (
    "norm_before_residual",
    "norm_output",
)  # to the tiny head; its twins that were taught with them on are in OTHERS
ALL = {n: (trap, of("eagle3", damage)) for n, (trap, damage) in DAMAGES.items() if n not in MATTERS_NOT} | OTHERS


@pytest.mark.parametrize("name", [quick(name, "" if name in OTHERS else "eagle3") for name in ALL])
def test_a_damage_is_found_and_repaired(name: str, tmp_path: Path) -> None:
    trap, damage = ALL[name]
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
    c = table_never_filled(taps_the_other_way(written("eagle3", tmp_path / "sick")))
    found = diagnose(c, target(), exam())
    assert {f.trap for f in found.findings} == {1, 7}, text(found)


def test_a_table_of_ids_is_read_as_one(tmp_path: Path) -> None:
    """No guess is needed where only one of the two readings names tokens."""
    c = written("eagle3", tmp_path / "head")
    found = diagnose(table_of_ids(c), target(), exam())
    assert found.loaded.conventions.d2t == "absolute" and found.after.right > 0.5


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


def test_a_checkpoint_that_nothing_helps_is_refused_with_the_first_reason(tmp_path: Path) -> None:
    c = written("eagle3", tmp_path / "head")
    with pytest.raises(ValueError, match=r"lacks 'layers.0.mlp.up_proj.weight'.*no other way"):
        diagnose(changed(c, {"midlayer.mlp.up_proj.weight": None}), target(), exam())


def test_the_page_stands_alone_and_escapes(tmp_path: Path) -> None:
    found = replace(
        diagnose(table_never_filled(written("eagle3", tmp_path / "sick")), target(), exam()), where="<script>"
    )
    html = page(found)
    assert html.count("<tr") >= 20 and "http" not in html and "<script>" not in html


def test_an_exam_needs_answers() -> None:
    with pytest.raises(ValueError, match="nothing to grade"):
        Exam.of(target(), [Text((1, 2, 3), ())])


def test_the_tiny_rotation_is_the_same_function() -> None:
    token = torch.tensor([[1, 5, 9, 2]])
    turned = rotated(target()).model(token).logits
    assert torch.allclose(turned, tiny(0, LAYERS)(token).logits, atol=1e-8)

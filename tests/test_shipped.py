"""The heads of the package: what they guess for, what their cards say, and a clean bill from the doctor."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import pytest
import torch
from damages import DAMAGES, changed, half, rotated

from toolkit import shipped
from toolkit.doctor import Diagnosis, Exam, asked, diagnose, repair, text
from toolkit.engine import Engine
from toolkit.heads import dialects
from toolkit.heads.dialects.embeddings import rows
from toolkit.models import zoo
from toolkit.models.hf import HFModel
from toolkit.sampling import Stopping
from toolkit.trace import metrics
from toolkit.training.course import course

# One of each kind; with SPECDEC_WHOLE=1 all of them are done to the trained head, which takes many minutes. Heads of a tiny
# target meet them all in any case.
SOME = [
    "taps counted the other way",
    "norm_before_residual",
    "norm_output",
    "a table in another order",
    "an LM head of noise",
    "the rotary base",
    "names with a prefix",
]
PROMPTS = (
    "Explain how a bicycle stays upright.",
    "List four kinds of cheese.",
    "Who wrote the first computer program?",
)


@functools.cache
def model() -> zoo.Loaded:
    return zoo.load("smollm2", dtype="float32")


@functools.cache
def target() -> HFModel:
    return HFModel(model().model)


@functools.cache
def plain() -> list[list[int]]:
    return Engine(target(), stopping=stopping()).generate(prompts()).outputs


def stopping() -> Stopping:
    return Stopping(48, model().stop_tokens)


def prompts() -> list[list[int]]:
    return [zoo.chat(model().tokenizer, question) for question in PROMPTS]


def test_heads_lie_with_their_course_log_and_card() -> None:
    size = 0
    for name in shipped.NAMES:
        folder = shipped.folder(name)
        size += sum(p.stat().st_size for p in folder.iterdir())
        assert course(folder / "course.toml").head.kind == name
        looks = [e for e in map(json.loads, (folder / "log.jsonl").read_text().splitlines()) if "conditional" in e]
        best = max(looks, key=lambda e: e["acceptance_length"])
        assert best["acceptance_length"] > looks[0]["acceptance_length"]
        assert f"{best['tokens']:,}" in (folder / "card.md").read_text()
    assert size < 60e6


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("name", shipped.NAMES)
def test_a_head_changes_no_token_and_saves_passes(name: str, shape: str) -> None:
    drafter = shipped.drafter(name, target(), None if shape == "chain" else shipped.tree(name))
    session = Engine(target(), drafter, stopping=stopping()).generate(prompts())
    assert session.outputs == plain()
    assert metrics.acceptance_length(session.trace.steps) > (1.1 if shape == "chain" else 1.3)


@functools.cache
def exam() -> Exam:
    engine = Engine(target(), stopping=stopping())
    return Exam.of(target(), asked(engine, model().tokenizer, tokens=32))


@functools.cache
def bill(name: str) -> Diagnosis:
    return diagnose(shipped.folder(name), target(), exam())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in shipped.NAMES if name != "small"])
def test_the_doctor_finds_nothing(name: str) -> None:
    assert bill(name).healthy, text(bill(name))


@pytest.mark.slow
@pytest.mark.skipif("eagle3" not in shipped.NAMES, reason="the package holds no EAGLE-3 head yet")
@pytest.mark.parametrize("name", DAMAGES if os.environ.get("SPECDEC_WHOLE") else SOME)
def test_the_doctor_finds_what_was_done_to_it(name: str, tmp_path: Path) -> None:
    trap, damage = DAMAGES[name]
    found = diagnose(damage(dialects.read(shipped.folder("eagle3"))), target(), exam())
    straight = bill("eagle3")
    if (
        name == "norm_output"
    ):  # its states go through a norm first thing in the next guess anyway: this hardly matters here
        assert found.healthy and abs(found.after.cross_entropy - straight.after.cross_entropy) < 0.1, text(found)
        return
    assert {f.trap for f in found.findings} == {trap}, text(found)
    repair(found, tmp_path / "well", target(), exam())
    if name == "an LM head of noise":  # what it was is lost, and the target's rows are the next best
        assert found.before is not None and found.after.cross_entropy < found.before.cross_entropy - 1, text(found)
    else:
        assert found.after.cross_entropy == pytest.approx(straight.after.cross_entropy, abs=0.05)


@pytest.mark.slow
@pytest.mark.skipif("eagle3" not in shipped.NAMES, reason="the package holds no EAGLE-3 head yet")
def test_the_doctor_sees_through_a_rotated_target() -> None:
    c = dialects.read(shipped.folder("eagle3"))
    c = changed(c, {"embed_tokens.weight": rows(target(), torch.float32)}, target_hidden_size=576)
    turned = rotated(target())
    found = diagnose(c, turned, Exam.of(turned, [t.text for t in exam().every]))
    assert [f.trap for f in found.findings] == [15], text(found)


@pytest.mark.slow
@pytest.mark.skipif("eagle3" not in shipped.NAMES, reason="the package holds no EAGLE-3 head yet")
def test_the_doctor_asks_for_the_chat_template() -> None:
    bare = Exam.of(target(), asked(Engine(target(), stopping=stopping()), model().tokenizer, chat=False, tokens=32))
    found = diagnose(shipped.folder("eagle3"), target(), bare, others={"use the chat template": exam()})
    assert {f.trap for f in found.findings} <= {13}, text(found)


@pytest.mark.slow
@pytest.mark.skipif("eagle3" not in shipped.NAMES, reason="the package holds no EAGLE-3 head yet")
def test_the_doctor_warns_of_float16() -> None:
    c = half(dialects.read(shipped.folder("eagle3")))
    assert 12 in {f.trap for f in diagnose(c, target(), exam()).findings}

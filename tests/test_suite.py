"""Suites of questions, scores by task, heads of one's own on disk, and the heads of the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny import lm
from torch import nn

from toolkit import shipped
from toolkit.bench.suite import Answer, answers, questions, run, scores
from toolkit.cli import main
from toolkit.heads import MedusaHead, plain


def written(folder: Path) -> Path:
    file = folder / "questions.jsonl"
    lines = [{"task": "qa" if i % 2 else "math", "turns": [f"question {i}", "then"]} for i in range(12)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_questions_are_spread_over_their_task(tmp_path: Path) -> None:
    assert len(questions(written(tmp_path))) == 12
    some = questions(written(tmp_path), per_task=2)
    assert [(q.task, q.text) for q in some] == [
        ("math", "question 0"),
        ("math", "question 6"),
        ("qa", "question 1"),
        ("qa", "question 7"),
    ]
    (tmp_path / "bad.jsonl").write_text('{"task": "qa"}\n')
    with pytest.raises(ValueError, match="line 1: a question needs"):
        questions(tmp_path / "bad.jsonl")
    with pytest.raises(ValueError, match="cannot be read"):
        questions(tmp_path / "none.jsonl")


def test_answers_are_kept_and_asked_for_once(tmp_path: Path) -> None:
    asked = questions(written(tmp_path))
    calls: list[str] = []

    def arm(text: str) -> tuple[list[int], int]:
        calls.append(text)
        return [1, 2, 3, 4, 5, len(text)], 2

    log = tmp_path / "log.jsonl"
    first = run(asked, {"a": arm, "b": arm}, log, warm=False)
    for _ in range(5):
        next(first)
    with log.open("a") as stream:
        stream.write('{"number": 3, "ta')
    found = list(run(asked, {"a": arm, "b": arm}, log, warm=False))
    assert len(found) == len(calls) == 24
    assert len({(a.number, a.arm) for a in found}) == 24
    assert len(list(answers(log))) == 24 and all(a.output[-1] == len("question 0") for a in found[:3])
    with pytest.raises(ValueError, match="other questions or options"):
        next(run(asked, {"a": arm}, log, warm=False, about="64 new tokens"))


def test_scores_pool_a_task_and_average_tasks() -> None:
    found = [
        Answer(0, "qa", "base", 10, 0, 1.0),
        Answer(0, "qa", "mine", 10, 5, 0.5),
        Answer(1, "qa", "base", 30, 0, 3.0),
        Answer(1, "qa", "mine", 30, 5, 1.5),
        Answer(2, "math", "base", 10, 0, 1.0),
        Answer(2, "math", "mine", 12, 3, 1.2),
        Answer(3, "math", "mine", 99, 33, 1.0),
    ]
    mine = scores(found, "base")["mine"]
    assert mine.acceptance_length == {"qa": 4.0, "math": 111 / 36}
    assert mine.speed["qa"] == pytest.approx(2.0) and mine.speed["math"] == pytest.approx(1.0)
    assert mine.mean_speed == pytest.approx(1.5)
    assert scores(found, "base")["base"].acceptance_length == {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--per-task", "0"], "--per-task must be at least 1"),
        (["--drafters", "hydra"], "unknown drafter 'hydra'"),
        (["--drafters", "eagle3=.", "--shapes", "star"], "unknown shape 'star'"),
    ],
)
def test_bench_refuses_in_a_sentence(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["bench", str(written(tmp_path)), *options]) == 2
    assert says in capsys.readouterr().err


def test_a_head_of_ones_own_on_disk(tmp_path: Path) -> None:
    head = MedusaHead.of(lm(0), heads=2)
    nn.init.normal_(head.blocks[0][0].linear.weight)
    plain.save(head, tmp_path / "head", rungs=2)
    again = plain.load(MedusaHead.of(lm(0), heads=2), tmp_path / "head")
    state = torch.randn(3, 32, dtype=torch.float64)
    assert torch.equal(again(state), head(state))
    with pytest.raises(ValueError, match="other parameters"):
        plain.load(MedusaHead.of(lm(0), heads=3), tmp_path / "head")
    with pytest.raises(ValueError, match="holds a MedusaHead, and this is a Linear"):
        plain.load(nn.Linear(2, 2), tmp_path / "head")
    (tmp_path / "head/model.safetensors").write_bytes(b"junk")
    with pytest.raises(ValueError, match="no head that can be read"):
        plain.load(again, tmp_path / "head")


def test_the_packages_heads_are_for_one_target() -> None:
    for name in shipped.NAMES:
        with pytest.raises(ValueError, match="are for SmolLM2-135M-Instruct"):
            shipped.drafter(name, lm(0))
    with pytest.raises(ValueError, match="no head 'hydra'"):
        shipped.folder("hydra")
    assert not shipped.fits(lm(0))

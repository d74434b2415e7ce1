"""Many prompts on the command line: one run, a comparison, and the sweep over sizes of the batch."""

from __future__ import annotations

import json

import pytest
from tiny import PROMPTS, greedy, lm, loaded, tiny

from toolkit.bench.serving import by_rows
from toolkit.cli import main
from toolkit.commands.serve import read_prompts
from toolkit.drafting import NGram, Nothing
from toolkit.engine import Engine
from toolkit.models.baseline import hf_batches, hf_continuous
from toolkit.sampling import Stopping
from toolkit.trace import load
from toolkit.widgets.batch import batch_figure


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    where = tmp_path_factory.mktemp("tiny-model")
    loaded().model.save_pretrained(where)
    loaded().tokenizer.save_pretrained(where)
    return str(where)


@pytest.fixture
def prompts(tmp_path) -> str:
    file = tmp_path / "prompts.jsonl"
    lines = ["abc", json.dumps({"prompt": "bcd bcd"}), json.dumps({"turns": ["dcba", "x"]}), "aabb", "cab"]
    file.write_text("\n".join(lines))
    return str(file)


@pytest.mark.parametrize("rows", [1, 3])
def test_transformers_batches_give_what_single_prompts_give(rows):
    want = [g[:12] for g in greedy()]
    assert hf_batches(tiny(0), PROMPTS, rows=rows, tokens=12) == want
    assert hf_continuous(tiny(0), PROMPTS, rows=rows, tokens=12) == want


def test_prompts_are_read_from_lines_and_from_json(prompts, tmp_path):
    from pathlib import Path

    assert read_prompts(Path(prompts), None) == ["abc", "bcd bcd", "dcba", "aabb", "cab"]
    assert read_prompts(Path(prompts), 2) == ["abc", "dcba"], "spread over the file"
    for content, says in (("", "holds no prompt"), ('{"text": 1}', '"prompt" or "turns"')):
        (tmp_path / "bad").write_text(content)
        with pytest.raises(ValueError, match=says):
            read_prompts(tmp_path / "bad", None)
    with pytest.raises(ValueError, match="cannot be read"):
        read_prompts(tmp_path / "none", None)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--drafter", "ngram,foo"], "unknown drafter 'foo'"),
        (["--rows", "0"], "--rows must be at least 1; got 0"),
        (["--compare", "--sweep"], "two measurements"),
        (["--json", "x"], "--compare or --sweep"),
        (["--trace", "x", "--sweep"], "a single run"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(options, says, prompts, capsys):
    assert main(["serve", prompts, *options]) == 2
    assert says in capsys.readouterr().err


def test_one_run_writes_a_trace_and_prints_metrics(folder, prompts, tmp_path, capsys):
    common = ["serve", prompts, "--target", folder, "--no-chat", "--dtype", "float32", "--max-new-tokens", "9"]
    trace = tmp_path / "run.jsonl"
    assert main([*common, "--rows", "2", "--trace", str(trace), "--metrics"]) == 0
    said = capsys.readouterr()
    assert "specdec_tokens_total" in said.out and "5 requests" in said.err
    assert sum(len(r.emitted) for s in load(trace).steps for r in s.rows if r) == 45
    assert main([*common, "--trace", str(tmp_path / "run.json")]) == 0
    assert json.loads((tmp_path / "run.json").read_text())["traceEvents"]


def test_a_comparison_tells_whether_the_texts_agree(folder, prompts, tmp_path, capsys):
    file = tmp_path / "figures.json"
    options = ["--target", folder, "--no-chat", "--dtype", "float32", "--max-new-tokens", "6", "--repeats", "1"]
    assert (
        main(["serve", prompts, *options, "--compare", "--rows", "2", "--drafter", "none,ngram", "--json", str(file)])
        == 0
    )
    read = capsys.readouterr()
    said = read.out
    assert "warm-up: HF generate, batches" in read.err, "no terminal, and yet what goes on is told"
    for arm in ("HF generate_batch", "ours, none", "ours, ngram"):
        assert f"{arm}: 5 of 5 texts" in said
    assert set(json.loads(file.read_text())["arms"]) >= {"HF generate, batches", "ours, ngram"}


def test_the_sweep_foretells_from_what_it_measures(folder, prompts, tmp_path):
    engine = Engine(lm(0), stopping=Stopping(8))
    points = by_rows(engine, PROMPTS, {"none": Nothing(), "ngram": NGram()}, (1, 2, 4), tokens=10, repeats=1)
    assert [(p.rows, p.drafter) for p in points] == [(r, d) for r in (1, 2, 4) for d in ("none", "ngram")]
    for p in points:
        if p.drafter == "none":
            assert p.speedup == 1 and p.length == 1 and p.nodes == 1 and 0.3 < p.foretold <= 1
        else:
            assert p.length >= 1 and p.rate > 0 and p.step_ms >= p.target_ms
    assert len(batch_figure(points).data) == 8
    with pytest.raises(ValueError, match="8 rows need as many prompts; there are 4"):
        by_rows(engine, PROMPTS, {"none": Nothing()}, (8,))
    file, chart = tmp_path / "points.json", tmp_path / "chart.html"
    options = [
        "--target",
        folder,
        "--no-chat",
        "--max-new-tokens",
        "6",
        "--repeats",
        "1",
        "--rows",
        "2",
        "--dtype",
        "float32",
    ]
    assert main(["serve", prompts, *options, "--sweep", "--json", str(file), "--figure", str(chart)]) == 0
    assert len(json.loads(file.read_text())["points"]) == 4 and "plotly" in chart.read_text()

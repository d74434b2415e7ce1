"""The command line as a user meets it: real processes where it matters, a tiny model from a folder."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import loaded

from toolkit.cli import main
from toolkit.engine import Engine
from toolkit.models.hf import HFModel
from toolkit.models.zoo import load, plain
from toolkit.sampling import Stopping


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    where = tmp_path_factory.mktemp("tiny-model")
    loaded().model.save_pretrained(where)
    loaded().tokenizer.save_pretrained(where)
    return where


def call(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "toolkit", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


def test_help_answers_without_torch():
    code = "import sys; from toolkit.cli import main\ntry: main(['generate', '--help'])\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for word in ("--drafter", "--temperature", "--compare", "examples:"):
        assert word in done.stdout
    assert call().stdout.startswith("usage:")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([""], "the prompt is empty"),
        (
            ["x", "--drafter", "foo"],
            "unknown drafter 'foo'.*none, ngram, suffix, lookahead, recycling, early-exit, draft-model",
        ),
        (["x", "--shape", "ring", "--drafter", "early-exit"], "unknown shape 'ring'"),
        (["x", "--max-new-tokens", "0"], "max_new_tokens.*0"),
        (["x", "--top-p", "1.5"], r"top_p.*\(0, 1\].*1.5"),
        (["x", "--temperature", "-1"], "temperature.*-1"),
        (["x", "--dtype", "int8"], "unknown dtype 'int8'.*bfloat16"),
        (["x", "--device", "cuda:7"], "cuda:7"),
        (["x", "--exit-layer", "3"], "--exit-layer has no effect with --drafter ngram: it is for early-exit"),
        (["x", "--width", "3", "--drafter", "early-exit"], "--width has no effect.*dynamic"),
        (["x", "--length", "0"], "--length must be at least 1"),
        (["x", "--drafter", "draft-model"], "needs --draft"),
        (["x", "--json", "f"], "--json.*--compare"),
        (["x", "--repeats", "0", "--compare"], "--repeats must be at least 1"),
        (["x", "--repetition-penalty", "0"], "repetition_penalty.*0"),
        (["x", "--compare", "--presence-penalty", "0.5"], "generate knows no presence_penalty: leave that out"),
        (["x", "--stop", ""], "stop string must not be empty"),
        (["x", "--target", "./not/there"], "no model './not/there'"),
    ],
)
def test_bad_input_is_one_sentence_before_any_model_is_loaded(arguments, says, capsys, monkeypatch):
    def never(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("toolkit.models.zoo.AutoModelForCausalLM.from_pretrained", never)
    assert main(["generate", *arguments]) == 2
    out, err = capsys.readouterr()
    import re

    assert out == "" and err.count("\n") == 1 and re.search(says, err), err


def test_what_only_the_model_can_tell(folder, capsys):
    for arguments, says in (
        (["--drafter", "early-exit", "--exit-layer", "2"], "1 to 1 of the 2 layers; got 2"),
        (["--no-chat", "--target", str(folder)], "shorten it"),
    ):
        prompt = "x" if "--exit-layer" in arguments else "x" * 3000
        assert main(["generate", prompt, "--target", str(folder), *arguments]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("drafter", ["none", "ngram", "early-exit"])
def test_plain_prints_the_generated_text_alone(folder, drafter):
    done = call(
        "generate",
        "abcabc",
        "--target",
        str(folder),
        "--dtype",
        "float64",
        "--drafter",
        drafter,
        "--plain",
        "--max-new-tokens",
        "24",
    )
    assert done.returncode == 0, done.stderr
    model = load(folder, dtype="float64")
    engine = Engine(HFModel(model.model), stopping=Stopping(24), decode=model.decode)
    want = engine.generate([plain(model.tokenizer, "abcabc")]).texts[0]
    assert done.stdout == want + "\n"


@pytest.mark.slow
@pytest.mark.alone
def test_standard_input_seeds_and_the_figures(folder):
    options = ("--target", str(folder), "--temperature", "1", "--max-new-tokens", "16")
    runs = [call("generate", "-", *options, "--seed", seed, input="hello\n") for seed in ("3", "3", "4")]
    assert runs[0].stdout == runs[1].stdout != runs[2].stdout
    assert "acceptance length" in runs[0].stderr and "16 tokens in" in runs[0].stderr
    assert "\x1b" not in runs[0].stdout + runs[0].stderr, "no control codes into a pipe"


@pytest.mark.slow
@pytest.mark.alone
def test_compare_measures_in_one_run_and_writes_json(folder, tmp_path):
    file = tmp_path / "figures.json"
    done = call(
        *("generate", "abcabcabc", "--target", str(folder), "--dtype", "float64", "--compare", "--repeats", "2"),
        *("--max-new-tokens", "12", "--drafter", "early-exit", "--json", str(file), "--repetition-penalty", "1.4"),
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    arms = report["arms"]
    assert set(arms) == {"HF generate", "HF prompt lookup", "ours, no drafter", "ours, NGram", "ours, EarlyExit"}
    assert report["baseline"] == "HF generate" and arms["HF generate"]["ratio_to_baseline"] == [1.0, 1.0]
    for name, arm in arms.items():
        assert len(arm["tokens_per_second"]) == 2 and arm["new_tokens"] == 12
        assert name == "HF generate" or arm["output"] == "the same tokens as HF generate"
    assert arms["ours, no drafter"]["acceptance_length_with_bonus"] == 1
    assert set(arms["ours, EarlyExit"]["median_ms"]) == {"draft", "target", "verify", "commit"}
    assert report["header"]["dtype"] == "torch.float64" and report["header"]["torch"]


@pytest.mark.slow
@pytest.mark.alone
def test_interrupting_keeps_what_was_written(folder):
    command = [
        sys.executable,
        "-m",
        "toolkit",
        "generate",
        "abc",
        "--target",
        str(folder),
        "--plain",
        "--max-new-tokens",
        "1900",
    ]
    heeding = functools.partial(
        signal.signal, signal.SIGINT, signal.default_int_handler
    )  # a job in the background does not
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heeding)
    assert process.stdout is not None
    first = os.read(process.stdout.fileno(), 1)
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and first and b"Traceback" not in err, err


@pytest.mark.slow
@pytest.mark.alone
def test_a_reader_that_goes_away_is_no_error(folder):
    command = [
        sys.executable,
        "-m",
        "toolkit",
        "generate",
        "abc",
        "--target",
        str(folder),
        "--plain",
        "--max-new-tokens",
        "400",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    os.read(process.stdout.fileno(), 1)
    process.stdout.close()
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    assert process.poll() == 0 and b"Traceback" not in process.stderr.read()
    process.stderr.close()

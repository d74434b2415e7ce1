"""A run that was saved or exported shows the same again, where no model and no network is."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading

import pytest
from browser.axe import faults
from browser.lab import chromium, needs_chromium
from tiny import loaded

from toolkit.cli import main
from toolkit.drafting import NGram
from toolkit.engine import Engine, Server
from toolkit.models.hf import HFModel
from toolkit.models.words import words
from toolkit.sampling import Stopping
from toolkit.trace import Trace, decoder, load, save, seated
from toolkit.trace.trace import Trace as Whole
from toolkit.trace.words import tokens_in
from toolkit.widgets import Lab, Replay, export_html

PROMPTS = ["abcabc </script><script>alert(1)</script>", "xyxyxy שלום"]


@pytest.fixture(scope="module")
def lab():
    made = Lab(loaded(), prompts=PROMPTS, max_new_tokens=24, dtype="float32", drafter="early exit, tree")
    made.run()
    made.wait()
    yield made
    made.close()


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".parquet"])
def test_a_saved_run_is_shown_without_its_model(lab, tmp_path, ending):
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    lab.save(tmp_path / f"run{ending}")
    replay = Replay(tmp_path / f"run{ending}")
    try:
        for row, text in enumerate(lab.session.texts):
            replay.controls.row.value = row
            replay.screen.settle()
            assert "".join(p[0] for p in replay.stage.ribbon.pieces) == text
            assert replay.stage.ribbon.prompt.startswith(PROMPTS[row])
        replay.controls.row.value = 0
        lab.row = 0
        for step in (0, 2, 1):
            replay.step_shown = lab.step_shown = step
            assert replay.screen.settle() and lab.screen.settle()
            assert replay.stage.tree.whole == lab.tree.whole
        assert "tokens in" in replay.snapshot().data and "<script" not in replay.snapshot().data
    finally:
        lab.step_shown = None
        replay.close()


def test_a_replay_plays_to_its_end_and_leaves_no_thread(lab, tmp_path):
    lab.save(tmp_path / "run.jsonl")
    lab.screen.settle()
    before = set(threading.enumerate())
    replay = Replay(tmp_path / "run.jsonl")
    replay.controls.delay.value = 0.0
    replay.play()
    playing = next(t for t in threading.enumerate() if t.name == "specdec-replay")
    playing.join(20)
    assert not playing.is_alive() and replay.step_shown == len(replay.trace.steps) - 1
    replay.controls.rewind.click()
    assert replay.step_shown == len(replay.trace.steps) - 2 == replay.controls.timeline.shown
    replay.play()
    again = next(t for t in threading.enumerate() if t.name == "specdec-replay")
    replay.close()
    again.join(5)
    assert set(threading.enumerate()) <= before


def test_what_cannot_be_shown_is_refused_in_a_sentence(lab, tmp_path):
    with pytest.raises(ValueError, match="no step to show"):
        Replay(Trace())
    with pytest.raises(ValueError, match="no step to show"):
        export_html(Trace(), tmp_path / "x.html")
    with pytest.raises(ValueError, match="no words"):
        export_html(Whole(lab.trace.prompts, {}, list(lab.trace.steps)), tmp_path / "x.html")
    with pytest.raises(ValueError, match="there is no folder"):
        lab.export(tmp_path / "nowhere" / "x.html")
    with pytest.raises(ValueError, match="there is no file"):
        Replay(tmp_path / "none.jsonl")


def test_traces_without_words_are_read_as_before(lab, tmp_path):
    save(Trace(lab.trace.prompts, dict(lab.trace.about), list(lab.trace.steps)), tmp_path / "old.jsonl")
    assert '"words"' not in (tmp_path / "old.jsonl").read_text()
    found = load(tmp_path / "old.jsonl")
    assert found.words == {} and repr(found.steps) == repr(lab.trace.steps)


def test_an_exported_page_is_whole_and_asks_for_nothing(lab, tmp_path):
    size = lab.export(tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert size == len(text.encode()) and "default-src 'none'" in text
    head = text[: text.index('<script id="run"')]
    assert "<script" not in head and "&lt;/script&gt;" in head, "the prompt is text, also in the title"
    assert text.count("</script>") == 3, "nothing inside ends a script but its own end"
    assert not re.search(r'(?:src|href)=["\']?(?:https?:)?//', head)


def byte_level() -> object:
    class Tokenizer:
        def convert_ids_to_tokens(self, ids):
            return [{7: "ðŁ", 8: "ĻĤ", 9: "<0xE2>"}[i] for i in ids]

    return Tokenizer()


def test_half_characters_have_their_own_bytes():
    text = {0: " a", 1: "b", 7: "\ufffd", 8: "\ufffd\ufffd", 9: "\ufffd", 5: ""}

    def decode(ids):
        whole = "".join(text[i] for i in ids)
        return whole.removeprefix(" ")  # as sentencepiece does

    found = words(byte_level(), decode, [7, 8, 0, 1, 9, 5])
    assert found == {0: b" a", 1: b"b", 5: b"", 7: b"\xf0\x9f", 8: b"\x99\x82", 9: b"\xe2"}
    assert decoder(found)([0, 7, 8]) == " a🙂" and decoder(found)([7]) == "\ufffd" and decoder(found)([99]) == "\ufffd"


@pytest.mark.slow
def test_words_of_the_real_tokenizer_put_its_texts_together():
    from toolkit.models import zoo

    real = zoo.load("smollm2")
    chance = random.Random(1)
    texts = ["naïve — 🙂🧑‍🚀 done", "  two  spaces\n\n\ttab", "שלום 你好", "print('x')  # y"]
    for text in texts:
        ids = zoo.plain(real.tokenizer, text)
        known = real.words([*ids, *(chance.randrange(49152) for _ in range(50))])
        assert decoder(known)(ids) == real.decode(ids) == text
        for cut in range(1, len(ids)):
            assert decoder(known)(ids[:cut]) == real.decode(ids[:cut])


def test_reading_a_trace_needs_no_torch(lab, tmp_path):
    lab.save(tmp_path / "run.jsonl")
    code = (
        "import sys; from toolkit.trace import load, decoder; t = load(sys.argv[1]); decoder(t.words)([1]); "
        "print('torch' in sys.modules, 'transformers' in sys.modules, len(t.steps))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run.jsonl")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False", str(len(lab.trace.steps))]
    assert tokens_in(load(tmp_path / "run.jsonl")) <= set(load(tmp_path / "run.jsonl").words)


def test_ids_stand_for_themselves_where_no_words_are_known(lab):
    assert decoder({})([5, 17]) == "[5][17]"
    replay = Replay(Trace(lab.trace.prompts, {}, list(lab.trace.steps)))
    replay.screen.settle()
    first = lab.trace.steps[0].rows[0].emitted[0]
    assert replay.stage.ribbon.pieces[0][0] == f"[{first}]"
    replay.close()


@pytest.fixture(scope="module")
def served():
    """Two rows for three requests, so that rows change hands."""
    tiny = loaded()
    engine = Engine(HFModel(tiny.model), NGram(shortest=1), decode=tiny.decode, stopping=Stopping(10))
    server = Server(engine, pages=64, rows=2)
    tickets = [server.add(tiny.tokenizer(text)["input_ids"]) for text in ("abcabc", "xyxyxy", "hello")]
    server.finish()
    server.trace.words = tiny.words(tokens_in(server.trace))
    return server, {t.name: tiny.decode(t.output) for t in tickets}


def test_a_servers_run_has_a_row_for_each_request(served, tmp_path):
    server, texts = served
    save(server.trace, tmp_path / "run.jsonl")
    replay = Replay(tmp_path / "run.jsonl")
    assert [label.split(":")[0] for label, _ in replay.controls.row.options] == list(texts)
    for row, (name, text) in enumerate(texts.items()):
        replay.controls.row.value = row
        replay.screen.settle()
        said = "".join(p[0] for p in replay.stage.ribbon.pieces)
        assert said and text.startswith(said), "half a character at the end is held back"
        emitted = [
            t for s in server.trace.steps for n, r in zip(s.ids, s.rows, strict=True) if n == name for t in r.emitted
        ]
        assert len(replay.stage.ribbon.pieces) == len(emitted) == 10
    replay.close()
    assert export_html(server.trace, tmp_path / "run.html") > 1e6


def test_rows_that_never_change_are_left_alone(lab, served):
    assert seated(lab.trace) is lab.trace
    whole = seated(served[0].trace)
    assert {len(s.rows) for s in whole.steps} == {3}
    told = [[r for r in s.rows if r] for s in whole.steps]
    assert told == [[r for r in s.rows if r] for s in served[0].trace.steps]


@pytest.mark.slow
def test_traces_of_the_command_line_hold_their_text(tmp_path, capsys):
    folder, trace, prompts = tmp_path / "model", tmp_path / "run.jsonl.gz", tmp_path / "prompts.txt"
    loaded().model.save_pretrained(folder)
    loaded().tokenizer.save_pretrained(folder)
    prompts.write_text("abcabc\nxyxyxy\n")
    common = ["--target", str(folder), "--max-new-tokens", "9"]
    start = ["generate", "abcabc", *common, "--plain", "--trace"]
    assert main([*start, str(tmp_path / "run.txt")]) == 2
    assert "ends like no kind of trace file" in capsys.readouterr().err
    assert main([*start, str(trace), "--compare"]) == 2
    assert "--trace is of a single run" in capsys.readouterr().err
    assert main([*start, str(trace)]) == 0
    said = capsys.readouterr().out.strip("\n")
    replay = Replay(trace)
    replay.screen.settle()
    assert replay.stage.ribbon.prompt.strip() == "abcabc"
    assert said.startswith("".join(p[0] for p in replay.stage.ribbon.pieces).strip("\n")) and said
    replay.close()
    served = tmp_path / "served.jsonl"
    assert main(["serve", str(prompts), *common, "--trace", str(tmp_path / "no" / "run.jsonl")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["serve", str(prompts), *common, "--trace", str(served)]) == 0
    assert tokens_in(load(served)) == set(load(served).words)


@pytest.mark.slow
@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_page_works_from_disk_without_a_network(lab, tmp_path, scheme):
    lab.export(tmp_path / "run.html")
    with chromium() as browser:
        page = browser.new_context(color_scheme=scheme, offline=True).new_page()
        asked, complaints = [], []
        page.on("request", lambda r: asked.append(r.url))
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.goto((tmp_path / "run.html").as_uri())
        page.wait_for_selector("body[data-ready=yes]", timeout=30_000)
        last = len(lab.trace.steps) - 1
        shown = "() => Number(document.querySelector('.sd-tree').dataset.step)"
        page.wait_for_function(f"(n) => ({shown})() === n", arg=last)
        page.click("#back")
        page.wait_for_function(f"(n) => ({shown})() === n", arg=last - 1)
        page.locator("#step").focus()
        page.keyboard.press("Home")
        page.wait_for_function(f"() => ({shown})() === 0")
        page.locator(".sd-pane").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".sd-card:not([hidden])")
        assert "outcome" in page.locator(".sd-card").inner_text()
        page.keyboard.press("n")
        page.keyboard.press("n")
        assert page.locator(".sd-said").inner_text().startswith("2 of ")
        page.select_option("#row", "1")
        page.wait_for_function(f"(n) => ({shown})() === n", arg=len([s for s in lab.trace.steps if s.rows[1]]) - 1)
        assert "שלום" in page.locator(".sd-ribbon").inner_text()
        piece = page.locator(".sd-ribbon .piece:not(:empty)").first
        piece.click()
        page.wait_for_function(f"(n) => ({shown})() === n", arg=int(piece.get_attribute("data-step")))
        assert page.locator("#charts .main-svg").count() > 0
        assert faults(page) == []
        assert [u for u in asked if not u.startswith(("file:", "blob:", "data:"))] == [] and complaints == []

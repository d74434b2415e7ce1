"""Colab, VS Code, terminals and notebooks that run without anybody: nothing hangs, nothing is asked of a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from tiny import loaded

from toolkit.widgets import Charts, Lab, Replay, Ribbon, ServingView, Timeline, TreeView, elsewhere

TESTS = Path(__file__).parent
WIDGETS = Path(elsewhere.__file__).parent
MAKE = "from tiny import loaded; from toolkit.widgets import Lab, Replay; lab = Lab(loaded(), prompt='abcabc', dtype='float32', "
COMPARE = """from toolkit.bench.compare import plan
from toolkit.drafting import NGram
from toolkit.widgets import CompareView
view = CompareView(plan({'ngram': NGram()}, ['abcabc', 'xyxy'], target=loaded(), max_new_tokens=20))
"""
UNWATCHED = [
    MAKE + "max_new_tokens=24, drafter='early exit, tree')\nlab",
    "lab.run()\nlab.wait()\nlab.save('run.jsonl')\nreplay = Replay('run.jsonl')\nreplay.play()\nreplay",
    "print(lab.export('run.html') > 1e6)",
    COMPARE + "view",
    "view.wait();",
    MAKE.replace("lab =", "left =")
    + "max_new_tokens=1900, drafter='ngram', delay=0.05)\nleft.run()",  # and never ended
]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab(loaded(), prompt="abcabc", max_new_tokens=24, dtype="float32", drafter="early exit, tree", evidence=8)
    made.run()
    made.wait()
    yield made
    made.close()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels and other processes see the tiny model, and the package that is being tested."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]))


def test_colab_is_asked_for_its_widget_manager(monkeypatch):
    calls = []
    output: Any = ModuleType("google.colab.output")
    output.enable_custom_widget_manager = lambda: calls.append("enabled")
    monkeypatch.setattr(elsewhere, "get_ipython", lambda: SimpleNamespace(kernel="a kernel"))
    assert not elsewhere.enable_in_colab(), "a kernel of somebody else's"
    for name in ("google", "google.colab"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    assert elsewhere.enable_in_colab() and calls == ["enabled"]
    monkeypatch.setattr(elsewhere, "get_ipython", lambda: None)
    assert not elsewhere.enable_in_colab() and calls == ["enabled"], "no page, though the package is there"


@pytest.mark.parametrize("file", sorted(p.name for p in WIDGETS.rglob("*") if p.suffix in (".js", ".css")))
def test_no_view_asks_a_server_for_anything(file):
    (path,) = WIDGETS.rglob(file)
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert "import(url)" not in text or "const url = URL.createObjectURL" in text, "a module that came with the widget"
    assert not re.search(r"https?:|^\s*import\s|\bimport\((?!url\))|\bfetch\(|@import|url\((?!#)", text, re.MULTILINE)


def test_modules_and_styles_travel_with_the_widgets():
    """As text, not as an address: VS Code and Voilà have no folder of ours to load one from."""
    charts = Charts()
    views = [TreeView(str), Ribbon(str), ServingView(str), Timeline(), *(p.figure for p in charts._panels.values())]
    for view in views:
        state = view.get_state()
        assert "export default" in state["_esm"] and not state["_esm"].startswith("http"), type(view)
        assert "{" in state["_css"]
    library = views[-1]._library.code
    assert len(library) > 1e6 and "_py2js_restyle" in library, "plotly itself travels, too"
    for view in views:
        view.close()


def test_print_shows_what_a_page_would(lab, tmp_path, capsys):
    lab.step_shown = None
    text, count = str(lab), len(lab.trace.steps)
    assert text.startswith(repr(lab)) and f"step {count - 1}" in text and "acceptance length" in text
    assert "abcabc" in text and "+ " in text and "<" not in text
    lab.step_shown = 1
    assert " step 1 " in str(lab) and "tokens in 2 steps" in str(lab)
    panel = lab.what_if()
    record = lab.trace.steps[1].rows[0]
    assert str(panel).startswith(
        f"WhatIf(step 1, Rejection: {len(record.path) - 1} instead of {len(record.path) - 1} of "
    )
    assert str(panel).count("+ ") == 2, "two trees"
    panel.close()
    lab.step_shown = None
    lab.save(tmp_path / "run.jsonl")
    replay = Replay(tmp_path / "run.jsonl")
    assert str(replay) == str(lab).replace(repr(lab), repr(replay))
    replay._ipython_display_()
    shown = capsys.readouterr().out
    assert "acceptance length" in shown and f"step {count - 1}" in shown and "VBox" not in shown
    replay.close()


def test_a_prompt_is_no_markup_in_a_terminal():
    made = Lab(loaded(), prompt="[red]a\x1b[2J", max_new_tokens=3, dtype="float32", chat=False)
    assert "no step yet" in str(made)
    made.run()
    made.wait()
    assert "[red]a" in str(made) and "\x1b" not in str(made)
    made.close()


@pytest.mark.slow
@pytest.mark.alone
def test_plain_python_ends_by_itself_with_everything_open(environment, tmp_path):
    """No front end, a run that goes on, a replay that plays, and nobody who closes them."""
    code = "\n".join(
        [
            MAKE + "max_new_tokens=24)",
            "lab.run(); lab.wait(); print(lab); lab.save('run.jsonl')",
            "replay = Replay('run.jsonl'); replay.play(); print(repr(replay))",
            MAKE.replace("lab =", "left =") + "max_new_tokens=1900, delay=0.05)",
            "from toolkit.bench.compare import plan; from toolkit.drafting import NGram; from toolkit.widgets import CompareView",
            "view = CompareView(plan({'ngram': NGram()}, ['abcabc'] * 90, target=loaded(), max_new_tokens=90))",
            "left.run(); print('leaving')",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stdout.startswith("Lab(tiny") and "acceptance length" in done.stdout
    assert done.stdout.endswith("leaving\n") and done.stderr == ""


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("by", ["nbclient", "jupyter execute"])
def test_a_notebook_without_anybody_ends_by_itself(environment, tmp_path, by):
    """There is a kernel and no page that answers; what is saved holds the last state for pages without a kernel."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in UNWATCHED])
    if by == "nbclient":
        NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    else:
        nbformat.write(notebook, tmp_path / "run.ipynb")
        command = [sys.executable, "-m", "jupyter", "execute", "run.ipynb", "--inplace"]
        subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=250, check=True)
        notebook = nbformat.read(tmp_path / "run.ipynb", as_version=4)
    for cell, state in zip(notebook.cells[:2], ("done", "replay"), strict=True):
        live, picture = (o.data for o in cell.outputs)
        assert "application/vnd.jupyter.widget-view+json" in live and "VBox" not in live["text/plain"]
        assert "<svg" in picture["text/html"] and f"<b>{state}</b> · 24 tokens" in picture["text/html"]
    assert notebook.cells[2].outputs[0].text == "True\n" and (tmp_path / "run.html").exists()
    live, table = (o.data for o in notebook.cells[3].outputs)
    assert "application/vnd.jupyter.widget-view+json" in live and table["text/html"].count("<td>2/2</td>") == 2
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert page.count('class="specdec-static"') == 2


@pytest.mark.slow
@pytest.mark.alone
def test_an_interrupted_wait_leaves_the_run_paused(environment, tmp_path):
    manager, client = start_new_kernel(cwd=str(tmp_path))
    said: list[str] = []

    def run(code: str) -> dict[str, Any]:
        def hear(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                said.append(message["content"]["text"])

        return client.execute_interactive(code, timeout=100, output_hook=hear)["content"]

    try:
        assert run(MAKE + "max_new_tokens=1900, delay=0.05)\nlab.step()\nlab.wait()")["status"] == "ok"
        request = client.execute("lab.run()\nlab.wait()")
        time.sleep(1.5)  # the cell waits by now; had it not begun, nothing would be interrupted, which fails below
        manager.interrupt_kernel()
        while (reply := client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != request:
            pass
        assert reply["content"]["status"] == "error" and reply["content"]["ename"] == "KeyboardInterrupt"
        run("lab.wait(5)\nprint(lab.live.state, len(lab.trace.steps) > 2)")
        assert said[-1] == "paused True\n"
        run("n = len(lab.trace.steps); lab.step(); lab.wait(); print(len(lab.trace.steps) - n, lab.live.state)")
        assert said[-1] == "1 paused\n"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

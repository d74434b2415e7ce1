"""Colab, VS Code, terminals and notebooks that run without anybody: nothing hangs, nothing is asked of a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from nbclient import NotebookClient
from test_replay import lab  # noqa: F401

from toolkit.widgets import Replay, elsewhere

WIDGETS = Path(elsewhere.__file__).parent


def test_colab_is_asked_for_its_widget_manager(monkeypatch):
    assert not elsewhere.enable_in_colab(), "this is no Colab"
    calls = []
    output = ModuleType("google.colab.output")
    output.enable_custom_widget_manager = lambda: calls.append("enabled")
    for name in ("google", "google.colab"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    assert elsewhere.enable_in_colab() and calls == ["enabled"]


@pytest.mark.parametrize("file", sorted(p.name for p in WIDGETS.glob("*") if p.suffix in (".js", ".css")))
def test_no_view_asks_a_server_for_anything(file):
    text = (WIDGETS / file).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|^\s*import\s|\bimport\(|\bfetch\(|@import|url\((?!#)", text, re.MULTILINE)


def test_a_terminal_gets_text(lab, tmp_path, capsys):  # noqa: F811
    lab.save(tmp_path / "run.jsonl")
    replay = Replay(tmp_path / "run.jsonl")
    replay._ipython_display_()
    shown = capsys.readouterr().out
    assert "acceptance length" in shown and f"step {len(lab.trace.steps) - 1}" in shown and "VBox" not in shown
    assert str(replay) == f"Replay({len(lab.trace.steps)} steps, 2 prompts)"
    replay.close()


@pytest.mark.slow
def test_plain_python_ends_by_itself_with_everything_open(lab, tmp_path):  # noqa: F811
    lab.save(tmp_path / "run.jsonl")
    code = "import sys; from toolkit.widgets import Replay; r = Replay(sys.argv[1]); r.play(); print(r); r._ipython_display_()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run.jsonl")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.startswith("Replay(") and "acceptance length" in done.stdout


@pytest.mark.slow
def test_a_notebook_without_anybody_ends_by_itself(lab, tmp_path):  # noqa: F811
    """As `jupyter execute`, nbconvert and Voilà run it: there is a kernel, and no page that answers."""
    lab.save(tmp_path / "run.jsonl")
    cells = [
        "from toolkit.widgets import Replay, export_html\nreplay = Replay('run.jsonl')\nreplay.play()\nreplay",
        "print(export_html(replay.trace, 'run.html') > 1e6)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    kinds = [set(o.data) for o in notebook.cells[0].outputs if "data" in o]
    assert any("application/vnd.jupyter.widget-view+json" in kind for kind in kinds)
    assert any("<svg" in o.data.get("text/html", "") for o in notebook.cells[0].outputs if "data" in o)
    assert notebook.cells[1].outputs[0].text == "True\n" and (tmp_path / "run.html").exists()

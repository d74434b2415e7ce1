"""The house itself: what an import costs, what the wheel holds, what the files must not say."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import toolkit

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "room", ["toolkit", "toolkit.engine", "toolkit.models.hf", "toolkit.bench", "toolkit.verification"]
)
def test_no_room_but_widgets_pulls_in_jupyter(room):
    names = [
        "plotly",
        "IPython",
        "ipywidgets",
        "anywidget",
        "jupyterlab",
        *(["torch", "accelerate"] if room == "toolkit" else []),
    ]
    code = f"import sys, {room}; print([n for n in {names} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version_is_one():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == toolkit.__version__


def test_constraints_pin_what_the_project_asks_for():
    from packaging.requirements import Requirement

    pins = {}
    for line in (ROOT / ".ci" / "constraints.txt").read_text().splitlines():
        pin = Requirement(line)
        (only,) = pin.specifier
        assert only.operator == "=="
        pins[pin.name.lower().replace("_", "-")] = only.version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for text in [*project["dependencies"], *extras["lab"], *extras["test"]]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(pins[wanted.name.lower()]), text


@pytest.mark.slow
def test_the_wheel_holds_scripts_and_styles(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    names = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    code = {
        str(p.relative_to(ROOT)) for p in (ROOT / "toolkit").rglob("*") if p.suffix in (".py", ".js", ".css", ".typed")
    }
    assert code <= names
    assert not [n for n in names if n.startswith(("tests/", "notebooks/"))]

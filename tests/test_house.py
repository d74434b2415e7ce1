"""The house itself: what an import costs, what the wheel holds, what the files must not say."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import toolkit

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
JUPYTER = ("IPython", "anywidget", "ipywidgets", "jupyterlab", "plotly")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("room", "foreign"),
    [
        ("toolkit", (*JUPYTER, "accelerate", "torch")),
        ("toolkit.verification", (*JUPYTER, "accelerate", "transformers")),
        ("toolkit.engine", (*JUPYTER, "accelerate", "transformers")),
        ("toolkit.bench", JUPYTER),
        ("toolkit.models.hf", JUPYTER),  # transformers itself imports accelerate
        ("toolkit.cli", JUPYTER),
    ],
)
def test_no_room_but_widgets_pulls_in_jupyter(room, foreign):
    code = f"import sys, {room}; print([n for n in {foreign} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version_is_one():
    assert PROJECT["version"] == toolkit.__version__


def test_constraints_pin_what_the_project_asks_for():
    pins = {}
    for line in (ROOT / ".ci" / "constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            pin = Requirement(line)
            (only,) = pin.specifier
            assert only.operator == "==" and "+" not in only.version, f"{line}: an index has exact, public versions"
            pins[canonicalize_name(pin.name)] = only.version
    extras = PROJECT["optional-dependencies"]
    wanted = map(Requirement, [*PROJECT["dependencies"], *extras["lab"], *extras["train"], *extras["test"]])
    loose = [str(w) for w in wanted if not w.specifier.contains(pins.get(canonicalize_name(w.name), "0"))]
    assert loose == []


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    names = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    package = {n for n in names if n.startswith("toolkit/")}
    assert package == {n for n in git("ls-files", "-co", "--exclude-standard", "toolkit") if (ROOT / n).exists()}
    assert {".py", ".js", ".css"} <= {Path(n).suffix for n in package} and "toolkit/py.typed" in package
    assert {Path(n).name for n in names - package} == {"METADATA", "WHEEL", "RECORD", "LICENSE", "entry_points.txt"}


def test_no_file_names_a_place_on_one_machine():
    assert git("grep", "-nIE", r"\.\./shared|(^|[^[:alnum:]_.~-])/(work|home|root|Users|opt)/") == []


@pytest.mark.parametrize("script", ["lab", "test"])
def test_an_old_python_is_one_sentence_with_a_remedy(script, tmp_path):
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\ncase $1 in --version) echo Python 3.9.18 ;; *) exit 1 ;; esac\n")
    old.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": str(old), "SPECDEC_VENV": str(tmp_path / "venv")}
    command = ["bash", f".ci/{script}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "3.11 or newer" in done.stderr and "Python 3.9.18" in done.stderr
    assert "set PYTHON=" in done.stderr and not (tmp_path / "venv").exists()


def git(*arguments: str) -> list[str]:
    """The lines git prints. `git grep` returns 1 when it finds nothing, and that is no error."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or (arguments[0] == "grep" and done.returncode == 1), done.stderr
    return done.stdout.splitlines()

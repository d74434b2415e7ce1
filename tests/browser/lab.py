"""A throw-away JupyterLab on loopback, a Chromium, and the few moves a test needs."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pytest

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
needs_chromium = pytest.mark.skipif(
    not Path(CHROMIUM).exists() and not os.environ.get("CI"),
    reason="needs Debian's chromium: apt-get install chromium",
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SETTINGS = {  # nothing that calls home, saves behind our back or leaves cells out of the page
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
    "@jupyterlab/extensionmanager-extension:plugin": {"enabled": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
READY = """async () => {
  const session = window.jupyterapp.shell.currentWidget.context.sessionContext;
  await window.jupyterapp.restored;
  await session.ready;
  const end = Date.now() + 60000;
  while (!(session.session?.kernel?.status === 'idle' && session.session.kernel.connectionStatus === 'connected')) {
    if (Date.now() > end) throw new Error('the kernel never became idle');
    await new Promise((r) => setTimeout(r, 25));
  }
}"""


@dataclass
class Server:
    url: str
    token: str
    root: Path


@contextlib.contextmanager
def jupyterlab(root: Path) -> Iterator[Server]:
    """A server of its own over `root`, with its own settings, ended with all its kernels."""
    base = Path(tempfile.mkdtemp(prefix="specdec-lab-"))
    (base / "config" / "labconfig").mkdir(parents=True)
    (base / "config" / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(SETTINGS))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    token, url = secrets.token_hex(16), f"http://127.0.0.1:{port}"
    places = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    }
    env = {**os.environ, **{k: str(base / v) for k, v in places.items()}, "JUPYTER_PREFER_ENV_PATH": "1"}
    env |= {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), env.get("PYTHONPATH", "")])}
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"),
        *("--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}"),
        *("--ServerApp.allow_root=True", "--LabApp.news_url=", "--ServerApp.terminals_enabled=False"),
        *("--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.extension_manager=readonly"),
        "--LabApp.expose_app_in_browser=True",
    ]
    log = base / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out, cwd=root, start_new_session=True)
    try:
        _wait(process, f"{url}/api?token={token}", log)
        yield Server(url, token, root)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        shutil.rmtree(base, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + 90
    while True:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"JupyterLab did not start: {log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(url, timeout=1) as answer:
                json.load(answer)
            return
        except OSError:
            time.sleep(0.1)


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def write(root: Path, name: str, cells: list[str]) -> None:
    """A notebook of code cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, root / name)


@dataclass
class Tab:
    """One page, with what it must not do: talk to strangers, and complain."""

    page: Any
    server: Server
    strangers: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, browser: Any, server: Server, name: str, *, dark: bool = False) -> Tab:
        page = browser.new_context(viewport={"width": 1400, "height": 1300}).new_page()
        tab = cls(page, server)
        ours = (server.url, server.url.replace("http", "ws"), "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(ours) else tab.strangers.append(r.url))
        page.on("console", lambda m: tab.complaints.append(m.text[:300]) if m.type == "error" else None)
        page.on("pageerror", lambda e: tab.complaints.append((e.stack or str(e))[:600]))
        tab.go(name)
        if dark:
            tab.command("apputils:change-theme", {"theme": "JupyterLab Dark"})
            page.wait_for_selector("body[data-jp-theme-light='false']", state="attached")
        return tab

    def go(self, name: str) -> None:
        self.page.goto(f"{self.server.url}/lab/tree/{name}?reset&token={self.server.token}")
        self.page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=90_000)
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=90_000)
        self.page.wait_for_function("window.jupyterapp !== undefined")
        self.page.evaluate(READY)

    def command(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        self.page.evaluate(
            "async ([n, a]) => { await window.jupyterapp.commands.execute(n, a); }", [name, arguments or {}]
        )

    def run_all(self) -> None:
        self.command("notebook:run-all-cells")

    def button(self, text: str) -> Any:
        return self.page.locator(f".jupyter-button:has-text('{text}')").first

    def step(self) -> int:
        """The step that the first tree shows, -1 for none."""
        shown = self.page.locator(".sd-tree").first.get_attribute("data-step")
        return int(shown) if shown not in (None, "") else -1

    def until(self, what: str, argument: Any = None, timeout: float = 60_000) -> None:
        try:
            self.page.wait_for_function(what, arg=argument, timeout=timeout)
        except Exception as error:
            error.add_note(f"complaints of the page: {self.complaints}")
            raise

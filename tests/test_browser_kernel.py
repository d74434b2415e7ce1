"""What happens to a kernel while a Lab is open: an interrupt, a restart, a second browser tab."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from browser.lab import Server, Tab, chromium, jupyterlab, needs_chromium, write

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]
CELL = """from tiny import loaded
from toolkit.widgets import Lab
lab = Lab(loaded(), prompt="abcabcabc", max_new_tokens=1500, delay=0.15, drafter="early exit, tree")
lab"""
COMPARE = """from toolkit.bench.compare import plan
from toolkit.drafting import NGram
from toolkit.widgets import CompareView
CompareView(plan({"ngram": NGram()}, ["abcabc"], target=loaded(1), max_new_tokens=9))"""
SHOWN = "() => Number(document.querySelector('.sd-tree')?.dataset.step || -1)"
KERNEL = """async (what) => {
  const session = window.jupyterapp.shell.currentWidget.context.sessionContext;
  if (what === "restart") await session.restartKernel(); else await session.session.kernel[what]();
}"""
FIRST = """async () => {   // the first cell alone, as Shift-Enter runs it
  const { content } = window.jupyterapp.shell.currentWidget;
  content.deselectAll(); content.activeCellIndex = 0;
  await window.jupyterapp.commands.execute("notebook:run-cell");
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("notebooks")
    write(root, "waiting.ipynb", [CELL, "lab.run()\nlab.wait()"])
    write(root, "tabs.ipynb", [CELL, "lab.run();", COMPARE])
    with jupyterlab(root) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with chromium() as running:
        yield running


def paused(tab: Tab) -> int:
    """The step that is shown when the page says that the run has paused: the status is drawn after the tree."""
    tab.until("() => document.querySelector('.widget-html .specdec-status').innerText.startsWith('paused')")
    return tab.step()


def test_an_interrupted_and_a_restarted_kernel(server, browser):
    tab = Tab.open(browser, server, "waiting.ipynb")
    tab.page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    tab.until(f"() => ({SHOWN})() >= 3", timeout=60_000)
    tab.page.evaluate(KERNEL, "interrupt")
    tab.page.wait_for_selector("text=KeyboardInterrupt", timeout=20_000)
    held = paused(tab)
    tab.button("Step").click()
    tab.until(f"(n) => ({SHOWN})() === n", held + 1)
    tab.button("Run").click()
    tab.until(f"(n) => ({SHOWN})() >= n", held + 4)

    tab.page.evaluate(KERNEL, "restart")  # in mid-run
    time.sleep(1.0)
    tab.page.evaluate(FIRST)
    tab.until(f"() => document.querySelectorAll('.sd-tree').length === 1 && ({SHOWN})() === -1", timeout=60_000)
    tab.button("Run").click()
    tab.until(f"() => ({SHOWN})() >= 3")
    tab.button("Pause").click()
    held = paused(tab)
    tab.button("Rewind").click()
    tab.until(f"(n) => ({SHOWN})() === n", held - 1)
    assert tab.complaints == [] and tab.strangers == []
    tab.page.context.close()


def test_two_browser_tabs_on_one_notebook(server, browser):
    one = Tab.open(browser, server, "tabs.ipynb")
    one.run_all()
    one.until(f"() => ({SHOWN})() >= 3", timeout=60_000)
    one.page.wait_for_selector("text=2 of 2 answers", timeout=30_000)
    tables = [t.is_visible() for t in one.page.locator("table:has(caption)").all()]
    assert tables == [True, False], "the saved table is hidden by the living one"
    one.command("docmanager:save")
    two = Tab.open(browser, server, "tabs.ipynb")
    seen = one.step()
    two.until(f"(n) => ({SHOWN})() >= n", seen, timeout=60_000)
    assert two.page.locator(".sd-ribbon .piece").first.get_attribute("data-step") == "0", "the past is there as well"
    two.button("Pause").click()
    held = paused(one)
    assert paused(two) == held
    one.button("Step").click()
    for tab in (one, two):
        tab.until(f"(n) => ({SHOWN})() === n", held + 1)
    two.page.context.close()
    one.button("Step").click()
    one.until(f"(n) => ({SHOWN})() === n", held + 2)
    for tab in (one, two):
        assert tab.complaints == [] and tab.strangers == []
    one.page.context.close()

"""A person at JupyterLab, played by a real Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.lab import Server, Tab, chromium, jupyterlab, needs_chromium, write

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]
CELL = """from tiny import loaded
from toolkit.widgets import Lab
lab = Lab(loaded(), prompt="abcabcabc", max_new_tokens=600, delay=0.15, drafter="early exit, tree")
lab"""
SLOWLY = """from toolkit.widgets.charts.shared import Library
plotly = Library._plotly.func
Library._plotly.func = lambda library: "await new Promise((done) => setTimeout(done, 4000));" + plotly(library)
"""
SHOWN = "() => Number(document.querySelector('.sd-tree')?.dataset.step || -1)"


@pytest.fixture(scope="module")
def pictures() -> Path:
    folder = Path(os.environ.get("SPECDEC_SCREENSHOTS", "")) if os.environ.get("SPECDEC_SCREENSHOTS") else None
    folder = folder or Path("/tmp") / f"specdec-screenshots-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    print(f"\nscreenshots: {folder}")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("notebooks")
    write(root, "lab.ipynb", [CELL])
    write(root, "slow.ipynb", [SLOWLY + CELL, "lab.run()"])
    write(root, "two.ipynb", [CELL, "display(lab.tree)", "lab.run()"])
    shutil.copy(Path(__file__).parents[1] / "notebooks" / "01_first_run.ipynb", root)
    with jupyterlab(root) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with chromium() as running:
        yield running


def clean(tab: Tab) -> None:
    assert tab.strangers == [], "a request to a foreign host"
    assert tab.complaints == []


def test_two_views_and_a_reload_in_mid_run(server, browser, pictures):
    tab = Tab.open(browser, server, "two.ipynb")
    tab.run_all()
    tab.page.wait_for_selector(".sd-tree >> nth=1", timeout=60_000)
    tab.until(f"() => ({SHOWN})() >= 5")
    both = "() => { const s = [...document.querySelectorAll('.sd-tree')].map((t) => t.dataset.step); return s.length === 2 && s[0] === s[1] && s[0] > 8; }"
    tab.until(both)
    before = len(tab.page.locator(".sd-ribbon").first.inner_text())
    tab.command("docmanager:save")
    tab.go("two.ipynb")  # the page is loaded anew while the kernel runs on
    tab.page.wait_for_selector(".sd-tree >> nth=1", timeout=60_000)
    tab.until("(n) => (document.querySelector('.sd-ribbon')?.innerText.length || 0) >= n", before)
    assert tab.page.locator(".sd-ribbon .prompt").first.inner_text().startswith("abcabcabc")
    assert tab.page.locator(".sd-ribbon .piece").first.get_attribute("data-step") == "0", "the past is there as well"
    seen = tab.step()
    tab.until(f"(n) => ({SHOWN})() > n", seen)
    tab.page.screenshot(path=str(pictures / "reloaded.png"))
    tab.button("Stop").click()
    clean(tab)
    tab.page.context.close()


def test_charts_live_on_where_reading_plotly_takes_long(server, browser):
    """anywidget gives a model up that is not ready after two seconds: it would never hear of a step again."""
    tab = Tab.open(browser, server, "slow.ipynb")
    tab.run_all()
    drawn = "document.querySelector('.js-plotly-plot .js-line')?.getAttribute('d') || ''"
    tab.until(f"() => {drawn} !== ''", timeout=90_000)
    before = tab.page.evaluate(drawn)
    tab.until(f"(before) => {drawn} !== before", before, timeout=90_000)

    # Out of sight nothing is drawn; back in sight the chart is up to date, and lives on.
    tab.page.evaluate("document.querySelector('.sd-charts').style.display = 'none'")
    tab.page.wait_for_timeout(500)
    before, step = tab.page.evaluate(drawn), tab.step()
    tab.until(f"(n) => ({SHOWN})() > n + 12", step)
    assert tab.page.evaluate(drawn) == before
    tab.page.evaluate("document.querySelector('.sd-charts').style.display = ''")
    tab.until(f"(before) => {drawn} !== before", before)
    before = tab.page.evaluate(drawn)
    tab.until(f"(before) => {drawn} !== before", before)
    tab.button("Stop").click()
    clean(tab)
    tab.page.context.close()


def test_the_first_notebook_as_a_newcomer_runs_it(server, browser, pictures):
    tab = Tab.open(browser, server, "01_first_run.ipynb")
    tab.run_all()
    tab.page.wait_for_selector("text=/identical: \\d+ tokens/", timeout=400_000)
    tab.page.wait_for_selector(".sd-tree .node", timeout=60_000)
    tab.page.locator(".sd-tree").first.scroll_into_view_if_needed()
    tab.page.screenshot(path=str(pictures / "first-run.png"))
    assert tab.page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']").count() == 0
    clean(tab)
    tab.page.context.close()

"""The Lab from its first button to its last drawer, as a teacher would show it in a real JupyterLab."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.axe import faults
from browser.lab import Server, Tab, chromium, jupyterlab, needs_chromium, write

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]
CELL = """from dataclasses import replace
from tiny import loaded
from toolkit.widgets import Lab
lab = Lab(loaded(), targets=[replace(loaded(), name="twin")], prompt="abcabcabc", max_new_tokens=200, delay=0.1, evidence=64,
          drafter="early exit, tree")
lab"""
SHOWN = "() => Number(document.querySelector('.sd-tree')?.dataset.step || -1)"


@pytest.fixture(scope="module")
def pictures() -> Path:
    folder = Path(os.environ.get("SPECDEC_SCREENSHOTS") or f"/tmp/specdec-screenshots-{os.getpid()}")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"\nscreenshots: {folder}")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("tour")
    write(root, "tour.ipynb", [CELL])
    with jupyterlab(root) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with chromium() as running:
        yield running


class Guide:
    """The moves of the tour, and a picture at each station."""

    def __init__(self, tab: Tab, pictures: Path, theme: str) -> None:
        self.tab, self.page, self._pictures, self._theme = tab, tab.page, pictures, theme
        self._station = 0

    def picture(self, name: str) -> None:
        self._station += 1
        self.page.screenshot(path=str(self._pictures / f"tour-{self._theme}-{self._station:02}-{name}.png"))

    def accessible(self) -> None:
        """Nothing of ours on the page is a serious fault to axe-core; JupyterLab answers for itself."""
        found = faults(self.page, ".jp-OutputArea-output")
        assert found == [], "\n".join(found)

    def reach(self, step: int) -> None:
        self.tab.until(f"(n) => ({SHOWN})() === n", step)

    def choose(self, menu: str, label: str) -> None:
        self.page.locator(f".widget-dropdown:has(label:text-is('{menu}')) select").first.select_option(label=label)

    def drawer(self, title: str) -> None:
        header = self.page.locator(f".jupyter-widget-Collapse-header:has-text('{title}')").first
        header.click()
        header.evaluate("(e) => e.scrollIntoView()")

    def step(self) -> int:
        before = self.tab.step()
        self.tab.button("Step").click()
        self.reach(before + 1)
        return before + 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_tour(server, browser, pictures, theme):
    tab = Tab.open(browser, server, "tour.ipynb", dark=theme == "dark")
    page, guide = tab.page, Guide(tab, pictures, theme)
    page.set_viewport_size({"width": 1400, "height": 1500})
    tab.run_all()
    page.wait_for_selector(".sd-tree", timeout=90_000)
    guide.picture("before")
    _runs(tab, guide)
    _swaps(tab, guide)
    _looks(tab, guide)
    _studies(tab, guide)
    assert tab.strangers == [], "a request to a foreign host"
    assert tab.complaints == []
    page.context.close()


def _runs(tab: Tab, guide: Guide) -> None:
    page = tab.page
    tab.button("Run").click()
    tab.until(f"() => ({SHOWN})() >= 6")
    guide.picture("running")
    page.evaluate(
        """() => {
          window.order = [];
          const state = () => document.querySelector('.specdec-status b')?.textContent;
          window.watching = new MutationObserver(() => {
            if (state() === 'paused' && !window.order.some((e) => e[0] === 'paused')) window.order.push(['paused', performance.now()]);
          });
          window.watching.observe(document.body, { subtree: true, childList: true, characterData: true });
          document.addEventListener('click', () => window.order.push(['click', performance.now()]), { capture: true, once: true });
        }"""
    )
    tab.button("Pause").click()
    tab.until("() => window.order.some((e) => e[0] === 'paused')")
    order = page.evaluate("() => { window.watching.disconnect(); return window.order; }")
    assert [what for what, _ in order] == ["click", "paused"]
    print(f"from the click on Pause to “paused” on the page: {order[1][1] - order[0][1]:.0f} ms")
    page.wait_for_timeout(300)
    held = tab.step()
    page.wait_for_timeout(500)
    assert tab.step() == held, "nothing comes after Pause"
    guide.step()
    tab.button("Rewind").click()
    guide.reach(held)
    guide.picture("paused")
    guide.accessible()


def _swaps(tab: Tab, guide: Guide) -> None:
    page = tab.page
    guide.choose("shape", "chain")
    chain = guide.step()
    assert page.locator(".sd-tree .node").count() == 1 + 4 + 1, "the pending token, a chain of four, one token more"
    guide.choose("shape", "dynamic")
    guide.step()
    assert page.locator(".sd-tree .node").count() > 6
    guide.choose("drafter", "none")
    guide.step()
    assert page.locator(".sd-tree .node").count() == 2
    guide.choose("drafter", "early exit, tree")
    guide.choose("rule", _rule(page, "Greedy"))
    guide.step()
    guide.choose("rule", _rule(page, "Rejection"))
    guide.picture("swapped")
    assert guide.step() == chain + 4

    page.locator(".jupyter-widget-Collapse-header:has-text('Sampling of the next run')").first.click()
    box = page.locator(".widget-text:has(label:text-is('temperature')) input").first
    box.fill("0.8")
    box.press("Enter")
    tab.button("Step").click()  # another sampler: a run of its own, from its first step
    guide.reach(0)
    tab.until("() => document.querySelectorAll('.sd-ribbon .piece').length === 1")  # the old text is gone
    guide.picture("sampler")
    page.locator(".jupyter-widget-Collapse-header:has-text('Sampling of the next run')").first.click()

    guide.choose("target", "twin")
    tab.until(f"() => ({SHOWN})() === -1")
    tab.button("Run").click()
    tab.until(f"() => ({SHOWN})() >= 12")
    tab.button("Pause").click()
    tab.until("() => document.querySelector('.specdec-status b')?.textContent === 'paused'")


def _looks(tab: Tab, guide: Guide) -> None:
    page = tab.page
    page.wait_for_timeout(500)
    newest = tab.step()
    page.locator(".sd-pane").first.focus()
    for key in ("ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    page.wait_for_selector(".sd-card:not([hidden])")
    assert "outcome" in page.locator(".sd-card").first.inner_text()
    guide.picture("card")
    page.keyboard.press("Escape")
    page.locator(".sd-tree button:has-text('walk')").first.click()
    guide.picture("walk")
    page.locator(".sd-tree button[title='end the walk']").first.click()
    page.wait_for_selector(".sd-tree .sd-said", state="hidden")  # its line has gone, and the strip is in its place
    page.locator(".sd-timeline .strip").first.focus()
    for step in range(newest - 1, newest - 4, -1):
        page.keyboard.press("ArrowLeft")
        guide.reach(step)
    page.keyboard.press("Home")
    guide.reach(0)
    page.keyboard.press("End")
    guide.reach(newest)
    piece = page.locator(".sd-ribbon .piece:not(:empty)").first
    piece.click()
    guide.reach(int(piece.get_attribute("data-step")))
    page.locator(".sd-timeline button").first.click()
    guide.reach(newest)
    strip = page.locator(".sd-timeline .strip").first.bounding_box()
    page.mouse.move(strip["x"] + 0.9 * strip["width"], strip["y"] + 9)
    page.mouse.down()
    wanted = newest // 2
    page.mouse.move(strip["x"] + (wanted + 0.5) / (newest + 1) * strip["width"], strip["y"] + 9, steps=8)
    page.mouse.up()
    guide.reach(wanted)
    guide.picture("scrubbed")


def _studies(tab: Tab, guide: Guide) -> None:
    page = tab.page
    guide.drawer("What if")
    page.wait_for_selector("text=As it was", timeout=60_000)
    box = page.locator(".widget-text:has(label:text-is('temperature')) input:visible").last
    box.fill("1.5")
    box.press("Enter")
    page.wait_for_selector("text=What if:", timeout=60_000)
    page.wait_for_timeout(1500)
    guide.picture("what-if")
    before = page.locator(".sd-tree >> nth=1").get_attribute("data-step")
    page.locator(".sd-timeline .strip").first.focus()
    page.keyboard.press("ArrowRight")
    tab.until(
        "(before) => document.querySelectorAll('.sd-tree')[1].dataset.step === String(Number(before) + 1)", before
    )

    guide.drawer("Compare")
    page.wait_for_selector("button:has-text('Compare')")
    page.locator(".widget-checkbox:has-text('ngram') input").first.check()
    prompts = page.locator("textarea[placeholder='one prompt a line']")
    prompts.fill("abcabc\nxyzxyz\n")
    prompts.blur()
    tokens = page.locator(".widget-text:has(label:text-is('new tokens')) input")
    tokens.fill("24")
    tokens.press("Enter")
    page.locator("button.jupyter-button:has-text('Compare')").click()
    page.wait_for_selector("text=6 of 6 answers", timeout=60_000)
    page.wait_for_timeout(1000)
    page.locator("button.jupyter-button:has-text('Compare')").evaluate("(e) => e.scrollIntoView()")
    guide.picture("compared")
    prompts.fill("long ago\n" * 60)
    prompts.blur()
    tokens.fill("120")
    tokens.press("Enter")
    page.locator("button.jupyter-button:has-text('Compare')").click()
    page.wait_for_selector("text=/[1-9]\\d* of 180 answers, about/", timeout=60_000)
    page.locator("button.jupyter-button:has-text('Stop')").last.click()
    page.wait_for_selector("text=/of 180 answers, stopped/", timeout=60_000)

    guide.drawer("Share")
    for button in ("Save trace", "Export HTML"):
        page.locator(f"button.jupyter-button:has-text('{button}')").click()
        name = {"Save trace": "run.jsonl.gz", "Export HTML": "run.html"}[button]
        page.wait_for_selector(f"text=/Wrote .*{name}/", timeout=60_000)
        assert (tab.server.root / name).exists()
    page.locator("button.jupyter-button:has-text('Save trace')").scroll_into_view_if_needed()
    guide.picture("shared")
    guide.accessible()


def _rules(page) -> list[str]:
    return page.locator(".widget-dropdown:has(label:text-is('rule')) select").first.locator("option").all_inner_texts()


def _rule(page, begins: str) -> str:
    return next(text for text in _rules(page) if text.startswith(begins))

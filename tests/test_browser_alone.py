"""The ribbon and the timeline in a real Chromium without a kernel, as an exported page has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser.alone import page as html
from browser.lab import chromium, needs_chromium

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]
FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
NASTY = [
    "a",
    " <script>window.bad = 1</script>",
    "\n",
    "\u202eright",
    "\x07",
    "",
    "🙂",
    " مرحبا",
    "<img src=x onerror='window.bad=1'>",
]
RIBBON = {
    "prompt": "say <b>\u202ehi</b>\n",
    "pieces": [[text, "accepted" if i % 3 < 2 else "bonus", i // 3] for i, text in enumerate(NASTY)],
    "ms": [float(i + 1) for i in range(len(NASTY))],
    "shown": -1,
    "clicked": -1,
}
TIME = {"steps": 300, "shown": -1, "tokens": [1 + i % 5 for i in range(300)]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def show(browser, tmp_path) -> Iterator[Any]:
    complaints, pages = [], []

    def opened(**widgets: Any) -> Any:
        page = browser.new_context(viewport={"width": 900, "height": 500}).new_page()
        page.on("pageerror", lambda e: complaints.append(str(e)))
        pages.append(page)
        (tmp_path / "alone.html").write_text(html(**widgets))
        page.goto(f"file://{tmp_path}/alone.html")
        page.wait_for_function("window.ready")
        page.evaluate(FRAME)
        return page

    yield opened
    for page in pages:
        page.context.close()
    assert complaints == []


def marked(page: Any) -> list[str]:
    page.evaluate(FRAME)
    return page.eval_on_selector_all(".sd-text .shown", "all => all.map((s) => s.dataset.i)")


def test_tokens_are_text_and_what_acts_or_hides_is_made_visible(show):
    page = show(ribbon=RIBBON)
    assert (
        page.evaluate("window.bad") is None and page.locator(".sd-text b, .sd-text img, .sd-text script").count() == 0
    )
    text = page.eval_on_selector(".sd-text", "(e) => e.textContent")
    assert "<script>" in text and "\u202e" not in text and "\x07" not in text and "\n" in text
    marks = page.eval_on_selector_all(".sd-text .piece i", "all => all.map((i) => i.dataset.mark)")
    assert marks == ["↵", "\\u202e", "\\u0007"]


def test_one_tab_stop_arrows_walk_and_enter_jumps(show):
    page = show(ribbon=RIBBON)
    assert page.locator("#ribbon [tabindex='0']").count() == 1
    page.locator(".sd-text").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.locator(".cursor").get_attribute("data-i") == "1"
    page.keyboard.press("ArrowDown")  # the next step's first token
    assert page.locator(".cursor").get_attribute("data-i") == "3"
    card = page.locator(".sd-hover").inner_text()
    assert "drafted at depth 1" in card and "\\u202eright" in card and "4.0 ms" in card
    assert "step 1" in page.locator("#ribbon .sd-live").inner_text()
    page.keyboard.press("Enter")
    assert page.evaluate("ribbon.get('clicked')") == 1 and page.evaluate("ribbon.sent.length") == 0
    page.keyboard.press("Enter")
    assert page.evaluate("ribbon.sent") == [{"kind": "again"}]
    page.keyboard.press("Escape")
    assert page.locator(".sd-hover").is_hidden()


def test_the_tokens_of_the_shown_step_are_marked_as_the_text_grows_and_is_cut(show):
    page = show(ribbon=RIBBON)
    assert marked(page) == ["6", "7", "8"]
    first = page.locator(".sd-text .piece").first.element_handle()
    page.evaluate("ribbon.message({ kind: 'add', from: 9, pieces: [[' more', 'bonus', 3]], ms: [5] })")
    assert marked(page) == ["9"]
    page.evaluate("ribbon.set('shown', 1)")
    assert marked(page) == ["3", "4", "5"]
    page.evaluate("ribbon.message({ kind: 'cut', to: 3 })")
    assert marked(page) == [] and page.locator(".sd-text .piece").count() == 3
    page.evaluate(
        "ribbon.message({ kind: 'add', from: 2, pieces: [['\\n', 'bonus', 0], ['b', 'bonus', 1]], ms: [1, 1] })"
    )
    assert marked(page) == ["3"] and page.locator(".sd-text .piece").count() == 4, "what it had is not added twice"
    assert first.evaluate("(e) => e.isConnected"), "what stays is not drawn again"
    page.evaluate("ribbon.message({ kind: 'add', from: 9, pieces: [['late', 'bonus', 7]] })")
    assert page.evaluate("ribbon.sent") == [{"kind": "gap"}]


def test_blocks_do_not_change_the_text_and_the_page_does_not_move(show):
    words = [[" word" if i % 9 else "\n", "accepted", i // 4] for i in range(2000)]
    page = show(ribbon={**RIBBON, "prompt": "", "pieces": words, "ms": []})
    assert page.locator(".sd-block").count() > 5
    assert page.eval_on_selector(".sd-text", "(e) => e.textContent") == "".join(w[0] for w in words)
    page.wait_for_function(
        "() => { const e = document.querySelector('.sd-text'); return e.scrollHeight - e.scrollTop - e.clientHeight < 3; }"
    )
    page.evaluate("ribbon.set('shown', 250)")
    assert marked(page) == ["1000", "1001", "1002", "1003"]
    inside = "() => { const a = document.querySelector('.shown').getBoundingClientRect(), b = document.querySelector('.sd-text').getBoundingClientRect(); return a.top >= b.top && a.bottom <= b.bottom; }"
    assert page.evaluate(inside) and page.evaluate("scrollY") == 0


def slider(page: Any) -> dict[str, str]:
    page.evaluate(FRAME)
    names = ["aria-valuemin", "aria-valuemax", "aria-valuenow", "aria-valuetext", "role"]
    return {n: page.locator(".strip").get_attribute(n) for n in names}


def test_the_timeline_is_a_slider_by_keyboard(show):
    page = show(timeline=TIME)
    assert slider(page)["role"] == "slider" and slider(page)["aria-valuemax"] == "299" == slider(page)["aria-valuenow"]
    assert "following the newest" in slider(page)["aria-valuetext"]
    page.locator(".strip").focus()
    for key, shown in [
        ("ArrowLeft", 298),
        ("PageDown", 268),
        ("Home", 0),
        ("ArrowLeft", 0),
        ("ArrowRight", 1),
        ("PageUp", 31),
        ("End", -1),
    ]:
        page.keyboard.press(key)
        page.evaluate(FRAME)
        assert page.evaluate("timeline.get('shown')") == shown, key
    page.keyboard.press("Home")
    assert slider(page)["aria-valuetext"] == "step 0 of 300, 1 token" and slider(page)["aria-valuenow"] == "0"
    page.locator("#timeline button").click()
    page.evaluate(FRAME)
    assert page.evaluate("timeline.get('shown')") == -1


def test_a_drag_sends_the_last_wish_once_a_frame_and_the_hand_wins(show):
    page = show(timeline=TIME)
    saved = page.evaluate(
        """async () => {
          const strip = document.querySelector(".strip"), box = strip.getBoundingClientRect();
          strip.setPointerCapture = () => {};
          const at = (type, share) => strip.dispatchEvent(new PointerEvent(type, { clientX: box.left + share * box.width, button: 0, bubbles: true }));
          at("pointerdown", 0.1);
          for (let i = 0; i < 500; i++) at("pointermove", 0.1 + i / 1000);
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          const once = timeline.saved;
          timeline.set("shown", 7);                  // an answer to an older wish
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          const held = document.querySelector(".sd-timeline").dataset.shown;
          at("pointermove", 0.9);
          at("pointerup", 0.9);
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          return [once, Number(held), timeline.get("shown")];
        }"""
    )
    assert saved[0] == 1 and abs(saved[1] - 180) <= 2 and abs(saved[2] - 270) <= 2


def test_the_timeline_grows_and_is_cut_by_messages(show):
    page = show(timeline=TIME)
    page.evaluate("timeline.message({ kind: 'add', from: 300, tokens: [9, 2] })")
    assert slider(page)["aria-valuetext"].startswith("step 301 of 302, 2 tokens")
    page.evaluate("timeline.message({ kind: 'add', from: 100, tokens: [8] }); timeline.set('steps', 101)")
    assert slider(page)["aria-valuetext"].startswith("step 100 of 101, 8 tokens")
    page.evaluate("timeline.message({ kind: 'add', from: 400, tokens: [8] })")
    assert page.evaluate("timeline.sent") == [{"kind": "gap"}]
    drawn = "(e) => { const p = e.getContext('2d').getImageData(0, 0, e.width, e.height).data; return p.some((v) => v > 0); }"
    assert page.eval_on_selector(".strip canvas", drawn)


def test_a_closed_view_is_drawn_no_longer(show):
    page = show(ribbon=RIBBON, timeline=TIME)
    page.evaluate("close_ribbon(); close_timeline(); document.querySelector('#ribbon').replaceChildren()")
    page.evaluate(
        "ribbon.message({ kind: 'add', from: 9, pieces: [['x', 'bonus', 3]] }); timeline.set('steps', 500); ribbon.set('shown', 1)"
    )
    assert slider(page)["aria-valuemax"] == "299"

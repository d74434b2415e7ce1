"""The picture of a server: what it says of hand-made snapshots, what it sends, and how it looks in a real page."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from browser.lab import CHROMIUM, Tab, chromium, jupyterlab, write
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.trace import Event, PrefixNode, Snapshot, StepRecord, Trace
from toolkit.widgets import ServerWatch, ServingView
from toolkit.widgets.serving_labels import COLOURS, Labels, requests_of
from toolkit.widgets.serving_lanes import CHIPS
from toolkit.widgets.serving_pages import CELLS
from toolkit.widgets.serving_prefix import BOXES
from toolkit.widgets.serving_scene import changes, scene
from toolkit.widgets.serving_static import ON, PALETTE, bands, serving_svg

HERE = Path(__file__).parent
NASTY = {
    900: "<script>alert(1)</script>",
    901: "\u202eright to left",
    902: "\n\t\x07\x1b[31m",
    903: "\"&'</title>",
    904: "שלום عليكم",
    905: "东京都的天气今天怎么样",
    906: "",
}
WORDS = [
    "you",
    "are",
    "a",
    "helpful",
    "and",
    "careful",
    "assistant",
    "that",
    "answers",
    "in",
    "one",
    "short",
    "sentence",
    "the",
    "capital",
    "of",
    "france",
    "is",
    "paris",
    "what",
    "why",
    "how",
]


def decode(tokens: Sequence[int]) -> str:
    return "".join(NASTY.get(t, f" {WORDS[t % len(WORDS)]}") for t in tokens)


def snap(**changes) -> Snapshot:
    """Eight pages of four tokens: page 0 shared by a and b, 1 of a alone, 2 of b, 3 cached, the others free."""
    values = {
        "step": 5,
        "size": 4,
        "pages": (("a", "b"), ("a",), ("b",), (), (), (), (), ()),
        "prefix": (
            PrefixNode(0, -1, (0, 1, 2, 3), True),
            PrefixNode(1, 0, (4, 5, 6, 7), True),
            PrefixNode(3, 0, (900, 901, 902, 903), False),
        ),
        "waiting": ("c",),
        "prefilling": ("b",),
        "running": ("a",),
        "settled": {"a": 8, "b": 1},
    }
    return Snapshot(**{**values, **changes})


def drawn(snapshot: Snapshot, log: Sequence[Event] = (), preempted=None) -> dict:
    labels = Labels()
    labels.keep([*sorted(requests_of(snapshot)), *(e.request for e in log)])
    return scene(snapshot, labels, decode, log, preempted)


# ---- pages -----------------------------------------------------------------------------------------------------------


def test_a_page_is_held_shared_cached_or_free():
    picture = drawn(snap())
    assert [c["state"] for c in picture["cells"]] == ["shared", "held", "held", "cached", *["free"] * 4]
    assert [c["label"] for c in picture["cells"]] == ["AB", "A", "B", "", "", "", "", ""]
    assert [c["colours"] for c in picture["cells"][:4]] == [[0, 1], [0], [1], []]
    assert [c["known"] for c in picture["cells"][:4]] == [True, True, False, False], "held and in the prefix cache"
    assert picture["head"]["summary"] == "3 of 8 pages held, 1 cached, 4 free"
    assert picture["head"]["note"] == "4 tokens a page"


def test_cards_name_the_page_its_holders_and_its_text():
    cards = [dict(c["card"]) for c in drawn(snap())["cells"]]
    assert cards[0] == {
        "page": "0",
        "held by": "A a, B b",
        "prefix cache": "␣you␣are␣a␣helpful",
        "token ids": "0 1 2 3",
    }
    assert cards[2] == {"page": "2", "held by": "B b"}
    assert cards[3]["held by"] == "nobody" and cards[7] == {"page": "7", "held by": "nobody"}
    many = drawn(snap(pages=(tuple(f"r{i}" for i in range(9)), *[()] * 7)))["cells"][0]
    assert many["label"] == "9" and dict(many["card"])["held by"].endswith("I r5, +3 more")


def test_thousands_of_pages_share_cells_and_say_so():
    pages = [()] * 4096
    pages[0:3] = [("a",), ("a",), ("b",)]
    pages[4:8] = [("a",)] * 4
    picture = drawn(snap(pages=tuple(pages), prefix=(PrefixNode(3, -1, (0,), False), PrefixNode(9, -1, (1,), False))))
    cells = picture["cells"]
    assert len(cells) == CELLS and cells[-1]["pages"] == [4092, 4095]
    assert picture["head"]["note"] == "4 tokens a page; each cell stands for 4 pages, as full as it is coloured"
    assert [(c["state"], c["full"]) for c in cells[:4]] == [
        ("shared", 0.75),
        ("held", 1.0),
        ("cached", 0.25),
        ("free", 0),
    ]
    assert dict(cells[0]["card"]) == {"pages": "0 to 3", "held": "3 by A a (2), B b (1)", "cached": "1", "free": "0"}
    assert len(drawn(snap(pages=tuple(pages[:1500])))["cells"]) == 750
    assert len(json.dumps(picture)) < 400_000


# ---- requests --------------------------------------------------------------------------------------------------------


def test_lanes_keep_their_order_and_mark_who_was_preempted():
    picture = drawn(snap(waiting=("z", "c"), settled={"z": 1}), preempted={"z": 2, "a": 1})
    waiting, prefilling, running = picture["lanes"]
    assert [lane["name"] for lane in picture["lanes"]] == ["waiting", "prefilling", "running"]
    assert [(c["name"], c["settled"], c["again"]) for c in waiting["chips"]] == [("z", 1, 2), ("c", 0, 0)]
    assert dict(waiting["chips"][0]["card"])["preempted"] == "2 times"
    assert dict(running["chips"][0]["card"]) == {
        "request": "a",
        "state": "running",
        "settled": "0 tokens",
        "pages": "2",
        "preempted": "once",
    }
    assert prefilling["count"] == 1 and prefilling["more"] == 0
    crowd = drawn(snap(waiting=tuple(f"w{i}" for i in range(100))))["lanes"][0]
    assert crowd["count"] == 100 and len(crowd["chips"]) == CHIPS and crowd["more"] == 100 - CHIPS


def test_the_log_says_what_happened():
    log = [
        Event("added", "a", 0.0),
        Event("admitted", "a", 0.5, 4),
        Event("admitted", "b", 0.5),
        Event("prefilled", "a", 1.25, 1),
        Event("preempted", "b", 2.0, 9),
        Event("finished", "a", 3.0, 12, "length"),
        Event("aborted", "b", 3.5, 0),
    ]
    lines = drawn(snap(), log)["log"]
    assert [line["text"] for line in lines] == [
        "added",
        "admitted, 4 tokens from the cache",
        "admitted",
        "prefilled, 1 token read",
        "preempted, 9 tokens to be read again",
        "finished after 12 tokens: length",
        "aborted after 0 tokens",
    ]
    assert [(line["at"], line["label"]) for line in lines[3:5]] == [("1.25 s", "A"), ("2.00 s", "B")]
    assert len({line["mark"] for line in lines}) == 6, "each kind has its own mark"


def test_a_letter_stays_with_its_request_and_is_given_again_last():
    labels = Labels()
    labels.keep("abc")
    assert [labels[r] for r in "abc"] == ["A", "B", "C"] and labels.name("b") == "B b"
    labels.keep("cbd")
    assert [labels[r] for r in "cbd"] == ["C", "B", "D"], "A has just fallen free and is not given yet"
    crowd = [f"r{i}" for i in range(60)]
    labels.keep(["d", *crowd])
    assert max(Counter(map(labels.colour, ["d", *crowd])).values()) == 8, "61 requests share 8 colours evenly"
    given = [labels[r] for r in crowd]
    assert labels["d"] == "D" and len({*given, "D"}) == 61 and {"E", "E1", "E2"} <= set(given)
    for turn in range(100):  # many come and go: the letters stay short
        labels.keep([f"t{turn}", f"t{turn + 1}"])
    assert len(labels[f"t{turn}"]) == 1
    assert {labels.colour(r) for r in (f"t{turn}", f"t{turn + 1}")} <= set(range(COLOURS)) and len(PALETTE) == len(
        ON
    ) == COLOURS


# ---- prefix cache ----------------------------------------------------------------------------------------------------


def test_the_prefix_cache_is_a_tree_from_left_to_right():
    picture = drawn(snap())
    start, first, one, other = picture["nodes"]
    assert [n["parent"] for n in picture["nodes"]] == [-1, 0, 1, 1]
    assert start["x"] < first["x"] < one["x"] == other["x"] and one["y"] < first["y"] < other["y"]
    assert [n["state"] for n in picture["nodes"]] == ["start", "held", "held", "cached"]
    assert [n["small"] for n in picture["nodes"][1:]] == ["page 0 · A B", "page 1 · A", "page 3 · cached"]
    assert first["label"] == "␣you␣are␣a␣hel…" and first["colours"] == [0, 1]
    assert (
        picture["tree"]["summary"] == "3 pages of text kept for requests that begin alike"
        and not picture["tree"]["more"]
    )
    assert drawn(snap(prefix=()))["nodes"] == []


def test_a_long_text_that_nothing_branches_off_from_is_three_boxes():
    chain = [PrefixNode(i, i - 1, (i,), False) for i in range(20)]
    branches = [PrefixNode(20, 19, (20,), False), PrefixNode(21, 19, (21,), False)]
    picture = drawn(snap(pages=((),) * 22, prefix=(*chain, *branches), waiting=(), prefilling=(), running=()))
    assert [n["label"] for n in picture["nodes"][1:]] == ["␣you", "⋯ 18 pages ⋯", "␣what", "␣why", "␣how"]
    assert [n["parent"] for n in picture["nodes"]] == [-1, 0, 1, 2, 3, 3]
    assert dict(picture["nodes"][2]["card"])["pages"] == "18 of one text"
    assert picture["nodes"][2]["pages"] == list(range(1, 19))
    held = [PrefixNode(i, i - 1, (i,), i < 10) for i in range(20)]
    pages = (("a",),) * 10 + ((),) * 10
    labels = [n["label"] for n in drawn(snap(pages=pages, prefix=tuple(held)))["nodes"][1:]]
    assert labels[1] == labels[4] == "⋯ 8 pages ⋯" and len(labels) == 6, "held and unheld pages are never one box"


def test_hundreds_of_nodes_are_cut_and_counted():
    nodes = [PrefixNode(i, -1 if i < 50 else i - 50, (i,), i == 499) for i in range(500)]  # 50 texts of 10 pages
    nodes = [n if i % 50 else PrefixNode(n.page, n.parent, n.tokens, True) for i, n in enumerate(nodes)]
    branchy = [*nodes, *(PrefixNode(500 + i, i, (i,), False) for i in range(400))]
    picture = drawn(snap(pages=((),) * 900, prefix=tuple(branchy), waiting=(), prefilling=(), running=()))
    assert len(picture["nodes"]) == BOXES + 1
    shown = sum(len(n["pages"]) for n in picture["nodes"])
    assert picture["tree"]["more"] == f"+{900 - shown} more pages not drawn"
    said = [int(m[1]) for n in picture["nodes"] if (m := re.search(r" \+(\d+)$", n["small"]))]
    assert sum(said) == 900 - shown, "every page that is left out is counted where it would follow"


# ---- what a token may not do -----------------------------------------------------------------------------------------


def test_nothing_a_token_or_an_id_says_becomes_markup_or_turns_a_line():
    nasty = tuple(PrefixNode(i, -1, (900 + i,), False) for i in range(7))
    bad = "<img src=x onerror=alert(1)>\u202e\n"
    picture = drawn(
        snap(prefix=nasty, pages=((),) * 7 + ((bad,),), waiting=(bad,)), [Event("finished", bad, 1.0, 3, "<b>\u202e")]
    )
    assert [n["label"] for n in picture["nodes"][1:]] == [
        "<script>alert(…",
        "\\u202eright␣to…",
        "↵⇥\\u0007\\u001b…",
        "\"&'</title>",
        "שלום␣عليكم",
        "东京都的天气今…",
        "∅",
    ]
    assert picture["lanes"][0]["chips"][0]["name"] == "<img␣src=x␣onerro…"
    assert not [t for t in texts(picture) if re.search("[\u202e\x00-\x1f]", t)]
    page = serving_svg(picture)
    assert set(re.findall(r"<(\w+)", page)) <= {"svg", "g", "title", "rect", "circle", "polygon", "path", "text"}
    assert "&lt;script&gt;" in page and "&lt;img" in page
    ET.fromstring(page)


def texts(of: object) -> Iterator[str]:
    """Every string in a scene."""
    if isinstance(of, str):
        yield of
    else:
        for part in of.values() if isinstance(of, dict) else of if isinstance(of, (list, tuple)) else ():
            yield from texts(part)


# ---- any snapshot ----------------------------------------------------------------------------------------------------


@st.composite
def snapshots(draw) -> Snapshot:
    pages = draw(st.integers(0, 60))
    names = [f"r{i}" for i in range(draw(st.integers(0, 12)))]
    holders = [
        tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=3))) if names else () for _ in range(pages)
    ]
    order = draw(st.permutations(range(pages)))[: draw(st.integers(0, pages))]
    prefix = []
    for i, page in enumerate(order):
        parent = draw(st.integers(-1, i - 1))
        prefix.append(PrefixNode(page, parent, (draw(st.integers(880, 910)),), bool(holders[page])))
    cut = sorted((draw(st.integers(0, len(names))), draw(st.integers(0, len(names)))))
    lanes = names[: cut[0]], names[cut[0] : cut[1]], names[cut[1] :]
    return Snapshot(
        draw(st.integers(0, 9)), 4, tuple(holders), tuple(prefix), *map(tuple, lanes), dict.fromkeys(names, 3)
    )


@settings(max_examples=60, deadline=None)
@given(snapshots(), snapshots())
def test_any_snapshot_adds_up_and_changes_lead_from_one_to_the_next(one, other):
    labels = Labels()
    pictures = []
    for snapshot in (one, other):
        labels.keep(requests_of(snapshot))
        pictures.append(scene(snapshot, labels, decode))
        head, cells = pictures[-1]["head"], pictures[-1]["cells"]
        assert head["held"] + head["cached"] + head["free"] == head["pages"] == len(snapshot.pages) == len(cells)
        states = [c["state"] for c in cells]
        assert states.count("free") == head["free"] and states.count("cached") == head["cached"]
        assert sum(len(n["pages"]) for n in pictures[-1]["nodes"]) == len(snapshot.prefix)
        boxes = [(n["x"], n["y"]) for n in pictures[-1]["nodes"]]
        assert len(set(boxes)) == len(boxes), "no box stands on another"
        ET.fromstring(serving_svg(pictures[-1]))
    assert applied(pictures[0], json.loads(json.dumps(changes(*pictures)))) == json.loads(json.dumps(pictures[1]))


def applied(old: dict, parts: dict) -> dict:
    """What the page makes of a message."""
    out = json.loads(json.dumps(old))
    for name, part in parts.items():
        if isinstance(out.get(name), list) and not isinstance(part, list):
            for i, entry in part.items():
                out[name][int(i)] = entry
        else:
            out[name] = part
    return out


@pytest.mark.parametrize("side", [15.0, 26.0])
def test_bands_fill_the_square(side):
    def area(corners: str) -> float:
        points = [tuple(map(float, c.split(","))) for c in corners.split()]
        turned = zip(points, points[1:] + points[:1], strict=True)
        return abs(sum(a * d - b * c for (a, b), (c, d) in turned)) / 2

    assert sum(map(area, bands(3, 4, side, side / 3))) == pytest.approx(side * side, rel=1e-3)


# ---- the widget ------------------------------------------------------------------------------------------------------


def test_the_view_sends_only_what_changed_and_its_state_holds_all(monkeypatch):
    view, sent = ServingView(decode), []
    monkeypatch.setattr(view, "send", lambda content, buffers=None: sent.append(json.loads(json.dumps(content))))
    view.show(snap())
    first = json.loads(json.dumps(view.scene))
    assert sent == [] and first["number"] == 0
    view.show(snap())
    assert sent == [], "nothing changed"
    view.show(
        snap(step=6, pages=(("a", "b"), ("a",), ("b",), ("a",), (), (), (), ())), [Event("preempted", "b", 1.0, 4)]
    )
    (message,) = sent
    assert message["from"] == 0 and view.scene["number"] == 1
    assert set(message["parts"]) == {"head", "cells", "lanes", "log", "nodes"} and set(message["parts"]["cells"]) == {
        "3"
    }
    now = json.loads(json.dumps(view.scene))
    assert applied(first, message["parts"]) == {**now, "number": 0}
    assert view.get_state()["scene"]["head"]["held"] == 4, "what a page reads that opens late"
    assert view.scene["lanes"][1]["chips"][0]["again"] == 1
    view.show(snap(step=7))
    assert view.scene["lanes"][1]["chips"][0]["again"] == 1, "remembered"
    view.show(snap(step=0))
    assert view.scene["lanes"][1]["chips"][0]["again"] == 0 and view.scene["log"] == [], "begun anew"


def test_the_view_has_a_picture_for_pages_without_a_kernel():
    view = ServingView(decode)
    assert view.svg == ""
    view.show(snap(), [Event("added", f"r{i}", float(i)) for i in range(20)])
    assert len(view.scene["log"]) == 8
    bundle = view._repr_mimebundle_()
    assert bundle and bundle[0]["text/html"] == view.svg and "3 of 8 pages held" in view.svg
    view.show(snap(pages=((),) * 100_000, prefix=()))
    assert len(view.svg) < 400_000


class Pretend:
    """A server whose snapshots are made by hand."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.broken = False

    def snapshot(self) -> Snapshot:
        if self.broken:
            raise RuntimeError("a snapshot in the making")
        return snap(step=len(self.trace.steps), prefilling=(), running=("a", "b"))

    def step(self, *events: Event) -> None:
        self.trace.append(StepRecord(len(self.trace.steps), (), "A", "R", 1, events=events))


def test_a_watch_draws_the_last_step_and_every_event_and_leaves_no_thread():
    server = Pretend()
    server.step(Event("preempted", "a", 0.1, 4))
    with ServerWatch(server, decode, every=0.01) as watch:
        for i in range(50):
            server.step(Event("admitted", "b", 0.2 + i))
        assert watch.settle() and watch.view.scene["head"]["step"] == 51
        assert watch.view.scene["lanes"][2]["chips"][0]["again"] == 1, "also what was before the watch"
        assert [line["at"] for line in watch.view.scene["log"]] == [f"{42.2 + i:.2f} s" for i in range(8)]
        server.step()
    assert watch.view.scene["head"]["step"] == 52, "closing draws what is left"
    server.step()
    assert watch.view.scene["head"]["step"] == 52 and not server.trace.errors
    assert "52" in watch._fallback() and "<svg" in watch._fallback()
    assert not [t for t in threading.enumerate() if t.name == "specdec-painter"]


def test_an_error_in_drawing_never_reaches_the_server(capsys):
    server = Pretend()
    server.broken = True
    with ServerWatch(server, decode, every=0.01) as watch:
        server.step(Event("added", "a", 0.0))
        watch.settle()
        server.broken = False
        server.step()
        watch.settle()
        assert watch.view.scene["head"]["step"] == 2 and len(watch.view.scene["log"]) == 1, "no event is lost"
    assert not server.trace.errors and capsys.readouterr().err.count("a snapshot in the making") == 1


# ---- a page ----------------------------------------------------------------------------------------------------------


def busy(step: int, pages: int = 64) -> tuple[Snapshot, list[Event]]:
    """A server with a system prompt that everybody shares, some texts that are kept, and more requests than pages."""
    holders: list[tuple[str, ...]] = [()] * pages
    prefix: list[PrefixNode] = []
    free = iter(range(pages))
    names = [f"chat-{i:04x}" for i in (0x1F3, 0x2B0, 0x2B1, 0x307, 0x4AA, 0x4C2, 0x51D, 0x600)]
    running, prefilling, waiting = names[:4], names[4:5], names[5:]
    if step > 1:
        running, prefilling, waiting = [*names[:2], names[4]], names[5:6], [names[3], *names[6:]]
    at, shared = -1, tuple(running[:3])
    for i in range(8):
        page = next(free)
        holders[page] = shared
        prefix.append(PrefixNode(page, at, tuple(range(i * 5, i * 5 + 16)), True))
        at = len(prefix) - 1
    for k, name in enumerate([*running, *prefilling]):
        above = at if name in shared else -1
        for i in range(2 + k + (step > 1)):
            page = next(free)
            holders[page] = (name,)
            if i < 2 + k % 2:
                prefix.append(PrefixNode(page, above, tuple(range(17 * k + i, 17 * k + i + 16)), True))
                above = len(prefix) - 1
        page = next(free)
        holders[page] = (name,)
    texts = [(900, 3, 4), (901, 1), (902, 8), (904, 9), (905, 2), (903, 5)]
    above = at
    for k, text in enumerate(texts):
        page = next(free)
        prefix.append(PrefixNode(page, above if k in (1, 2) else at if k % 2 else -1, text, False))
        above = len(prefix) - 1
    settled = {n: 40 + 23 * k + step for k, n in enumerate(names) if n not in waiting}
    events = [
        Event("added", names[4], 0.41),
        Event("admitted", names[4], 0.44, 128),
        Event("prefilled", names[4], 0.52, 37),
        Event("finished", "chat-0111", 0.61, 96, "stop token"),
        Event("added", names[6], 0.70),
    ]
    if step > 1:
        events = [
            Event("preempted", names[3], 0.83, 141),
            Event("finished", names[2], 0.90, 64, "length"),
            Event("admitted", names[5], 0.91, 128),
        ]
    return Snapshot(
        step, 16, tuple(holders), tuple(prefix), tuple(waiting), tuple(prefilling), tuple(running), settled
    ), events


@pytest.fixture(scope="module")
def pictures() -> Path:
    folder = Path(os.environ.get("SPECDEC_SCREENSHOTS") or f"/tmp/specdec-screenshots-{os.getpid()}")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"\nscreenshots: {folder}")
    return folder


@pytest.fixture(scope="module")
def open_page(tmp_path_factory) -> Iterator[tuple[object, object]]:
    root = tmp_path_factory.mktemp("notebooks")
    first = "from test_serving_view import busy, decode\nfrom toolkit.widgets import ServingView\n"
    cells = [
        f"{first}view = ServingView(decode)\nview.show(*busy(1))\nview",
        "view.show(*busy(2))",
        "view.show(*busy(3, 4096))",
    ]
    write(root, "serving.ipynb", cells)
    with jupyterlab(root) as server, chromium() as browser:
        yield server, browser


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(
    not Path(CHROMIUM).exists() and not os.environ.get("CI"), reason="needs Debian's chromium: apt-get install chromium"
)
@pytest.mark.parametrize("dark", [False, True])
def test_a_page_shows_updates_and_explains(open_page, pictures, dark):
    server, browser = open_page
    tab = Tab.open(browser, server, "serving.ipynb", dark=dark)
    page, mode = tab.page, "dark" if dark else "light"

    def run_cell(i: int, step: int) -> None:
        page.evaluate("(i) => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = i; }", i)
        tab.command("notebook:run-cell")
        page.wait_for_selector(f".sd-serving[data-step='{step}']", timeout=60_000)

    def states(selector: str) -> list[str]:
        return [c.get_attribute("class") or "" for c in page.locator(f".sd-serving {selector}").all()]

    run_cell(0, 1)
    now, _ = busy(1)
    held = sum(map(bool, now.pages))
    cells = states(".map .cell")
    assert len(cells) == 64 and sum("held" in c or "shared" in c for c in cells) == held
    assert sum("free" in c for c in cells) == 64 - held - sum("cached" in c for c in cells)
    assert [len(page.locator(f".sd-serving .lane >> nth={i}").locator(".chip").all()) for i in range(3)] == [3, 1, 4]
    assert len(states("svg .node.cached")) == 6 and len(states(".log li")) == 5
    page.screenshot(path=str(pictures / f"serving-{mode}.png"))

    page.evaluate("() => document.querySelectorAll('.sd-serving .map .cell').forEach((c) => { c.ours = true; })")
    run_cell(1, 2)
    assert page.evaluate("() => [...document.querySelectorAll('.sd-serving .map .cell')].every((c) => c.ours)"), (
        "kept, not redrawn"
    )
    assert page.locator(".sd-serving .chip.preempted .again").inner_text() == "↺1"
    assert page.locator(".sd-serving .log li").count() == 8

    page.locator(".sd-serving .map").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".sd-serving .card:not([hidden])")
    card = page.locator(".sd-serving .card").inner_text()
    assert "page" in card and "held by" in card and "chat-01f3" in card and "prefix cache" in card
    page.screenshot(path=str(pictures / f"serving-card-{mode}.png"))
    page.keyboard.press("ArrowDown")
    assert page.locator(".sd-serving .map .cell.open").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".sd-serving .card").is_hidden()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.locator(".sd-serving .chip.open").count() == 1 and page.locator(".sd-serving .cell.dim").count() > 10
    time.sleep(0.3)  # others fade
    page.screenshot(path=str(pictures / f"serving-request-{mode}.png"))
    page.keyboard.press("Tab")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert (
        page.locator(".sd-serving .node.open").count() == 1 and page.locator(".sd-serving .map .cell.lit").count() >= 1
    )
    time.sleep(0.3)
    page.screenshot(path=str(pictures / f"serving-node-{mode}.png"))
    page.locator(".sd-serving .map .cell").nth(0).hover()
    assert page.locator(".sd-serving .map .cell.open").count() == 1

    run_cell(2, 3)
    assert page.locator(".sd-serving .map .cell").count() == CELLS
    assert "each cell stands for 4 pages" in page.locator(".sd-serving .aside").first.inner_text()
    page.mouse.move(5, 5)
    time.sleep(0.3)
    page.screenshot(path=str(pictures / f"serving-many-{mode}.png"))
    if not dark:
        tab.command("docmanager:save")
        tab.go("serving.ipynb")  # the page is loaded anew while the kernel lives on
        page.wait_for_selector(".sd-serving[data-step='3']", timeout=60_000)
        assert (
            page.locator(".sd-serving .map .cell").count() == CELLS and page.locator(".sd-serving .log li").count() == 8
        )
    assert tab.strangers == [], "a request to a foreign host"
    assert tab.complaints == []
    page.context.close()

"""Does an open Lab last: memory of kernel and page, and the time from a step to its picture, minute by minute.

    cd tests && python -m browser.endurance --minutes 30 [--seconds 20]

The real model generates without an end in a Lab that Chromium shows: a run that is done starts anew. At the end the speed with
and without the Lab, in turns of a run each for `--seconds` a side.

The kernel and the page are on one machine and share its clock, so a step's picture is late by the page's time when its number
appears less the kernel's when it was made. Steps that are not drawn, since the next had come already, do not count.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from browser.lab import Tab, chromium, jupyterlab, write

CELL = """import json, os, pathlib, threading, time
from toolkit.engine import Live
from toolkit.widgets import Lab
lab = Lab("smollm2", prompt="Tell a long story about the sea.", max_new_tokens={tokens}, drafter="ngram")
lab.engine.stopping = lab.engine.stopping.__class__({tokens})  # no stop token: it writes to its end
folder, made, running = pathlib.Path({folder!r}), [], True
def note(records):
    now = time.time()
    made.extend((r.step, now) for r in records)
def tell():  # what the page cannot know
    while running:
        time.sleep(0.5)
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        told = dict(rss=pages * os.sysconf("SC_PAGE_SIZE"), made=made[-20000:], steps=len(made))
        (folder / "new").write_text(json.dumps(told))
        (folder / "new").replace(folder / "told.json")
def go_on():
    while running:
        lab._fresh()
        lab.trace.watch(note, every=0)
        lab.run()
        lab.live.wait()
        time.sleep(0.05)
lab"""
START = """[threading.Thread(target=f, daemon=True).start() for f in (tell, go_on)]
print("STARTED")"""
END = """running = False
lab.stop()
def seconds(look):
    lab._fresh()
    session = lab.session if look else lab.engine.start([lab.session.prompts[0]])
    live = lab.live if look else Live(lab.engine, session)
    began, end = time.perf_counter(), time.perf_counter() + {seconds}
    live.run()
    while time.perf_counter() < end and live.state not in ("done", "failed"):
        time.sleep(0.02)
    live.pause()
    live.wait()
    spent = time.perf_counter() - began
    live.stop()
    return len(session.outputs[0]) / spent
time.sleep(1)
speeds = []
for turn in range({pairs}):  # now one first, now the other
    first = seconds(turn % 2 == 0)
    other = seconds(turn % 2 == 1)
    speeds.append((first, other) if turn % 2 == 0 else (other, first))
(folder / "speeds.json").write_text(json.dumps(speeds))
print("MEASURED")"""
LOOK = """() => {
  window.pictures = [];
  const tree = document.querySelector('.sd-tree');
  let last = '';
  window.watching = new MutationObserver(() => requestAnimationFrame(() => {
    if (tree.dataset.step === '' || tree.dataset.step === last) return;  // drawn again, for a card or a size
    last = tree.dataset.step;
    window.pictures.push([Number(tree.dataset.step), Date.now() / 1000]);
  }));
  window.watching.observe(tree, { attributes: true, attributeFilter: ['data-step'] });
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=1500, help="new tokens a run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, chromium() as browser, jupyterlab(Path(name)) as server:
        folder = Path(name)
        values = {**vars(options), "folder": name}
        write(folder, "endurance.ipynb", [cell.format(**values) for cell in (CELL, START, END)])
        tab = Tab.open(browser, server, "endurance.ipynb")
        tab.command("notebook:run-cell-and-select-next")
        tab.page.wait_for_selector(".sd-tree", timeout=180_000)
        tab.page.evaluate(LOOK)
        tab.command("notebook:run-cell-and-select-next")
        tab.page.wait_for_selector(".jp-OutputArea-output:has-text('STARTED')", timeout=60_000)
        _minutes(tab, folder, options.minutes)
        tab.command("notebook:run-cell-and-select-next")
        wait = 1000 * (2 * options.pairs * options.seconds + 120)
        tab.page.wait_for_selector(".jp-OutputArea-output:has-text('MEASURED')", timeout=wait)
        speeds = json.loads((folder / "speeds.json").read_text())
        print(f"complaints of the page: {tab.complaints or 'none'}; requests to other hosts: {tab.strangers or 'none'}")
    looked, alone = ([pair[i] for pair in speeds] for i in (0, 1))
    print(
        f"tokens/s with the Lab {median(looked):.1f}, without {median(alone):.1f}; "
        f"with / without {median(a / b for a, b in speeds):.3f} (median of {len(speeds)} pairs)"
    )


def _minutes(tab: Tab, folder: Path, minutes: float) -> None:
    devtools = tab.page.context.new_cdp_session(tab.page)
    devtools.send("HeapProfiler.enable")
    print("minute  steps  kernel RSS MB  page heap MB  step to screen, ms: median  p95  pictures")
    steps = 0
    for minute in itertools.count(1):
        if minute > minutes:
            return
        tab.page.wait_for_timeout(60_000)
        told = _told(folder)
        pictures = tab.page.evaluate("() => window.pictures.splice(0)")
        devtools.send("HeapProfiler.collectGarbage")  # what is left is held
        heap = devtools.send("Runtime.getHeapUsage")["usedSize"]
        late = _late(told["made"], pictures)
        middle, most = (median(late), quantiles(late, n=20)[-1]) if len(late) > 1 else (float("nan"), float("nan"))
        fresh, steps = told["steps"] - steps, told["steps"]
        print(
            f"{minute:6} {fresh:6} {told['rss'] / 2**20:14.0f} {heap / 2**20:13.1f} {1e3 * middle:27.0f} "
            f"{1e3 * most:4.0f} {len(late):9}",
            flush=True,
        )


def _told(folder: Path) -> dict[str, Any]:
    end = time.monotonic() + 30
    while not (folder / "told.json").exists() and time.monotonic() < end:
        time.sleep(0.1)
    return json.loads((folder / "told.json").read_text())


def _late(made: list[list[float]], pictures: list[list[float]]) -> list[float]:
    """Seconds from a step to its picture. A number comes again in every run, so the last one made before the picture counts."""
    times: dict[int, list[float]] = {}
    for step, at in made:
        times.setdefault(int(step), []).append(at)
    found = []
    for step, at in pictures:
        before = [t for t in times.get(int(step), ()) if t <= at]
        if before:
            found.append(at - before[-1])
    return found


if __name__ == "__main__":
    main()

"""Do large trees move smoothly: the time from frame to frame while trees of 256 nodes come ten times a second.

    cd tests && python -m browser.frames [--nodes 256] [--rate 10] [--seconds 20]

A tiny model drafts for itself on one core, so that another is the page's, and no node is folded away. Frames are those that
Chromium gives a page: 16.7 ms apart when nothing holds it up. Printed are the page at rest, then the same page while steps come.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from browser.lab import Tab, chromium, jupyterlab, write

CELL = """import torch
from time import perf_counter
torch.set_num_threads(1)  # where the model takes every core, pictures are rare
from tiny import loaded
from toolkit.drafting import Dynamic, DraftModel
from toolkit.models.hf import HFModel
from toolkit.widgets import Lab
model = loaded()
drafter = DraftModel(HFModel(model.model), shape=Dynamic(width=12, depth=5, budget={nodes} - 1))
lab = Lab(model, prompt="abcabcabc", max_new_tokens=100_000, drafter=drafter)
lab.tree.collapse_below = 0.0  # nothing is folded away
began = perf_counter()
lab.step(4); lab.wait()
lab.controls.delay.value = max(0.0, 1 / {rate} - (perf_counter() - began) / 4)
lab"""
START = """def go_on():
    while True:
        lab.run(); lab.wait()
import threading
threading.Thread(target=go_on, daemon=True).start()"""
WATCH = """(seconds) => new Promise((done) => {
  const frames = [], steps = new Set(), tree = document.querySelector('.sd-tree'), end = performance.now() + 1000 * seconds;
  let last = performance.now(), long = 0;
  const tasks = new PerformanceObserver((list) => { for (const t of list.getEntries()) long = Math.max(long, t.duration); });
  tasks.observe({ type: 'longtask' });
  const frame = (now) => {
    frames.push(now - last);
    last = now;
    steps.add(tree.dataset.step);
    if (now < end) requestAnimationFrame(frame);
    else { tasks.disconnect(); done({ frames: frames.slice(1), steps: steps.size - 1, long,
                                      nodes: tree.querySelectorAll('.node').length }); }
  };
  requestAnimationFrame(frame);
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chromium() as browser, jupyterlab(Path(folder)) as server:
        write(Path(folder), "frames.ipynb", [cell.format(**vars(options)) for cell in (CELL, START)])
        tab = Tab.open(browser, server, "frames.ipynb")
        tab.command("notebook:run-cell-and-select-next")
        tab.page.wait_for_selector(".sd-tree .node", timeout=120_000)
        tab.page.wait_for_timeout(3000)
        _tell("at rest", tab.page.evaluate(WATCH, min(5.0, options.seconds)), min(5.0, options.seconds))
        tab.command("notebook:run-cell-and-select-next")
        tab.page.wait_for_timeout(2000)
        _tell("while steps come", tab.page.evaluate(WATCH, options.seconds), options.seconds)
        assert tab.complaints == [], tab.complaints


def _tell(when: str, seen: dict[str, Any], seconds: float) -> None:
    cuts = quantiles(seen["frames"], n=100)
    print(
        f"{when}: {seen['nodes']} nodes drawn, {seen['steps'] / seconds:.1f} steps a second on the screen; ms from frame to "
        f"frame: median {median(seen['frames']):.1f}, p95 {cuts[94]:.1f}, p99 {cuts[98]:.1f}, longest "
        f"{max(seen['frames']):.0f}; longest task {seen['long']:.0f}"
    )


if __name__ == "__main__":
    main()

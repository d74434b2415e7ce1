"""What watching costs: time per step with the Lab's pictures being drawn, against the same run with drawing held.

    cd tests && python -m browser.overhead [--pairs 16] [--block 80] [--threads 0] [--no-page]

One run of plain decoding on the real model; drawing is on and off in turns, a block of steps each, so that a slow minute of
the machine meets both. A real Chromium shows the page all the while and draws in software on the same cores; with
`--no-page` the kernel sends everything and nobody looks, as if the browser were on another machine. `--threads` leaves
cores to the page.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path
from statistics import mean, median

from jupyter_client.manager import start_new_kernel

from browser.lab import Tab, chromium, jupyterlab, write

CELL = """import json, pathlib, time, torch
from toolkit.models import zoo
from toolkit.widgets import Lab
if {threads}: torch.set_num_threads({threads})
lab = Lab("smollm2", prompt="Tell a long story about the sea.", max_new_tokens={tokens}, drafter="none")
lab.engine.stopping = lab.engine.stopping.__class__({tokens})
lab._fresh()
lab"""
MEASURE = """paint, count, pictures = lab.screen._painter.paint, 0, []
def drawn():
    began = time.thread_time()
    paint()
    pictures.append(time.thread_time() - began)
def turn(records):
    global count
    count += len(records)
    lab.screen._painter.paint = drawn if count // {block} % 2 else (lambda: None)
lab.trace.watch(turn, every=0)
lab.run()
lab.wait()
told = dict(at=[s.at for s in lab.trace.steps], pictures=pictures, page=lab.stage.tree.cost)
pathlib.Path({out!r}).write_text(json.dumps(told))
print("MEASURED")"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--block", type=int, default=80)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--no-page", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "at.json"
        values = {**vars(options), "tokens": 2 * options.block * (options.pairs + 1) + 1, "out": str(out)}
        cells = [CELL.format(**values), MEASURE.format(**values)]
        (_in_kernel if options.no_page else _in_page)(Path(folder), cells)
        told = json.loads(out.read_text())
    at, pictures = told["at"], told["pictures"]
    step = [b - a for a, b in itertools.pairwise(at)]
    blocks = [step[i : i + options.block] for i in range(0, len(step) - options.block + 1, options.block)]
    # The first pair warms up. A block's mean keeps what drawing costs in few of its steps; each drawn block is compared with
    # the held ones on both sides, for steps grow longer with the text.
    held, on = blocks[2::2], blocks[3::2]
    around = [mean((*a, *b)) for a, b in itertools.pairwise(held)]
    ratios = sorted(rest / mean(d) for rest, d in zip(around, on, strict=False))
    whole = sum(around) / sum(mean(d) for d, _ in zip(on, around, strict=False))
    print(
        f"{len(pictures) / ((at[-1] - at[0]) / 2):.1f} pictures a second, each {1e3 * median(pictures):.1f} ms of the kernel's time "
        f"and {told['page']:.0f} ms of the page's"
    )
    print(f"ms per step, drawing held {1e3 * median(around):.2f}; all steps together: speed drawing / held {whole:.3f}")
    print(
        f"speed drawing / held, {len(ratios)} pairs: median {median(ratios):.3f}, "
        f"middle half {ratios[len(ratios) // 4]:.3f} to {ratios[-len(ratios) // 4]:.3f}"
    )


def _in_page(folder: Path, cells: list[str]) -> None:
    write(folder, "overhead.ipynb", cells)
    with chromium() as browser, jupyterlab(folder) as server:
        tab = Tab.open(browser, server, "overhead.ipynb")
        tab.command("notebook:run-cell-and-select-next")
        tab.page.wait_for_selector(".sd-tree", timeout=120_000)
        tab.page.wait_for_timeout(3000)
        tab.command("notebook:run-cell-and-select-next")
        tab.page.wait_for_selector(".jp-OutputArea-output:has-text('MEASURED')", timeout=1_800_000)


def _in_kernel(folder: Path, cells: list[str]) -> None:
    manager, client = start_new_kernel(cwd=str(folder))
    try:
        client.iopub_channel.stop()
        for cell in cells:
            answer = client.execute(cell, reply=True, timeout=1800)
            assert answer["content"]["status"] == "ok", answer["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()

"""What the dtype and the lay of weights are worth on this machine: `python -m toolkit.bench.arithmetic`."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import torch
from torch import nn

from toolkit.models.arithmetic import lay_by_column

ROWS = (1, 4, 8, 16, 32, 256)


def measure(rows: int, *, layers: int = 30, repeats: int = 15) -> tuple[float, float, float]:
    """Median milliseconds of a pass of so many rows through linear layers: float32 as made, float32 laid by column, and
    bfloat16, in turns."""
    plain, laid, half = ([nn.Linear(576, 1536, bias=False) for _ in range(layers)] for _ in range(3))
    for layer in laid:
        lay_by_column(layer)
    for layer in half:
        layer.bfloat16()
    taken: list[list[float]] = [[], [], []]
    with torch.inference_mode():
        for _ in range(repeats):
            for stack, times in zip((plain, laid, half), taken, strict=True):
                x = torch.randn(rows, 576, dtype=stack[0].weight.dtype)
                begun = perf_counter()
                for layer in stack:
                    layer(x)
                times.append(1e3 * (perf_counter() - begun))
    one, two, three = (median(times) for times in taken)
    return one, two, three


if __name__ == "__main__":
    print(f"{'rows':>5}{'float32':>10}{'by column':>11}{'bfloat16':>10}  ms")
    for rows in ROWS:
        print(f"{rows:5}" + "{:10.1f}{:11.1f}{:10.1f}".format(*measure(rows)))

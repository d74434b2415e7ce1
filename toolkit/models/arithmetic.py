"""Which numbers a device multiplies fastest, and how weights should lie for a pass over few tokens."""

from __future__ import annotations

import torch
from torch import nn

_IN_HARDWARE = ("amx_bf16", "avx512_bf16", "bf16")  # of Intel, AMD and Arm, by the names that torch gives them


def fastest(device: torch.device) -> torch.dtype:
    """bfloat16 where the device has arithmetic for it, else float32.

    A processor without it widens every bfloat16 number before it multiplies: one token costs about the same, but a pass
    over several, which verification is, costs more than twice as much as in float32.
    """
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    if device.type != "cpu":
        return torch.bfloat16
    able = getattr(torch.cpu, "get_capabilities", dict)()  # older versions of torch do not tell
    return torch.bfloat16 if any(able.get(name) for name in _IN_HARDWARE) else torch.float32


def lay_by_column(model: nn.Module) -> None:
    """Store the float32 weights of linear layers column by column, their shapes and values as they were.

    MKL multiplies 8 rows by such weights in a fifth less time, and 16 or 32 rows in about half; one row, or hundreds, take
    as long as before. `python -m toolkit.models.arithmetic` measures it. An LM head that shares its weights with the embeddings,
    whose rows are read one by one, gets a copy of its own: V x H numbers more.
    """
    if not torch.backends.mkl.is_available():
        return
    looked_up = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for layer in model.modules():
        if not isinstance(layer, nn.Linear) or layer.weight.dtype != torch.float32:
            continue
        weight = layer.weight
        if weight.device.type != "cpu":
            continue
        laid = weight.detach().t().contiguous().t()
        if id(weight) in looked_up:
            layer.weight = nn.Parameter(laid, requires_grad=weight.requires_grad)
        else:
            weight.data = laid


def _measure() -> None:
    """Milliseconds of thirty layers by number of rows, as they are, laid by column, and in bfloat16."""
    from statistics import median
    from time import perf_counter

    plain = [nn.Linear(576, 1536, bias=False) for _ in range(30)]
    laid = [nn.Linear(576, 1536, bias=False) for _ in range(30)]
    half = [nn.Linear(576, 1536, bias=False).bfloat16() for _ in range(30)]
    for layer in laid:
        lay_by_column(layer)
    print(f"{'rows':>5}{'float32':>10}{'by column':>11}{'bfloat16':>10}")
    with torch.inference_mode():
        for rows in (1, 4, 8, 16, 32, 256):
            taken: list[list[float]] = [[], [], []]
            for _ in range(15):
                for layers, times in zip((plain, laid, half), taken, strict=True):
                    x = torch.randn(rows, 576, dtype=layers[0].weight.dtype)
                    begun = perf_counter()
                    for layer in layers:
                        layer(x)
                    times.append(1e3 * (perf_counter() - begun))
            ms = [median(times) for times in taken]
            print(f"{rows:5}{ms[0]:10.1f}{ms[1]:11.1f}{ms[2]:10.1f}")


if __name__ == "__main__":
    _measure()

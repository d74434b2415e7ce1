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
    as long as before. `python -m toolkit.bench.arithmetic` measures it. An LM head that shares its weights with the embeddings,
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

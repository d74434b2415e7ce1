"""What moves the weights: AdamW for all of them, or Muon for the maps within a head.

Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers") makes every update of a matrix orthogonal.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from toolkit.training.plan import Plan

MUON_CAME_WITH = "2.9"


def optimizers(head: nn.Module, plan: Plan) -> list[Optimizer]:
    """One a way of learning; each group of parameters says in "share" which part of the plan's rate is its own.

    Raises ValueError where Muon is asked for and torch has none.
    """
    tables, maps, rest = _sorted(head)
    adam = [
        {"params": tables, "share": plan.table_rate, "lr": plan.rate * plan.table_rate},
        {"params": rest if plan.optimizer == "muon" else [*maps, *rest], "share": 1.0, "lr": plan.rate},
    ]
    made: list[Optimizer] = []
    if plan.optimizer == "muon" and maps:
        muon: Any = getattr(torch.optim, "Muon", None)
        if muon is None:
            raise ValueError(
                f"optimizer 'muon' came with torch {MUON_CAME_WITH}, and this is torch {torch.__version__}: use 'adamw', "
                f"or a newer torch"
            )
        groups = [{"params": maps, "share": 1.0}]
        made.append(muon(groups, lr=plan.rate, weight_decay=plan.decay, adjust_lr_fn="match_rms_adamw"))
    if groups := [group for group in adam if group["params"]]:
        made.append(AdamW(groups, lr=plan.rate, weight_decay=plan.decay, betas=(0.9, 0.95), fused=True))
    return made


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Let every group learn at its share of `rate`."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]


def _sorted(head: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Tables with a row a token (embeddings and LM heads), maps between states, and what is no matrix."""
    tables, maps, rest = [], [], []
    for name, parameter in head.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim != 2:
            rest.append(parameter)
        else:
            (tables if "embed" in name or "lm_head" in name or "markov_w" in name else maps).append(parameter)
    return tables, maps, rest

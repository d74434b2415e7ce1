"""Heads that were taught on texts of the tiny target's own, for tests of training and of what is done with trained heads."""

from __future__ import annotations

import functools

import torch
from tiny import V, lm
from torch import nn

from toolkit.drafting import Block, Chain, Eagle, Medusa
from toolkit.engine import Engine
from toolkit.heads import BlockHead, Eagle3Head, EagleHead, MedusaHead, MTPHead
from toolkit.models.hf import HFModel
from toolkit.sampling import Sampling, Stopping
from toolkit.training import Frequencies, Objective, Plan, Reader, Text, fit

TAPS = (1, 2)


def own_texts(count: int, tokens: int = 24, temperature: float = 0.0, model: HFModel | None = None) -> list[Text]:
    """Texts that the tiny target wrote itself."""
    generator = torch.Generator().manual_seed(3)
    prompts = [torch.randint(1, V, (3 + i % 5,), generator=generator).tolist() for i in range(count)]
    engine = Engine(model or lm(0), sampling=Sampling(temperature, seed=1), stopping=Stopping(tokens))
    session = engine.generate(prompts)
    return [Text((*p, *out), ((len(p), len(p) + len(out)),)) for p, out in zip(prompts, session.outputs, strict=True)]


@functools.cache
def greedy_texts() -> tuple[Text, ...]:
    return tuple(own_texts(40))


HEADS = {
    "eagle": lambda: EagleHead.of(lm(0)),
    "eagle 3": lambda: Eagle3Head.of(lm(0), taps=TAPS),
    "eagle 3, reduced": lambda: Eagle3Head.of(
        lm(0), taps=TAPS, tokens=Frequencies.of(greedy_texts(), V).choose(20), layers=2
    ),
    "mtp": lambda: MTPHead.of(lm(0)),
    "medusa": lambda: MedusaHead.of(lm(0), heads=3),
    "block": lambda: BlockHead.of(lm(0), mask=V - 1, block=4, taps=TAPS),
    "block, markov": lambda: BlockHead.of(lm(0), mask=V - 1, block=4, taps=TAPS, markov_rank=4),
}


def new_head(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return HEADS[kind]()


def drafter(kind: str, head: nn.Module, depth: int):
    if kind == "medusa":
        return Medusa(head, Chain(depth))
    return Block(head, Chain(depth)) if kind.startswith("block") else Eagle(head, Chain(depth))


def plan(**changes) -> Plan:
    given = {"epochs": 8, "batch": 4, "rate": 1e-2, "warmup": 4, "steps": 3, "blocks": 8, "every": 24, "held": 8}
    sharp = Objective((("hard_ce", 1.0),))  # a random target's distributions are flat: there is little else to learn
    return Plan(**({"objective": sharp} | given | changes))


@functools.cache
def taught(kind: str) -> tuple[nn.Module, tuple]:
    head = new_head(kind)
    source = Reader(lm(0), greedy_texts(), head.taps)
    return head, tuple(fit(head, lm(0).unembedding, source, plan()))

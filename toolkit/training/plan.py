"""How a head is trained, and what is told meanwhile: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from toolkit.training.losses import Objective
from toolkit.training.simulate import Simulated

OptimizerName = Literal["adamw", "muon"]
OPTIMIZERS: tuple[str, ...] = get_args(OptimizerName)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a head is trained.

    epochs, batch   passes over the texts, and texts a step over all processes
    rate            of learning, at its highest; it rises over `warmup` steps and falls by a cosine to `floor` of it
    optimizer       "adamw", or "muon" for the maps within a head, with AdamW for all else
    table_rate      share of the rate that embeddings and LM heads learn at: they begin as the target's, and know much already
    clip            highest norm of the gradient
    steps           guesses in a chain, for heads that go on from their own states
    short           share of the run, its beginning, in which those chains are a single guess: several times faster
    prompts         learn from prompts too, about which the target has its opinion as well; looks judge answers alone
    blocks          drawn a text and step, for block heads
    every           steps between two looks at held-out texts, and between two checkpoints
    patience        looks without a better simulated acceptance length before it ends; None for no early end
    held            texts, the last ones of the source, that are never learned from
    bf16            arithmetic in bfloat16 with parameters in float32
    """

    epochs: int = 2
    batch: int = 8
    rate: float = 1e-3
    warmup: int = 50
    floor: float = 0.05
    optimizer: OptimizerName = "adamw"
    table_rate: float = 1.0
    clip: float = 1.0
    decay: float = 0.0
    steps: int = 5
    short: float = 0.0
    prompts: bool = False
    blocks: int = 16
    every: int = 200
    patience: int | None = None
    held: int = 32
    bf16: bool = False
    seed: int = 0
    objective: Objective = field(default_factory=Objective)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "steps", "blocks", "every", "held"):
            if getattr(self, name) < 1:
                raise ValueError(f"a plan's {name} must be at least 1; got {getattr(self, name)}")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"unknown optimizer {self.optimizer!r}: use one of {', '.join(OPTIMIZERS)}")
        for name in ("table_rate", "short"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"a plan's {name} is a share, from 0 to 1; got {getattr(self, name)}")
        if not self.rate > 0:
            raise ValueError(f"a plan's rate of learning must be above 0; got {self.rate}")


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of training. By depth: loss, agreement with the target's likeliest token, and sum min(p, q)."""

    step: int
    of: int
    epoch: float
    tokens: int  # taught so far
    loss: float
    by_depth: tuple[float, ...]
    agreement: tuple[float, ...]
    acceptance: tuple[float, ...]
    rate: float
    norm: float  # of the gradient, before clipping
    seconds: float  # since this call began


@dataclass(frozen=True, slots=True)
class Look:
    """What simulation says about held-out texts."""

    step: int
    tokens: int
    simulated: Simulated
    best: bool  # the best so far: this state of the head is the one that is kept
    seconds: float


Report = StepReport | Look

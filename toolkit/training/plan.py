"""How a head is trained, and what is told meanwhile: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from toolkit.training.losses import Objective
from toolkit.training.simulate import Simulated


@dataclass(frozen=True, slots=True)
class Plan:
    """How a head is trained.

    epochs, batch   passes over the texts, and texts a step over all processes
    rate            of learning, at its highest; it rises over `warmup` steps and falls by a cosine to `floor` of it
    clip            highest norm of the gradient
    steps           guesses in a chain, for heads that go on from their own states
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
    clip: float = 1.0
    decay: float = 0.0
    steps: int = 5
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

"""What a request asks of sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of one request, applied in Hugging Face's order: temperature, top-k, top-p, min-p.

    temperature  0 is greedy. None means 0 when nothing else is asked for, and 1 when a filter below is set, so that
                 `Sampling(top_k=40)` samples.
    top_k        keep the k most likely tokens (ties with the k-th are kept); 0 keeps all.
    top_p        keep the smallest set of most likely tokens whose mass reaches top_p; in (0, 1].
    min_p        keep tokens at least min_p times as likely as the most likely one; in [0, 1].
    seed         names the randomness: the same seed and prompt give the same draws. Any int64 number.

    Raises ValueError, naming the value and its limits.
    """

    temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.temperature is not None and not (0 <= self.temperature < math.inf):
            raise ValueError(f"temperature must be a finite number >= 0 (0 is greedy); got {self.temperature}")
        if not float(self.top_k).is_integer() or self.top_k < 0:
            raise ValueError(f"top_k must be a whole number >= 0 (0 keeps all tokens); got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1] (1 keeps all tokens); got {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must lie in [0, 1] (0 keeps all tokens); got {self.min_p}")
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed must fit into 64 bits with sign; got {self.seed}")

    @property
    def heat(self) -> float:
        """The temperature meant: see `temperature`."""
        if self.temperature is not None:
            return float(self.temperature)
        return 1.0 if self.top_k or self.top_p < 1 or self.min_p else 0.0

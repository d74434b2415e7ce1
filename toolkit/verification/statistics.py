"""Is a sample what it should be? Tests of counts against a law, and how many samples it takes to see a fault.

For rules small enough to enumerate there is `prove`. For a whole engine there are samples, and a sample can only fail to
show a fault: so each test here comes with the number of samples at which a fault of a given size would have shown.

Letters: V outcomes, n samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Numbers = Tensor | Sequence[float] | Sequence[int]


@dataclass(frozen=True, slots=True)
class Fit:
    """A test of counts against a law.

    p_value  probability of so large a statistic if the law holds; 0 when something impossible was counted
    outside  samples on outcomes of probability 0
    cells    outcomes compared, rare ones taken together
    """

    statistic: float
    cells: int
    p_value: float
    outside: int

    def holds(self, alpha: float = 5e-5) -> bool:
        """Is the law not refuted, when a true one may be refuted with probability alpha."""
        return self.p_value >= alpha


def chi_square(counts: Numbers, law: Numbers) -> Fit:
    """Pearson's test: sum (n_x - n p_x)^2 / (n p_x). counts [V] of outcomes, law [V] their probabilities.

    Outcomes expected fewer than 5 times are taken together (Cochran's rule). Raises ValueError for shapes that differ,
    counts below zero or none at all, and a law that does not sum to 1.
    """
    seen, want, outside = _cells(counts, law)
    return _fit(float(((seen - want) ** 2 / want).sum()), len(want), outside)


def g_test(counts: Numbers, law: Numbers) -> Fit:
    """The likelihood-ratio test: 2 sum n_x log(n_x / (n p_x)). Counts and law as in `chi_square`."""
    seen, want, outside = _cells(counts, law)
    return _fit(float(2 * torch.special.xlogy(seen, seen / want).sum()), len(want), outside)


def tv_bounds(counts: Numbers, law: Numbers, confidence: float = 0.99) -> tuple[float, float]:
    """Bounds on the total variation between the law that was sampled and `law`, each held with `confidence`.

    The distance of the counts from their own law is sqrt((V - 1) / n) / 2 at most on average, and each sample moves it by
    1 / n at most (McDiarmid's inequality), so it lies within that plus sqrt(log(1 / (1 - confidence)) / 2n).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1; got {confidence}")
    seen, law_ = _checked(counts, law)
    n = float(seen.sum())
    far = float((seen / n - law_).abs().sum()) / 2
    slack = math.sqrt((len(law_) - 1) / n) / 2 + math.sqrt(-math.log(1 - confidence) / (2 * n))
    return max(0.0, far - slack), min(1.0, far + slack)


def samples_needed(law: Numbers, fault: Numbers, power: float = 0.995, alpha: float = 5e-5) -> int:
    """How many samples from `fault` [V] it takes until `chi_square` against `law` [V] refutes it with probability `power`.

    With n samples the statistic has a noncentral chi-square law, noncentrality n sum (fault - law)^2 / law. Where the fault
    says what the law never does, one such sample is enough, and the smaller number counts. Raises ValueError when both
    are the same.
    """
    wrong, right = (torch.as_tensor(x, dtype=torch.float64) for x in (fault, law))
    possible = right > 0
    per_sample = float(((wrong - right)[possible] ** 2 / right[possible]).sum())
    impossible = float(wrong[~possible].sum())
    if per_sample < 1e-15 and impossible == 0:
        raise ValueError("law and fault are the same: no number of samples tells them apart")
    by_support = math.ceil(math.log1p(-power) / math.log1p(-impossible)) if 0 < impossible < 1 else math.inf
    if impossible == 1:
        return 1
    df = int(possible.sum()) - 1
    bar = _quantile(df, alpha)
    by_shape = _smallest(lambda n: _noncentral(bar, df, n * per_sample) >= power) if df > 0 else math.inf
    return int(min(by_support, by_shape))


def _checked(counts: Numbers, law: Numbers) -> tuple[Tensor, Tensor]:
    seen, p = (torch.as_tensor(x, dtype=torch.float64) for x in (counts, law))
    if seen.ndim != 1 or seen.shape != p.shape:
        raise ValueError(
            f"counts and law need one entry an outcome; got shapes {tuple(seen.shape)} and {tuple(p.shape)}"
        )
    if (seen < 0).any() or seen.sum() == 0:
        raise ValueError("counts must not be negative, and something must have been counted")
    if (p < 0).any() or abs(float(p.sum()) - 1) > 1e-6:
        raise ValueError(f"a law has no negative probabilities and sums to 1; this one sums to {float(p.sum()):.6g}")
    return seen, p


def _cells(counts: Numbers, law: Numbers) -> tuple[Tensor, Tensor, int]:
    """Counts and expectations of the cells compared, and the samples outside the support."""
    seen, p = _checked(counts, law)
    outside, seen, want = int(seen[p == 0].sum()), seen[p > 0], p[p > 0] * seen.sum()
    order = want.argsort()
    seen, want = seen[order], want[order]
    few = max(int((want < 5).sum()), int((want.cumsum(0) < 5).sum()) + 1) if want[0] < 5 else 1
    few = min(few, len(want))
    return torch.cat([seen[:few].sum()[None], seen[few:]]), torch.cat([want[:few].sum()[None], want[few:]]), outside


def _fit(statistic: float, cells: int, outside: int) -> Fit:
    return Fit(statistic, cells, 0.0 if outside else _tail(statistic, cells - 1), outside)


def _tail(x: float, df: int) -> float:
    """P(chi-square with df degrees of freedom > x)."""
    if df < 1 or x <= 0:
        return 1.0
    return float(torch.special.gammaincc(torch.tensor(df / 2).double(), torch.tensor(x / 2).double()))


def _quantile(df: int, alpha: float) -> float:
    """The x with tail alpha, by bisection."""
    low, high = 0.0, 1.0
    while _tail(high, df) > alpha:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(middle, df) > alpha else (low, middle)
    return high


def _noncentral(x: float, df: int, noncentrality: float) -> float:
    """P(noncentral chi-square > x): a chi-square with df + 2J degrees of freedom, J Poisson of mean half the noncentrality."""
    mean = noncentrality / 2
    j = torch.arange(int(mean + 12 * math.sqrt(mean) + 40)).double()
    log_poisson = torch.special.xlogy(j, torch.tensor(mean).double()) - mean - torch.lgamma(j + 1)
    return float((log_poisson.exp() * torch.special.gammaincc(df / 2 + j, torch.tensor(x / 2).double())).sum())


def _smallest(enough: Callable[[int], bool]) -> int:
    """The least n >= 1 that is enough, when more is always enough too."""
    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high

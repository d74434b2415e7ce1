"""What a chain of guesses is worth (Leviathan, Kalman, Matias 2023, sections 3.1, 3.3 and theorem 3.8).

alpha  probability that a guess is accepted, each test on its own: 0 <= alpha < 1
c      time of one draft pass in units of the target's, c >= 0
gamma  guesses a step
"""

from __future__ import annotations


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens a step, the bonus included: (1 - alpha^(gamma + 1)) / (1 - alpha). Raises ValueError out of range."""
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha is a probability below 1; got {alpha}")
    if gamma < 0:
        raise ValueError(f"gamma is a number of guesses, at least 0; got {gamma}")
    return (1 - alpha ** (gamma + 1)) / (1 - alpha)


def speedup(alpha: float, gamma: int, c: float) -> float:
    """Times as fast as plain decoding, while a pass over gamma + 1 nodes takes as long as one over a single node."""
    if c < 0:
        raise ValueError(f"c is a ratio of times, at least 0; got {c}")
    return expected_tokens(alpha, gamma) / (gamma * c + 1)


def optimal_gamma(alpha: float, c: float, limit: int = 64) -> int:
    """The gamma of 0..limit with the largest speedup, the smallest among equals; 0 where drafting does not pay."""
    return max(range(limit + 1), key=lambda gamma: speedup(alpha, gamma, c))

"""Which guesses are accepted: one file a rule. A rule sees a proposal, logits and a sampler, never a model or a cache."""

from toolkit.verification.greedy import Greedy as Greedy
from toolkit.verification.rejection import Rejection as Rejection

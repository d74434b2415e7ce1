"""From logits to distributions, from distributions to tokens, and when to stop. Knows no model and no cache."""

from toolkit.sampling.logprobs import TokenLogprob as TokenLogprob
from toolkit.sampling.params import Sampling as Sampling
from toolkit.sampling.sampler import BatchSampler as BatchSampler
from toolkit.sampling.stopping import Stopping as Stopping

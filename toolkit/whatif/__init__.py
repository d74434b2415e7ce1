"""A recorded step judged again, without any model: by another rule, seed, temperature, or with a smaller tree.

The engine has to record evidence (`Engine(..., evidence=64)`). All functions take one row's record of a step, and by default
the rule, the sampling parameters and the tree that were recorded:

    again(record, rule="Traversal")         the verdict, with what has to be said about it
    distribution(record, seeds=1000)        how many guesses are kept, over many seeds
    law(record)                             the same, and the emitted tokens, with exact probabilities
    proof(record)                           is the rule lossless here, were the first guesses drawn anew
    residual(record, node)                  what the correction after a node is drawn from
"""

from toolkit.whatif.again import Answer as Answer
from toolkit.whatif.again import again as again
from toolkit.whatif.anew import proof as proof
from toolkit.whatif.chances import Law as Law
from toolkit.whatif.chances import Lengths as Lengths
from toolkit.whatif.chances import distribution as distribution
from toolkit.whatif.chances import law as law
from toolkit.whatif.panel import Comparison as Comparison
from toolkit.whatif.panel import Question as Question
from toolkit.whatif.panel import compare as compare
from toolkit.whatif.panel import labels as labels
from toolkit.whatif.prefix import Prefix as Prefix
from toolkit.whatif.problem import REST as REST
from toolkit.whatif.residual import Residual as Residual
from toolkit.whatif.residual import residual as residual
from toolkit.whatif.rules import RULES as RULES

"""Which guesses are accepted: one file a rule. A rule sees a proposal, logits and a sampler, never a model or a cache."""

from toolkit.verification.block import Block as Block
from toolkit.verification.coupled import Coupled as Coupled
from toolkit.verification.greedy import Greedy as Greedy
from toolkit.verification.lenient import Threshold as Threshold
from toolkit.verification.lenient import TopKLenient as TopKLenient
from toolkit.verification.optimal import Optimal as Optimal
from toolkit.verification.point_mass import PointMass as PointMass
from toolkit.verification.proof import prove as prove
from toolkit.verification.rejection import Rejection as Rejection
from toolkit.verification.traversal import Traversal as Traversal
from toolkit.verification.typical import Typical as Typical

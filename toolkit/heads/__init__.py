"""Draft heads: small networks that read the target's own states. Plain modules, made from a target by `of`."""

from toolkit.heads.block import BlockHead as BlockHead
from toolkit.heads.config import Borrowed as Borrowed
from toolkit.heads.config import HeadConfig as HeadConfig
from toolkit.heads.config import spread_taps as spread_taps
from toolkit.heads.eagle import EagleHead as EagleHead
from toolkit.heads.eagle3 import Eagle3Head as Eagle3Head
from toolkit.heads.medusa import MedusaHead as MedusaHead
from toolkit.heads.mtp import MTPHead as MTPHead
from toolkit.heads.parts import Attend as Attend
from toolkit.heads.peagle import PEagleHead as PEagleHead
from toolkit.heads.small import SmallLM as SmallLM

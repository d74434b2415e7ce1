"""Drafters, one file each. All answer `propose(context)`; what they keep they could rebuild from the
context, or it only decides what is guessed (pools, tables, paces)."""

from toolkit.drafting.adaptive import Adaptive as Adaptive
from toolkit.drafting.chosen import ByBatch as ByBatch
from toolkit.drafting.chosen import ByCost as ByCost
from toolkit.drafting.eagle import Eagle as Eagle
from toolkit.drafting.early_exit import EarlyExit as EarlyExit
from toolkit.drafting.lookahead import Lookahead as Lookahead
from toolkit.drafting.marginal import Block as Block
from toolkit.drafting.marginal import Medusa as Medusa
from toolkit.drafting.measured import ByMeasure as ByMeasure
from toolkit.drafting.mixture import Budgets as Budgets
from toolkit.drafting.mixture import Mixture as Mixture
from toolkit.drafting.mixture import PerRow as PerRow
from toolkit.drafting.model import DraftModel as DraftModel
from toolkit.drafting.ngram import NGram as NGram
from toolkit.drafting.nothing import Nothing as Nothing
from toolkit.drafting.peagle import PEagle as PEagle
from toolkit.drafting.planned import from_ranks as from_ranks
from toolkit.drafting.planned import optimal as optimal
from toolkit.drafting.recycling import Recycling as Recycling
from toolkit.drafting.shapes import BestFirst as BestFirst
from toolkit.drafting.shapes import Chain as Chain
from toolkit.drafting.shapes import Confident as Confident
from toolkit.drafting.shapes import Dynamic as Dynamic
from toolkit.drafting.shapes import Fixed as Fixed
from toolkit.drafting.shapes import Sampled as Sampled
from toolkit.drafting.suffix import Suffix as Suffix
from toolkit.drafting.translated import Intersection as Intersection
from toolkit.drafting.translated import Reencode as Reencode

"""Training draft heads: data that the target writes itself, what it says about them, ways of teaching, losses, and `fit`."""

from toolkit.training.fit import fit as fit
from toolkit.training.lessons import Lesson as Lesson
from toolkit.training.lessons import Reader as Reader
from toolkit.training.losses import Decay as Decay
from toolkit.training.losses import DPace as DPace
from toolkit.training.losses import Fading as Fading
from toolkit.training.losses import Objective as Objective
from toolkit.training.plan import Look as Look
from toolkit.training.plan import Plan as Plan
from toolkit.training.plan import StepReport as StepReport
from toolkit.training.shards import Shards as Shards
from toolkit.training.shards import capture as capture
from toolkit.training.shards import size_of as size_of
from toolkit.training.simulate import simulate as simulate
from toolkit.training.synthesis import Recipe as Recipe
from toolkit.training.synthesis import write_own as write_own
from toolkit.training.texts import Text as Text
from toolkit.training.texts import texts_of as texts_of
from toolkit.training.vocabulary import Frequencies as Frequencies

"""Measuring: arms that run in turns, medians, and ratios within one run. Prints nothing; results are plain values."""

from toolkit.bench.compare import Compared as Compared
from toolkit.bench.compare import compare as compare
from toolkit.bench.interleave import Arm as Arm
from toolkit.bench.interleave import Comparison as Comparison
from toolkit.bench.interleave import Sample as Sample
from toolkit.bench.interleave import interleave as interleave
from toolkit.bench.lossless import LosslessReport as LosslessReport
from toolkit.bench.lossless import PromptCheck as PromptCheck
from toolkit.bench.lossless import test_lossless as test_lossless

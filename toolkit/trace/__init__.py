"""What happened, as plain host data. Everything right of a StepRecord is a reader: it may be absent, slow or broken
without changing one token."""

from toolkit.trace.records import RowRecord as RowRecord
from toolkit.trace.records import StepRecord as StepRecord
from toolkit.trace.trace import Trace as Trace

"""What happened, as plain host data. Everything right of a StepRecord is a reader: it may be absent, slow or broken
without changing one token."""

from toolkit.trace.files import load as load
from toolkit.trace.files import save as save
from toolkit.trace.records import Event as Event
from toolkit.trace.records import Load as Load
from toolkit.trace.records import PrefixNode as PrefixNode
from toolkit.trace.records import RowRecord as RowRecord
from toolkit.trace.records import Snapshot as Snapshot
from toolkit.trace.records import StepRecord as StepRecord
from toolkit.trace.seats import seated as seated
from toolkit.trace.trace import Trace as Trace
from toolkit.trace.words import decoder as decoder

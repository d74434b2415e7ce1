"""Checkpoints of draft heads in their published layouts: one file each, and three ways in.

`load` returns a head with the conventions it was read by, each of which can be overridden; `save` refuses in a sentence what
a layout has no words for. The layouts are in `every`.
"""

from toolkit.heads.dialects.checkpoint import Checkpoint as Checkpoint
from toolkit.heads.dialects.checkpoint import read as read
from toolkit.heads.dialects.checkpoint import write as write
from toolkit.heads.dialects.door import candidates as candidates
from toolkit.heads.dialects.door import detect as detect
from toolkit.heads.dialects.door import load as load
from toolkit.heads.dialects.door import save as save
from toolkit.heads.dialects.every import DIALECTS as DIALECTS
from toolkit.heads.dialects.every import named as named
from toolkit.heads.dialects.values import Conventions as Conventions
from toolkit.heads.dialects.values import Dialect as Dialect
from toolkit.heads.dialects.values import Loaded as Loaded

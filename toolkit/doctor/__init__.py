"""The draft doctor: which of the known misreadings a head suffers from, measured, and what to do about it."""

from toolkit.doctor.diagnose import Diagnosis as Diagnosis
from toolkit.doctor.diagnose import Finding as Finding
from toolkit.doctor.diagnose import diagnose as diagnose
from toolkit.doctor.exam import Exam as Exam
from toolkit.doctor.exam import Grade as Grade
from toolkit.doctor.exam import grade as grade
from toolkit.doctor.questions import asked as asked
from toolkit.doctor.repair import repair as repair
from toolkit.doctor.report import page as page
from toolkit.doctor.report import text as text
from toolkit.doctor.traps import TRAPS as TRAPS

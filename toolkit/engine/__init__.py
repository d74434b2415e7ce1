"""The loop: propose, read, verify, commit. Knows no widget, no training and no text."""

from toolkit.engine.cores import give_back_cores as give_back_cores
from toolkit.engine.cores import takes_every_core as takes_every_core
from toolkit.engine.ending import before_exit as before_exit
from toolkit.engine.engine import Engine as Engine
from toolkit.engine.live import Live as Live
from toolkit.engine.policy import InTurn as InTurn
from toolkit.engine.policy import Overtaking as Overtaking
from toolkit.engine.policy import Policy as Policy
from toolkit.engine.server import Server as Server
from toolkit.engine.session import Session as Session
from toolkit.engine.ticket import Ticket as Ticket

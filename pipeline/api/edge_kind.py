"""Hands the edge over as a kind of process, by an entry point: control and the edge do not know each other."""

from typing import Final

from pipeline.control.kinds import ControlledKind
from pipeline.edge.kind import EDGE as KIND

EDGE: Final = ControlledKind(KIND, ends_hung=False)  # its own starter, such as systemd, ends it and starts it again

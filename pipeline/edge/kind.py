"""The edge as a kind of process: its name, how it is judged, and its alert. Pure.

`pipeline.api.edge_kind` hands it over.
"""

from dataclasses import replace
from typing import Final

from pipeline.health.verdicts.alert import Alert
from pipeline.health.verdicts.processes import ProcessKind, unregistered

KIND: Final = "edge"
"""The kind in leases, heartbeats and labels."""

EDGE: Final[ProcessKind] = replace(
    unregistered(KIND),  # by its heartbeats: one that failed, died or fell silent is a problem; not one that drained
    is_one=False,
    alert=Alert(
        "TurnoutEdgeDown",
        "page",
        'max by (edge) (up{job="turnout",kind="edge"}) == 0',
        "1m",
        "The edge {{ $labels.edge }} is down",
        "Its /metrics cannot be read for a minute, and it has not drained: its producers wait or use another edge.",
        "/",
    ),
)

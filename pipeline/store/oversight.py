"""What the control store knows of the controller's work and of what waits for people, as ingest exports it.

Ingest is there when the controller is dead, so it exports this, and not the controller. Never writes.
"""

import json
from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, Engine, func, select

from listeners.totals import Oversight
from pipeline.health.judgement import Judgement
from pipeline.store.drivers import is_time
from pipeline.store.evacuations import waiting_in
from pipeline.store.operations import OPEN
from pipeline.store.tables import catalog_snapshots, operations

_NEEDS_PERSON: Final = "needs_human"


def read_oversight(engine: Engine, judgement: Judgement) -> Oversight:
    """Read what alerts on the controller need, beside the judgement of the fleet, which says whether one runs.

    Where the control store cannot be read this raises, and nothing is known: the caller exports nothing then.
    """
    controller = judgement.driver("controller", "main")
    is_running = controller is not None and controller.liveness.is_live
    with engine.connect() as connection:
        read_at, drift = _access(connection)
        return Oversight(
            is_controller_running=is_running,
            supervised_groups=judgement.supervised_groups,
            open_operations=_open_operations(connection),
            oldest_stuck_requested_at=_oldest_stuck(connection),
            access_read_at=read_at,
            drift=drift,
            evacuations=waiting_in(connection) if is_running else {},  # of what a dead one saw nobody knows any more
        )


def _access(connection: Connection) -> tuple[float | None, Mapping[str, int] | None]:
    """Return when the catalog was last read, and the findings of then by class; None is not known."""
    row = connection.execute(select(catalog_snapshots.c.read_at, catalog_snapshots.c.drift)).first()
    if row is None or not is_time(row.read_at):
        return None, None
    try:
        found = json.loads(row.drift or "null")
    except (ValueError, TypeError):  # edited by hand
        found = None
    known = isinstance(found, dict) and all(isinstance(each, int) for each in found.values())
    return float(row.read_at), found if known else None


def _open_operations(connection: Connection) -> Mapping[str, int]:
    query = select(operations.c.state, func.count()).where(operations.c.state.in_(OPEN)).group_by(operations.c.state)
    return {**dict.fromkeys(OPEN, 0), **dict(tuple(row) for row in connection.execute(query))}


def _oldest_stuck(connection: Connection) -> float | None:
    """Return when the oldest operation that needs a person was requested, None where there is none or no time."""
    stuck = operations.c.state == _NEEDS_PERSON
    oldest: object = connection.scalar(select(func.min(operations.c.requested_at)).where(stuck))
    return float(oldest) if isinstance(oldest, (float, int)) and is_time(oldest) else None

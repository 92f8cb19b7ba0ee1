"""Drivers that report while a group drains."""

import os
import socket

from sqlalchemy import Engine

from pipeline.store.database.tables import drivers as drivers_table
from tests.unit.control.operations.move_world import NOW, Drivers


def heartbeats(engine: Engine) -> Drivers:
    """Return the drivers of three groups that also beat."""
    made = Drivers(engine)
    with engine.begin() as connection:
        reported = {"kind": "group", "pid": os.getpid(), "host": socket.gethostname(), "started_at": 0.0}
        reported |= {"heartbeat_at": NOW, "state": "running"}
        connection.execute(drivers_table.insert(), [{**reported, "name": name} for name in "abc"])
    return made

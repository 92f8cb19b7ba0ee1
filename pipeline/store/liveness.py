"""Reads what tells whether drivers live: their heartbeats, leases and processes. Never writes.

What is shown, exported or steered goes by `DriverFacts.judge` of what this reads, and by nothing else.
"""

import json
from typing import Final

from sqlalchemy import Connection, Engine, func, select

from pipeline.health.liveness import HEARTBEAT_SECONDS, Driver, DriverFacts, HeldLease, Liveness, ProcessRun
from pipeline.store.leases import store_now
from pipeline.store.runs import runs_in
from pipeline.store.tables import drivers, group_runs, leases

_DRIVER: Final = tuple(
    drivers.c[name]
    for name in ("kind", "name", "host", "pid", "started_at", "heartbeat_at", "state", "error", "frontier_seq")
)


def read_drivers(engine: Engine, heartbeat_seconds: float = HEARTBEAT_SECONDS, now: float | None = None) -> DriverFacts:
    """Read what is known of every driver; `now` is Unix seconds, by default the store's time.

    `heartbeat_seconds` is the setting metrics.heartbeat_seconds, by which missed heartbeats are counted.
    """
    with engine.connect() as connection:
        return drivers_in(connection, heartbeat_seconds, now)


def drivers_in(
    connection: Connection, heartbeat_seconds: float = HEARTBEAT_SECONDS, now: float | None = None
) -> DriverFacts:
    """Return the same within a transaction."""
    moment = float(connection.execute(select(store_now())).scalar_one()) if now is None else now
    found = [Driver(*row) for row in connection.execute(select(*_DRIVER))]
    return DriverFacts(
        moment,
        {(each.kind, each.name): each for each in found},
        _leases(connection),
        _runs(connection),
        heartbeat_seconds=heartbeat_seconds,
    )


def judge_controller(engine: Engine, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> Liveness:
    """Judge the controller, as `turnout status` does."""
    return read_drivers(engine, heartbeat_seconds).judge("controller", "main")


def _leases(connection: Connection) -> dict[tuple[str, str], HeldLease]:
    """Return the leases by kind and name."""
    query = select(*(leases.c[name] for name in ("kind", "name", "host", "pid", "since", "expires_at")))
    return {(kind, name): HeldLease((host, pid), *times) for kind, name, host, pid, *times in connection.execute(query)}


def _runs(connection: Connection) -> dict[tuple[str, str], ProcessRun]:
    """Return the newest run of all that the controller ever started a process for."""
    newest = select(func.max(group_runs.c.run_id)).group_by(group_runs.c.kind, group_runs.c.group_name)
    return {
        (run.kind, run.group_name): ProcessRun(
            _process(run.reference), run.started_at, run.ended_at, run.died, run.exit_message
        )
        for run in runs_in(connection, group_runs.c.run_id.in_(newest))
    }


def _process(reference: str | None) -> tuple[str, int] | None:
    """Return host and process id of what a backend started; None where its reference does not say."""
    try:
        found = json.loads(reference or "null")
        return found["host"], found["pid"]
    except (KeyError, TypeError, ValueError):
        return None  # another backend has a form of its own

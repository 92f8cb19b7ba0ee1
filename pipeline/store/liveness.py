"""Reads what tells whether drivers live: their heartbeats, leases and processes. Never writes.

What is shown, exported or steered goes by `DriverFacts.judge` of what this reads, and by nothing else.
"""

import json

from sqlalchemy import Connection, Engine, func, select

from pipeline.health.liveness import HEARTBEAT_SECONDS, DriverFacts, HeldLease, Liveness, ProcessRun
from pipeline.store.drivers import is_time, read_driver
from pipeline.store.leases import store_now
from pipeline.store.runs import runs_in
from pipeline.store.tables import drivers, group_runs, leases


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
    found = [read_driver(dict(row)) for row in connection.execute(select(drivers)).mappings()]
    held, broken_leases = _leases(connection)
    runs, broken_runs = _runs(connection)
    return DriverFacts(
        moment,
        {(each.kind, each.name): each for each in found},
        held,
        runs,
        heartbeat_seconds=heartbeat_seconds,
        defects={**broken_leases, **broken_runs},
    )


def judge_controller(engine: Engine, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> Liveness:
    """Judge the controller, as `turnout status` does."""
    return read_drivers(engine, heartbeat_seconds).judge("controller", "main")


def _leases(connection: Connection) -> tuple[dict[tuple[str, str], HeldLease], dict[tuple[str, str], str]]:
    """Return the leases by kind and name, and why those that make no sense do not count."""
    query = select(*(leases.c[name] for name in ("kind", "name", "host", "pid", "since", "expires_at")))
    held, broken = {}, {}
    for kind, name, host, pid, since, expires_at in connection.execute(query):
        if is_time(since) and is_time(expires_at):
            held[kind, name] = HeldLease((host, pid), since, expires_at)
        else:
            times = f"since {since!r:.80}, expires_at {expires_at!r:.80}"
            broken[kind, name] = f"has an invalid row in table leases of the control store: {times}. Delete the row"
    return held, broken


def _runs(connection: Connection) -> tuple[dict[tuple[str, str], ProcessRun], dict[tuple[str, str], str]]:
    """Return the newest run of all that the controller ever started a process for, and the invalid ones."""
    newest = select(func.max(group_runs.c.run_id)).group_by(group_runs.c.kind, group_runs.c.group_name)
    found, broken = {}, {}
    for run in runs_in(connection, group_runs.c.run_id.in_(newest)):
        if run.defect is not None:
            broken[run.kind, run.group_name] = f"cannot be judged: {run.defect}"
            continue
        process = _process(run.reference)
        found[run.kind, run.group_name] = ProcessRun(process, run.started_at, run.ended_at, run.died, run.exit_message)
    return found, broken


def _process(reference: str | None) -> tuple[str, int] | None:
    """Return host and process id of what a backend started; None where its reference does not say."""
    try:
        found = json.loads(reference or "null")
        return str(found["host"]), int(found["pid"])
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError):
        return None  # a row edited by hand

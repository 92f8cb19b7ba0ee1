"""Runs: the processes that the controller started for groups and other duties, and how each has ended."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sqlalchemy import ColumnElement, Connection, Engine, insert, select, update

from listeners.process_kinds import GROUP
from pipeline.store.backends import BACKENDS
from pipeline.store.database.tables import drivers, group_runs, groups, leases
from pipeline.store.processes.leases import Process, store_now
from pipeline.store.rows import START_LIMIT_SECONDS

RELEASED: Final = "turnout does not run it: the group has no backend"
"""Exit message of a run that the controller released: its driver keeps running, without supervision."""


DEATHS_COUNT_SECONDS: Final = 1800.0
"""Seconds for which a death counts against the games that its driver was at work on."""


@dataclass(frozen=True, slots=True)
class Run:
    """One process of a group, or of maintenance; times are Unix seconds by the store's clock."""

    run_id: int
    group_name: str
    reference: str | None  # by which its backend finds it again; None: it is being started
    started_at: float
    stop_requested_at: float | None
    ended_at: float | None
    died: bool  # it ended without having been asked to
    exit_message: str | None
    active_games: str | None = None  # JSON: the games it was at work on when it died; None: nobody knows
    kind: str = GROUP
    start_seconds: float = START_LIMIT_SECONDS  # the limit until its driver reports
    backend: str = "local"  # what has started it


RUN_COLUMNS: Final = tuple(
    (group_runs.c.died == 1).label("died") if name == "died" else group_runs.c[name] for name in Run.__slots__
)
"""The columns of table `group_runs` that make a run, in its order."""


def runs_in(connection: Connection, which: ColumnElement[bool]) -> list[Run]:
    """Return the runs that a condition selects."""
    return [Run(*row) for row in connection.execute(select(*RUN_COLUMNS).where(which))]


class RunsAs(Protocol):
    """What a run is of: a `Group`, or another duty."""

    @property
    def kind(self) -> str:
        """Return `group` or `maintenance`: of its lease, its heartbeats and its runs."""

    @property
    def name(self) -> str:
        """Return which one of its kind."""

    @property
    def backend(self) -> str:
        """Return what starts it; `none`: not turnout."""


@dataclass(frozen=True, slots=True)
class GroupDriver:
    """Who holds a group's lease."""

    process: Process
    run_id: int | None  # the run that a controller started it for, or adopted it as; None: no controller knows it
    since: float  # by the store's clock
    state: str | None  # as this very process last reported; None: it has not reported yet


def active_drivers(engine: Engine, kind: str = GROUP) -> dict[str, GroupDriver]:
    """Return who drives each group, or what else has this kind, under a lease that runs."""
    is_its = (drivers.c.pid == leases.c.pid) & drivers.c.run_id.is_not_distinct_from(leases.c.run_id)
    reported = (drivers.c.kind == kind) & (drivers.c.name == leases.c.name) & is_its
    process = (leases.c[name] for name in Process.__slots__)
    query = (
        select(leases.c.name, *process, leases.c.run_id, leases.c.since, drivers.c.state)
        .select_from(leases.outerjoin(drivers, reported))
        .where(leases.c.kind == kind, leases.c.expires_at > store_now())
    )
    with engine.connect() as connection:
        return {name: GroupDriver(Process(*rest[:4]), *rest[4:]) for name, *rest in connection.execute(query)}


def open_runs(engine: Engine, kind: str = GROUP) -> dict[str, Run]:
    """Return the open run of each process of a kind, by name."""
    with engine.connect() as connection:
        is_open = (group_runs.c.kind == kind) & group_runs.c.ended_at.is_(None)
        rows = connection.execute(select(*RUN_COLUMNS).where(is_open).order_by(group_runs.c.run_id))
        return {row.group_name: Run(*row) for row in rows}


def ended_runs(engine: Engine, since: float, kind: str = GROUP) -> dict[str, list[Run]]:
    """Return the runs of each process of a kind that ended after `since`, the newest first."""
    has_ended = (group_runs.c.kind == kind) & (group_runs.c.ended_at > since)
    query = select(*RUN_COLUMNS).where(has_ended).order_by(group_runs.c.run_id.desc())
    runs_by_group: dict[str, list[Run]] = {}
    with engine.connect() as connection:
        for row in connection.execute(query):
            runs_by_group.setdefault(row.group_name, []).append(Run(*row))
    return runs_by_group


def runs_since(engine: Engine, since: float, most: int) -> list[Run]:
    """Return the runs of all kinds that began or ended after `since`, the newest first, at most `most`."""
    touched = (group_runs.c.started_at > since) | (group_runs.c.ended_at > since)
    query = select(*RUN_COLUMNS).where(touched).order_by(group_runs.c.run_id.desc()).limit(most)
    with engine.connect() as connection:
        return [Run(*row) for row in connection.execute(query)]


def begin_run(
    engine: Engine,
    name: str,
    kind: str = GROUP,
    backend: str = "local",
    start_seconds: float = START_LIMIT_SECONDS,
) -> int | None:
    """Write that a run of a group, or another kind, begins, before it does; None where one is written already.

    `start_seconds` is how long its driver may take until it reports.
    """
    return _begin_run(engine, name, kind, None, backend, start_seconds)


def token_of(engine: Engine, run_id: int) -> str | None:
    """Return the token of a run, which no other run of any store has; None where there is no such run."""
    with engine.connect() as connection:
        return connection.scalar(select(group_runs.c.token).where(group_runs.c.run_id == run_id))


def adopt(
    engine: Engine,
    duty: RunsAs,
    run_id: int | None,
    reference: str,
    start_seconds: float = START_LIMIT_SECONDS,
) -> int | None:
    """Write the reference of the driver that has the lease into its open run, or into a new run.

    One that was released and is taken back goes on with its run, whose number it was started with.

    Return the run's id; None where one of another process is open.
    """
    if run_id is not None:
        record_process(engine, run_id, reference)
        return run_id
    if (again := _take_back(engine, duty, reference)) is not None:
        return again
    own = _begin_run(engine, duty.name, duty.kind, reference, duty.backend, start_seconds)
    if own is None:
        return None
    with engine.begin() as connection:
        for table in (leases, drivers):
            is_its = (table.c.kind == duty.kind) & (table.c.name == duty.name) & table.c.run_id.is_(None)
            connection.execute(update(table).where(is_its).values(run_id=own))
    return own


def _take_back(engine: Engine, duty: RunsAs, reference: str) -> int | None:
    """Open the released run again that the lease names, and return its id; None where there is none."""
    is_its = (leases.c.kind == duty.kind) & (leases.c.name == duty.name)
    held = select(leases.c.run_id).where(is_its).scalar_subquery()
    with engine.begin() as connection:
        if not _may_begin(connection, duty.kind, duty.name):
            return None
        is_released = runs_of(duty.kind, duty.name) & (group_runs.c.exit_message == RELEASED)
        values = {"ended_at": None, "exit_message": None, "reference": reference, "backend": duty.backend}
        changed = update(group_runs).where(is_released, group_runs.c.run_id == held).values(values)
        run_id: int | None = connection.scalar(changed.returning(group_runs.c.run_id))
        return run_id


def _may_begin(connection: Connection, kind: str, name: str) -> bool:
    """Return whether no run is open. The group's row is held first: of two controllers the second sees the first's."""
    connection.execute(update(groups).where(groups.c.name == name).values(name=name))
    is_open = runs_of(kind, name) & group_runs.c.ended_at.is_(None)
    return connection.scalar(select(group_runs.c.run_id).where(is_open)) is None


def _begin_run(
    engine: Engine, name: str, kind: str, reference: str | None, backend: str, start_seconds: float
) -> int | None:
    with engine.begin() as connection:
        if not _may_begin(connection, kind, name):
            return None
        row = {
            "kind": kind, "group_name": name, "reference": reference, "started_at": store_now(), "died": 0,
            "start_seconds": start_seconds, "backend": backend, "token": secrets.token_hex(16),
        }  # fmt: skip
        run_id: int = connection.execute(insert(group_runs).values(row).returning(group_runs.c.run_id)).scalar_one()
        return run_id


def record_process(engine: Engine, run_id: int, reference: str, *, begins_now: bool = False) -> None:
    """Keep the reference by which a backend finds a run's process; `begins_now` if earlier tries had no answer."""
    values = {"started_at": store_now()} if begins_now else {}
    _change_run(engine, run_id, reference=reference, **values)


def submit_stop(engine: Engine, run_id: int) -> None:
    """Record that the controller has asked a run to end."""
    own_row = (group_runs.c.run_id == run_id) & group_runs.c.stop_requested_at.is_(None)
    with engine.begin() as connection:
        connection.execute(update(group_runs).where(own_row).values(stop_requested_at=store_now()))


def is_wanted(engine: Engine, kind: str, name: str, run_id: int) -> bool:
    """Return whether a run goes on: it is known, has not been given up, and nobody has asked it to end.

    A number alone may be another run's, where the store was restored from a copy.
    """
    goes_on = group_runs.c.ended_at.is_(None) | (group_runs.c.exit_message == RELEASED)
    own_row = runs_of(kind, name) & (group_runs.c.run_id == run_id) & goes_on
    query = select(group_runs.c.run_id).where(own_row, group_runs.c.stop_requested_at.is_(None))
    with engine.connect() as connection:
        return connection.scalar(query) is not None


def note_ending(engine: Engine, run_id: int, why: str) -> None:
    """Write why a run will end, before it is made to."""
    _change_run(engine, run_id, exit_message=why)


def needs_active_games(engine: Engine, run_id: int) -> bool:
    """Return whether a run should write its games in hand into the store.

    Where its controller may be on another machine, and a run of the same duty has died lately.
    """
    died = group_runs.alias()
    has_died = (died.c.died == 1) & (died.c.ended_at > store_now() - DEATHS_COUNT_SECONDS)
    is_same = (died.c.kind == group_runs.c.kind) & (died.c.group_name == group_runs.c.group_name)
    here = [name for name, each in BACKENDS.items() if each.is_here]
    is_elsewhere = (group_runs.c.run_id == run_id) & group_runs.c.backend.not_in(here)
    with engine.connect() as connection:
        query = select(died.c.run_id).select_from(group_runs.join(died, is_same)).where(is_elsewhere, has_died)
        return connection.execute(query).first() is not None


def record_active_games(engine: Engine, run_id: int, games: Sequence[str]) -> None:
    """Write which games a run has in hand, for the case that it dies."""
    _change_run(engine, run_id, active_games=json.dumps(list(games)))


def end_run(
    engine: Engine, run_id: int, exit_message: str, *, died: bool, active_games: Sequence[str] | None = None
) -> None:
    """Write how a run has ended, and which games it was at work on; None: what it wrote itself stays."""
    games = {} if active_games is None else {"active_games": json.dumps(list(active_games))}
    _change_run(engine, run_id, ended_at=store_now(), died=int(died), exit_message=exit_message, **games)


def reset_restart_budget(engine: Engine, name: str) -> None:
    """Let the deaths of a group count no longer: a person has dealt with it."""
    with engine.begin() as connection:
        connection.execute(update(group_runs).where(runs_of(GROUP, name)).values(died=0))


def runs_of(kind: str, name: str) -> ColumnElement[bool]:
    """Return the SQL condition of a process's runs, by kind and name."""
    return (group_runs.c.kind == kind) & (group_runs.c.group_name == name)


def _change_run(engine: Engine, run_id: int, **values: Any) -> None:
    own_row = (group_runs.c.run_id == run_id) & group_runs.c.ended_at.is_(None)
    with engine.begin() as connection:
        connection.execute(update(group_runs).where(own_row).values(values))

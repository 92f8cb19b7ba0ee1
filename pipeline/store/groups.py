"""Cluster groups: their desired state, and the processes that the controller started for them."""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, get_args

from sqlalchemy import ColumnElement, Connection, Engine, Select, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from pipeline.errors import Refused
from pipeline.health.condition import judge_group
from pipeline.health.liveness import HEARTBEAT_SECONDS, START_LIMIT_SECONDS
from pipeline.names import is_group_name
from pipeline.placement.capacity import MAX_GAMES, PRIORITIES, Desired
from pipeline.store import audit
from pipeline.store.database.checked_table import MAX_NUMBER
from pipeline.store.database.states import BACKENDS
from pipeline.store.database.tables import (
    drivers,
    games,
    group_runs,
    groups,
    leases,
    operation_targets,
    operations,
    waiting_evacuations,
)
from pipeline.store.games import assign_waiting
from pipeline.store.processes.leases import Process, store_now
from pipeline.store.processes.liveness import RUN_COLUMNS, Run, drivers_in

DESIRED: Final[tuple[Desired, ...]] = get_args(Desired)
"""`drained`: it runs, and gets no more games."""

RELEASED: Final = "turnout does not run it: the group has no backend"
"""How a run ends that the controller lets go: its driver runs on, and is a person's."""


@dataclass(frozen=True, slots=True)
class Group:
    """The desired state of a cluster group."""

    name: str
    backend: str = "none"
    desired: str = "running"
    capacity_cores: float | None = None  # None: not limited
    priority: str = "normal"  # the games it is for
    spark_master: str | None = None  # None: the setting's
    version: int = 1

    @property
    def kind(self) -> str:
        """What the controller runs for it: see `pipeline.control.supervision.duties.Duty`."""
        return "group"


class RunsAs(Protocol):
    """What a run is of: a `Group`, or another duty."""

    @property
    def kind(self) -> str:
        """Return `group` or `maintenance`."""

    @property
    def name(self) -> str:
        """Return which one of its kind."""

    @property
    def backend(self) -> str:
        """Return what starts it."""


@dataclass(frozen=True, slots=True)
class GroupDriver:
    """Who holds a group's lease."""

    process: Process
    run_id: int | None  # the run that a controller started it for, or adopted it as; None: no controller knows it
    since: float  # by the store's clock
    state: str | None  # as this very process last reported; None: it has not reported yet


_GROUP: Final = tuple(groups.c[name] for name in Group.__slots__)


def read_groups(engine: Engine) -> dict[str, Group]:
    """Return every group by its name."""
    with engine.connect() as connection:
        return groups_in(connection)


def groups_in(connection: Connection) -> dict[str, Group]:
    """Return the same within a transaction."""
    return {row.name: Group(*row) for row in connection.execute(select(*_GROUP))}


def create(
    engine: Engine,
    group: Group,
    actor: str,
    reason: str,
    max_games: int = MAX_GAMES,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
) -> Group:
    """Register a group; waiting games may go there, up to a limit.

    Raises:
        Refused: its name or settings are invalid, or the name is taken.
    """
    require_possible(group)
    try:
        with engine.begin() as connection:
            act = _act(group, actor, "create group", reason, _values(group))
            audit.begin(connection, act)
            connection.execute(insert(groups).values(created_at=time.time(), name=group.name, **_values(group)))
            audit.end(connection, act, "succeeded")
    except IntegrityError:
        raise taken(group.name) from None
    assign_waiting(engine, max_games, heartbeat_seconds)
    return group


def taken(name: str) -> Refused:
    """Return why a group of this name cannot be created."""
    return Refused(f"Group {name} already exists. Change it instead.")


def overtaken(seen: Group) -> Refused:
    """Return why a group changed meanwhile cannot be changed."""
    return Refused(f"Group {seen.name} was changed after you opened it. Review it and try again.")


def require_possible(group: Group) -> None:
    """Check that a group's name and settings are valid.

    Raises:
        Refused: one of them is invalid.
    """
    if not is_group_name(group.name):
        raise Refused(
            f"{group.name!r} cannot name a cluster group: use 1 to 40 of a-z, 0-9 and '-', not starting with '-'."
        )
    require_sense(group)


def require_sense(group: Group) -> None:
    """Check that a group's settings are valid.

    Raises:
        Refused: one of them is invalid.
    """
    cores = group.capacity_cores
    is_known = group.backend in BACKENDS and group.desired in DESIRED and group.priority in PRIORITIES
    if not is_known or not (cores is None or 0 < cores <= MAX_NUMBER):
        raise Refused(
            f"Group {group.name} has invalid settings. Backends: {', '.join(BACKENDS)}. States: {', '.join(DESIRED)}. "
            f"Priorities: {', '.join(PRIORITIES)}. The capacity is a number of cores above 0."
        )
    if group.backend == "databricks" and group.spark_master is not None:
        raise Refused(f"Group {group.name} runs in the session of its job's cluster: it can have no Spark master.")


def change(engine: Engine, seen: Group, changed: Group, actor: str, reason: str) -> Group:
    """Change a group's settings, if they are still as seen.

    Raises:
        Refused: the settings are invalid, or another writer has changed the group since it was seen.
    """
    require_sense(changed)
    with engine.begin() as connection:
        audit.lock_log(connection)
        act = _act(seen, actor, "change group", reason, _values(changed))
        as_seen = (groups.c.name == seen.name) & (groups.c.version == seen.version)
        values = {**_values(changed), "version": seen.version + 1}
        audit.begin(connection, act)
        if not connection.execute(update(groups).where(as_seen).values(values)).rowcount:
            raise overtaken(seen)
        audit.end(connection, act, "succeeded")
        row = connection.execute(select(*_GROUP).where(groups.c.name == seen.name)).one()
    return Group(*row)


def remove(engine: Engine, seen: Group, actor: str, reason: str, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
    """Forget a group that carries nothing, with its driver's last words and its runs, if it is still what was seen.

    Raises:
        Refused: it may get games, has some, has a process, an open operation is about it, or it was changed since it
            was seen.
    """
    name = seen.name
    if seen.desired == "running":
        raise Refused(f"Group {name} is running and may get games. Run `turnout groups drain {name}` first.")
    with engine.begin() as connection:
        audit.lock_log(connection)  # so nobody asks for an operation meanwhile
        act = _act(seen, actor, "remove group", reason, _values(seen))
        audit.begin(connection, act)
        as_seen = (groups.c.name == name) & (groups.c.version == seen.version)
        if not connection.execute(delete(groups).where(as_seen)).rowcount:
            raise Refused(f"Group {name} was changed after you opened it. Review it and try again.")
        _require_unused(connection, name, heartbeat_seconds)
        connection.execute(delete(group_runs).where(_runs_of("group", name)))
        connection.execute(delete(waiting_evacuations).where(waiting_evacuations.c.group_name == name))
        connection.execute(delete(drivers).where(drivers.c.kind == "group", drivers.c.name == name))
        connection.execute(delete(leases).where(leases.c.kind == "group", leases.c.name == name))
        audit.end(connection, act, "succeeded")


def _require_unused(connection: Connection, name: str, heartbeat_seconds: float) -> None:
    carried = connection.scalar(select(func.count()).select_from(games).where(games.c.group_name == name))
    if carried:
        raise Refused(f"Group {name} still has {carried} games. Move them with `turnout groups drain {name}` first.")
    is_open = _runs_of("group", name) & group_runs.c.ended_at.is_(None)
    is_held = (leases.c.kind == "group") & (leases.c.name == name) & (leases.c.expires_at > store_now())
    runs = connection.scalar(select(group_runs.c.run_id).where(is_open).limit(1))
    if runs is not None or connection.scalar(select(leases.c.token).where(is_held)) is not None:
        raise Refused(f"Group {name} still has a process. Stop it with `turnout groups stop {name}`, or on its host.")
    # A move names the groups it goes to in its parameters: they are no targets, since many may go to one.
    about = select(operation_targets.c.operation_id).where(operation_targets.c.target == f"group:{name}")
    moving = select(operations.c.operation_id).where(
        operations.c.operation_id.in_(select(operation_targets.c.operation_id)),
        operations.c.parameters.contains(json.dumps(name), autoescape=True),
    )
    operation_id = connection.scalar(about) or connection.scalar(moving.limit(1))
    if operation_id is not None:
        raise Refused(
            f"Group {name} is part of operation {operation_id[:8]}, which is open. Wait for it, or cancel it with "
            f"`turnout ops cancel {operation_id[:8]}`."
        )
    condition = judge_group(drivers_in(connection, heartbeat_seconds), name)  # without leases only this tells
    if condition.may_live:
        liveness = condition.liveness
        how = "lives" if liveness.is_live else f"may live: it {(liveness.reason or '').rstrip('.')}"
        raise Refused(
            f"Group {name} still has a driver that {how}. Stop it on its host; if it was killed, retry later."
        )


def set_desired_state(connection: Connection, name: str, version: int, desired: str) -> None:
    """Bring a group into a desired state, if it is still what was seen.

    What this very call has done before counts as done, so it can be repeated after a crash.

    Raises:
        Refused: another writer has changed the group since.
    """
    as_seen = (groups.c.name == name) & (groups.c.version == version)
    if connection.execute(update(groups).where(as_seen).values(desired=desired, version=version + 1)).rowcount:
        return
    now = connection.execute(select(groups.c.version, groups.c.desired).where(groups.c.name == name)).first()
    if now is None or tuple(now) != (version + 1, desired):
        raise Refused(f"Nothing was done: group {name} was changed meanwhile. Review it and try again.")


def active_drivers(engine: Engine, kind: str = "group") -> dict[str, GroupDriver]:
    """Return who drives each group, or what else has this kind, under a lease that runs."""
    reported = (drivers.c.kind == kind) & (drivers.c.name == leases.c.name) & (drivers.c.pid == leases.c.pid)
    process = (leases.c[name] for name in Process.__slots__)
    query = (
        select(leases.c.name, *process, leases.c.run_id, leases.c.since, drivers.c.state)
        .select_from(leases.outerjoin(drivers, reported))
        .where(leases.c.kind == kind, leases.c.expires_at > store_now())
    )
    with engine.connect() as connection:
        return {name: GroupDriver(Process(*rest[:4]), *rest[4:]) for name, *rest in connection.execute(query)}


def open_runs(engine: Engine, kind: str = "group") -> dict[str, Run]:
    """Return the run of each group, or of what else has this kind, that has not ended."""
    with engine.connect() as connection:
        is_open = (group_runs.c.kind == kind) & group_runs.c.ended_at.is_(None)
        rows = connection.execute(select(*RUN_COLUMNS).where(is_open).order_by(group_runs.c.run_id))
        return {row.group_name: Run(*row) for row in rows}


def ended_runs(engine: Engine, since: float, kind: str = "group") -> dict[str, list[Run]]:
    """Return the runs of each group, or of what else has this kind, that ended after `since`, the newest first."""
    has_ended = (group_runs.c.kind == kind) & (group_runs.c.ended_at > since)
    query = select(*RUN_COLUMNS).where(has_ended).order_by(group_runs.c.run_id.desc())
    runs_by_group: dict[str, list[Run]] = {}
    with engine.connect() as connection:
        for row in connection.execute(query):
            runs_by_group.setdefault(row.group_name, []).append(Run(*row))
    return runs_by_group


def begin_run(
    engine: Engine,
    name: str,
    kind: str = "group",
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
    """Write by what the driver is found that has the lease, as an open run, or as a new run where it has none.

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
        connection.execute(update(groups).where(groups.c.name == duty.name).values(name=duty.name))
        if connection.scalar(_open_run(duty.kind, duty.name)) is not None:
            return None
        is_released = _runs_of(duty.kind, duty.name) & (group_runs.c.exit_message == RELEASED)
        values = {"ended_at": None, "exit_message": None, "reference": reference, "backend": duty.backend}
        changed = update(group_runs).where(is_released, group_runs.c.run_id == held).values(values)
        run_id: int | None = connection.scalar(changed.returning(group_runs.c.run_id))
        return run_id


def _open_run(kind: str, name: str) -> Select[tuple[int]]:
    return select(group_runs.c.run_id).where(_runs_of(kind, name), group_runs.c.ended_at.is_(None))


def _begin_run(
    engine: Engine, name: str, kind: str, reference: str | None, backend: str, start_seconds: float
) -> int | None:
    with engine.begin() as connection:
        # The group's row is held first, so of two controllers the second sees what the first has written.
        connection.execute(update(groups).where(groups.c.name == name).values(name=name))
        if connection.scalar(_open_run(kind, name)) is not None:
            return None
        row = {
            "kind": kind, "group_name": name, "reference": reference, "started_at": store_now(), "died": 0,
            "start_seconds": start_seconds, "backend": backend, "token": secrets.token_hex(16),
        }  # fmt: skip
        run_id: int = connection.execute(insert(group_runs).values(row).returning(group_runs.c.run_id)).scalar_one()
        return run_id


def record_process(engine: Engine, run_id: int, reference: str, *, begins_now: bool = False) -> None:
    """Keep by what a backend finds the process of a run again; `begins_now` where earlier tries had no answer."""
    values = {"started_at": store_now()} if begins_now else {}
    _change_run(engine, run_id, reference=reference, **values)


def submit_stop(engine: Engine, run_id: int) -> None:
    """Record that the controller has asked a run to end."""
    own_row = (group_runs.c.run_id == run_id) & group_runs.c.stop_requested_at.is_(None)
    with engine.begin() as connection:
        connection.execute(update(group_runs).where(own_row).values(stop_requested_at=store_now()))


def is_wanted(engine: Engine, kind: str, name: str, run_id: int) -> bool:
    """Tell a driver whether its run goes on: it is known, has not been given up, and nobody has asked it to end.

    A number alone may be another run's, where the store was restored from a copy.
    """
    goes_on = group_runs.c.ended_at.is_(None) | (group_runs.c.exit_message == RELEASED)
    own_row = _runs_of(kind, name) & (group_runs.c.run_id == run_id) & goes_on
    query = select(group_runs.c.run_id).where(own_row, group_runs.c.stop_requested_at.is_(None))
    with engine.connect() as connection:
        return connection.scalar(query) is not None


def note_ending(engine: Engine, run_id: int, why: str) -> None:
    """Write why a run will end, before it is made to."""
    _change_run(engine, run_id, exit_message=why)


def end_run(
    engine: Engine, run_id: int, exit_message: str, *, died: bool, active_games: Sequence[str] | None = None
) -> None:
    """Write how a run has ended, and which games it was at work on where it died of itself."""
    games = None if active_games is None else json.dumps(list(active_games))
    _change_run(engine, run_id, ended_at=store_now(), died=int(died), exit_message=exit_message, active_games=games)


def reset_restart_budget(engine: Engine, name: str) -> None:
    """Let the deaths of a group count no longer: a person has dealt with it."""
    with engine.begin() as connection:
        connection.execute(update(group_runs).where(_runs_of("group", name)).values(died=0))


def _runs_of(kind: str, name: str) -> ColumnElement[bool]:
    return (group_runs.c.kind == kind) & (group_runs.c.group_name == name)


def _change_run(engine: Engine, run_id: int, **values: Any) -> None:
    own_row = (group_runs.c.run_id == run_id) & group_runs.c.ended_at.is_(None)
    with engine.begin() as connection:
        connection.execute(update(group_runs).where(own_row).values(values))


def _values(group: Group) -> dict[str, Any]:
    return {name: getattr(group, name) for name in Group.__slots__ if name not in {"name", "version"}}


def _act(group: Group, actor: str, action: str, reason: str, detail: Mapping[str, Any]) -> audit.Act:
    return audit.Act(actor, action, (f"group:{group.name}",), None, {**detail, "reason": reason})

"""Cluster groups: their desired state."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Engine, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from listeners.process_kinds import GROUP
from pipeline.base.errors import Refused
from pipeline.base.names import is_group_name
from pipeline.store import audit
from pipeline.store.backends import BACKENDS, backend_kind
from pipeline.store.database.checked_table import MAX_NUMBER
from pipeline.store.database.states import DESIRED, PRIORITIES
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
from pipeline.store.games import Place, assign_waiting
from pipeline.store.processes.leases import store_now
from pipeline.store.processes.runs import runs_of


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
        return GROUP


HowAlive = Callable[[Connection, str], str | None]
"""Returns how a group's driver lives or may live, as a predicate; None where none can."""

_GROUP: Final = tuple(groups.c[name] for name in Group.__slots__)


def read_groups(engine: Engine) -> dict[str, Group]:
    """Return every group by its name."""
    with engine.connect() as connection:
        return groups_in(connection)


def groups_in(connection: Connection) -> dict[str, Group]:
    """Return the same within a transaction."""
    return {row.name: Group(*row) for row in connection.execute(select(*_GROUP))}


def create(engine: Engine, group: Group, actor: str, reason: str, place: Place) -> Group:
    """Register a group; waiting games may go there, as `place` chooses.

    Raises:
        Refused: its name or settings are invalid, or the name is taken.
    """
    validate(group)
    try:
        with engine.begin() as connection:
            act = _act(group, actor, "create group", reason, _values(group))
            audit.begin(connection, act)
            connection.execute(insert(groups).values(created_at=time.time(), name=group.name, **_values(group)))
            audit.end(connection, act, "succeeded")
    except IntegrityError:
        raise taken(group.name) from None
    assign_waiting(engine, place)
    return group


def taken(name: str) -> Refused:
    """Return why a group of this name cannot be created."""
    return Refused(f"Group {name} already exists. Change it instead.")


def overtaken(seen: Group) -> Refused:
    """Return why a group changed meanwhile cannot be changed."""
    return Refused(f"Group {seen.name} was changed after you opened it. Review it and try again.")


def validate(group: Group) -> None:
    """Check that a group's name and settings are valid.

    Raises:
        Refused: one of them is invalid.
    """
    if not is_group_name(group.name):
        raise Refused(
            f"{group.name!r} cannot name a cluster group: use 1 to 40 of a-z, 0-9 and '-', not starting with '-'."
        )
    validate_settings(group)


def validate_settings(group: Group) -> None:
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
    if group.spark_master is not None and not backend_kind(group.backend).can_have_master:
        raise Refused(f"Group {group.name} runs in the session of its job's cluster: it can have no Spark master.")


def change(engine: Engine, seen: Group, changed: Group, actor: str, reason: str) -> Group:
    """Change a group's settings, if they are still as seen.

    Raises:
        Refused: the settings are invalid, or another writer has changed the group since it was seen.
    """
    validate_settings(changed)
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


def remove(engine: Engine, seen: Group, actor: str, reason: str, how_alive: HowAlive) -> None:
    """Forget a group that carries nothing, with its driver's last words and its runs, if it is still what was seen.

    `how_alive` judges within the transaction that removes it.

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
        _require_unused(connection, name, how_alive)
        connection.execute(delete(group_runs).where(runs_of(GROUP, name)))
        connection.execute(delete(waiting_evacuations).where(waiting_evacuations.c.group_name == name))
        connection.execute(delete(drivers).where(drivers.c.kind == GROUP, drivers.c.name == name))
        connection.execute(delete(leases).where(leases.c.kind == GROUP, leases.c.name == name))
        audit.end(connection, act, "succeeded")


def _require_unused(connection: Connection, name: str, how_alive: HowAlive) -> None:
    carried = connection.scalar(select(func.count()).select_from(games).where(games.c.group_name == name))
    if carried:
        raise Refused(f"Group {name} still has {carried} games. Move them with `turnout groups drain {name}` first.")
    is_open = runs_of(GROUP, name) & group_runs.c.ended_at.is_(None)
    is_held = (leases.c.kind == GROUP) & (leases.c.name == name) & (leases.c.expires_at > store_now())
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
    how = how_alive(connection, name)  # without leases only this tells
    if how is not None:
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


def _values(group: Group) -> dict[str, Any]:
    return {name: getattr(group, name) for name in Group.__slots__ if name not in {"name", "version"}}


def _act(group: Group, actor: str, action: str, reason: str, detail: Mapping[str, Any]) -> audit.Act:
    return audit.Act(actor, action, (f"group:{group.name}",), None, {**detail, "reason": reason})

"""Reads what placement needs from the control store: what games cost, what groups may carry. Never writes."""

from typing import Final

from sqlalchemy import Connection, Engine, select

from pipeline.placement.capacity import MAX_GAMES, PRIORITIES, GroupLoad, Load, Loads, Priority, tallied
from pipeline.store.drivers import DRIVER_COLUMNS, read_driver
from pipeline.store.tables import drivers, games, groups, streams

_MEASURED: Final = ("rows_per_second", "bytes_per_second", "commits_per_second")


def read_loads(engine: Engine, now: float, max_games: int = MAX_GAMES) -> Loads:
    """Return every group, and every game that is not retired; `now` is Unix seconds by this machine's clock."""
    with engine.connect() as connection:
        return loads_in(connection, now, max_games)


def loads_in(connection: Connection, now: float, max_games: int) -> Loads:
    """Return the same within a transaction."""
    measured = (streams.c[name] for name in (*_MEASURED, "backlog_age_seconds", "lane"))
    query = select(games.c.game_key, games.c.group_name, games.c.priority, *measured).select_from(
        games.outerjoin(streams, streams.c.game_key == games.c.game_key)
    )
    loads = []
    for key, group, priority, *rates, lag, lane in connection.execute(query.where(games.c.retired_at.is_(None))):
        # A stream that catches up goes as fast as it can, one that is parked not at all: neither shows what it costs
        # when it runs. What a driver reported before it died is still the best there is.
        rows, size, commits = rates if lane == "RUN" else (None, None, None)
        loads.append((key, group, Load(rows, size, commits, lag, _priority(priority))))
    return tallied(loads, _groups(connection, now), max_games)


def _groups(connection: Connection, now: float) -> list[GroupLoad]:
    theirs = (drivers.c.kind == "group") & (drivers.c.name == groups.c.name)
    wanted = [groups.c[name] for name in ("name", "desired", "capacity_cores", "priority")]
    columns = [drivers.c[column] for column in DRIVER_COLUMNS]
    loads = []
    for name, desired, capacity, priority, *driver in connection.execute(
        select(*wanted, *columns).select_from(groups.outerjoin(drivers, theirs))
    ):
        row = dict(zip(DRIVER_COLUMNS, driver, strict=True))
        silence = None if row["kind"] is None else read_driver(row).silence(now)
        alive = None if row["kind"] is None else silence is None
        cores = capacity if isinstance(capacity, (int, float)) and capacity > 0 else None
        loads.append(GroupLoad(name, desired, alive, silence, cores, _priority(priority)))
    return loads


def _priority(text: str) -> Priority:
    """Return a priority; a row that a hand has edited to nonsense must not keep the others from being placed."""
    return text if text in PRIORITIES else "normal"

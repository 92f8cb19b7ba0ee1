"""Reads what placement needs from the control store: what games cost, what groups may carry. Never writes."""

from typing import Final

from sqlalchemy import Connection, Engine, select

from listeners.sample import Lane
from pipeline.health.facts.liveness import drivers_in
from pipeline.health.verdicts.condition import Conditions, judge_groups
from pipeline.health.verdicts.placement.capacity import MAX_GAMES, GroupLoad, Load, Loads, tallied
from pipeline.settings.tree import Metrics
from pipeline.store.database.tables import games, groups, streams

_MEASURED: Final = ("rows_per_second", "bytes_per_second", "commits_per_second")


def read_loads(
    engine: Engine,
    now: float | None = None,
    max_games: int = MAX_GAMES,
    metrics: Metrics = Metrics(),
    look: Conditions | None = None,
) -> Loads:
    """Return every group, and every game that is not retired; `now` is Unix seconds, by default the store's time.

    `max_games` is the setting placement.max_games_per_group. The groups are as they were judged in
    `look`, where that is given, else by the settings `metrics`.
    """
    with engine.connect() as connection:
        return loads_in(connection, now, max_games, metrics, look)


def loads_in(
    connection: Connection,
    now: float | None,
    max_games: int,
    metrics: Metrics = Metrics(),
    look: Conditions | None = None,
) -> Loads:
    """Return the same within a transaction."""
    measured = (streams.c[name] for name in (*_MEASURED, "backlog_age_seconds", "lane"))
    query = select(games.c.game_key, games.c.group_name, games.c.priority, *measured).select_from(
        games.outerjoin(streams, streams.c.game_key == games.c.game_key)
    )
    query = query.where(games.c.retired_at.is_(None))
    loads = []
    for key, group, priority, *rates, lag, lane in connection.execute(query):
        # A stream that catches up goes as fast as it can, one that is parked not at all: neither shows what it costs
        # when it runs. What a driver reported before it died is still the best there is.
        rows, size, commits = rates if lane == Lane.RUN else (None, None, None)
        loads.append((key, group, Load(rows, size, commits, lag, priority)))
    look = look or judge_groups(drivers_in(connection, metrics, now))
    return tallied(loads, _groups(connection, look), max_games)


def _groups(connection: Connection, look: Conditions) -> list[GroupLoad]:
    wanted = [groups.c[name] for name in ("name", "desired", "capacity_cores", "priority")]
    loads = []
    for name, desired, capacity, priority in connection.execute(select(*wanted).where(groups.c.name.in_(look.groups))):
        condition = look.groups[name]
        liveness, may_return = condition.liveness, condition.may_return
        alive = None if liveness.state == "not_started" else liveness.is_live
        loads.append(GroupLoad(name, desired, alive, liveness.silence, capacity, priority, may_return=may_return))
    return loads

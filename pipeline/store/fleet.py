"""Reads the control store for people: every game with a judged status, every driver, every registered schema.

Called by the dashboard and the command line; it never writes, and `judged` never reads a clock.
"""

import time
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine, RowMapping, func, select
from sqlalchemy.exc import SQLAlchemyError

from listeners.sample import STATUSES
from pipeline.errors import Refused
from pipeline.store.sources import newest_clock
from pipeline.store.tables import bronze_commits, drivers, games, groups, registrations, schemas, streams

HEARTBEAT_LIMIT_SECONDS: Final = 45.0
"""A driver not heard from for longer than this is silent: what it said about its streams no longer counts."""

TROUBLE: Final = frozenset(STATUSES[STATUSES.index("AT_RISK") :])
"""Statuses at which a person should look; UNKNOWN is one of them."""

_LATENCY_STARTS: Final = {
    "broker": "the time when the Kafka broker appended the record",
    "producer": "the producer's clock, as the topic has message.timestamp.type=CreateTime",
    "landing": "the time when the landing table's file was added",
}


@dataclass(frozen=True, slots=True)
class Driver:
    """A process as it last described itself; times are Unix seconds."""

    kind: str  # ingest | group
    name: str
    host: str
    pid: int
    started_at: float
    heartbeat_at: float
    state: str  # starting | running | failed | stopped
    error: str | None
    frontier_seq: int | None  # None is unknown

    def silence(self, now: float) -> str | None:
        """Say why nothing this driver told counts any more, or None when it is alive."""
        return silence(self.state, self.heartbeat_at, now)


@dataclass(frozen=True, slots=True)
class ReportedStream:
    """What a group's driver last told of a stream; None is unknown, times are Unix seconds."""

    group: str
    lane: str
    status: str
    status_since: float
    cursor_seq: int
    last_commit_at: float | None
    backlog_age_seconds: float | None
    rows_per_second: float | None
    latency_p95_seconds: float | None
    rows_total: int
    rejects_total: int
    last_error: str | None
    updated_at: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A status that may be shown, since when (None is unknown), and the reason when it is not the driver's own word."""

    status: str  # one of STATUSES
    since: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class GameRow:
    """One game: what is wanted of it, what was told of it, and what may be believed."""

    game_key: str
    game: str  # the exact name; it may hold anything, so show it as plain text only
    group: str | None
    generation: int
    last_seq: int
    discovered_at: float
    told: ReportedStream | None
    verdict: Verdict

    @property
    def in_trouble(self) -> bool:
        """Tell whether a person should look: at risk or worse, unknown included."""
        return self.verdict.status in TROUBLE

    @property
    def live(self) -> ReportedStream | None:
        """What was told, if it still describes the present: lag, rates and latency come only from here."""
        return self.told if self.verdict.reason is None else None


@dataclass(frozen=True, slots=True)
class Fleet:
    """The whole control store as a person sees it, read at one moment."""

    rows: tuple[GameRow, ...]  # worst first
    drivers: tuple[Driver, ...]  # ingest, then the groups
    groups: tuple[str, ...]  # every group that exists, runs or carries a game
    registered_games: int
    newest_bronze_seq: int | None
    newest_bronze_at: float | None
    read_at: float  # Unix seconds
    source_clock: str | None = None  # whose time the source's records have; None: not known

    @property
    def latency_start(self) -> str:
        """What latency is measured from, in words."""
        return _LATENCY_STARTS.get(self.source_clock or "", "a source time of an unknown clock")

    def row(self, game_key: str) -> GameRow | None:
        """Return the row of one game, or None when the store does not know it."""
        return next((row for row in self.rows if row.game_key == game_key), None)

    def driver(self, kind: str, name: str) -> Driver | None:
        """Return one driver, or None when none of that name ever reported."""
        return next((driver for driver in self.drivers if (driver.kind, driver.name) == (kind, name)), None)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One schema a game may use, in the order of registration."""

    game: str
    version: int
    schema_id: int
    format: str
    message: str
    fingerprint: str
    created_at: float


def silence(state: str | None, heartbeat_at: float | None, now: float) -> str | None:
    """Say why nothing can be expected of a driver that last told this, as the end of a sentence; None when it is alive.

    A state or heartbeat of None is of a driver that never told anything.
    """
    if state is None or heartbeat_at is None:
        return "its driver was never started"
    if state in {"failed", "stopped"}:
        return f"its driver {'has failed' if state == 'failed' else 'is stopped'}"
    quiet = now - heartbeat_at
    return f"its driver is silent for {quiet:.0f} s" if quiet > HEARTBEAT_LIMIT_SECONDS else None


def judged(
    group: str | None, told: ReportedStream | None, driver: Driver | None, now: float, retired_at: float | None = None
) -> Verdict:
    """Decide what may be shown of a game in a group, from the last words of its stream and its group's driver.

    The driver's word counts only while the driver is alive and still carries the game. What is not known is never well.
    """
    if retired_at is not None:  # somebody wanted it so, and nothing is missing
        return Verdict("PAUSED", retired_at, "it is retired: its rows stay in bronze, and no group carries it")
    if group is None:
        return Verdict("MISSING", None, "no cluster group carries this game")
    if driver is None:
        return Verdict("UNKNOWN", None, f"group {group} has no driver yet: it was never started")
    silence = driver.silence(now)
    if silence is not None:
        last = f"; last report: {told.status}" if told is not None else ""
        return Verdict("UNKNOWN", driver.heartbeat_at, f"{silence}{last}")
    if told is None:
        return Verdict("STARTING", None, f"group {group} has not reported this game yet")
    if told.group != group:
        return Verdict("STARTING", None, f"assigned to group {group}, last reported by group {told.group}")
    quiet = now - told.updated_at
    if quiet > HEARTBEAT_LIMIT_SECONDS:
        reason = (
            f"group {group} beats, but reported nothing about this game for {quiet:.0f} s; last report: {told.status}"
        )
        return Verdict("UNKNOWN", told.updated_at, reason)
    if told.status not in STATUSES:
        return Verdict("UNKNOWN", told.status_since, "its driver reported a status this version does not know")
    return Verdict(told.status, told.status_since, None)


def read_fleet(engine: Engine, now: float | None = None) -> Fleet:
    """Read every game, driver and group; `now` is Unix seconds, by default this moment.

    Raises:
        Refused: the control store cannot be read.
    """
    moment = time.time() if now is None else now
    try:
        with engine.connect() as connection:
            return _read(connection, moment)
    except SQLAlchemyError as error:
        raise _unreadable(error) from error


def group_drivers(engine: Engine) -> dict[str, Driver]:
    """Return the driver of each group as it last told, by the group's name; a group without one is missing."""
    with engine.connect() as connection:
        rows = connection.execute(select(drivers).where(drivers.c.kind == "group")).mappings()
        return {row["name"]: _driver(row) for row in rows}


def read_schemas(engine: Engine, game_key: str) -> tuple[SchemaVersion, ...]:
    """Read the schemas registered for a game, oldest first; empty when the game has none.

    Raises:
        Refused: the control store cannot be read.
    """
    query = (
        select(registrations, schemas.c.format, schemas.c.message, schemas.c.fingerprint)
        .join(schemas, schemas.c.schema_id == registrations.c.schema_id)
        .where(registrations.c.game_key == game_key)
        .order_by(registrations.c.version)
    )
    try:
        with engine.connect() as connection:
            return tuple(
                SchemaVersion(
                    game=row["game"],
                    version=row["version"],
                    schema_id=row["schema_id"],
                    format=row["format"],
                    message=row["message"],
                    fingerprint=row["fingerprint"],
                    created_at=row["created_at"],
                )
                for row in connection.execute(query).mappings()
            )
    except SQLAlchemyError as error:
        raise _unreadable(error) from error


def _read(connection: Connection, now: float) -> Fleet:
    found = tuple(_driver(row) for row in connection.execute(select(drivers)).mappings())
    by_group = {driver.name: driver for driver in found if driver.kind == "group"}
    joined = select(games, *(column.label(f"told_{column.name}") for column in streams.c)).outerjoin(
        streams, streams.c.game_key == games.c.game_key
    )
    rows = [_game(row, by_group, now) for row in connection.execute(joined).mappings()]
    newest = connection.execute(
        select(bronze_commits.c.seq, bronze_commits.c.committed_at).order_by(bronze_commits.c.seq.desc()).limit(1)
    ).first()
    registered = connection.execute(select(func.count(registrations.c.game_key.distinct()))).scalar_one()
    names = set(connection.execute(select(groups.c.name)).scalars()) | by_group.keys()
    names |= {row.group for row in rows if row.group is not None}
    return Fleet(
        rows=tuple(sorted(rows, key=_worst_first)),
        drivers=tuple(sorted(found, key=lambda driver: (driver.kind != "ingest", driver.name))),
        groups=tuple(sorted(names)),
        registered_games=registered,
        newest_bronze_seq=newest.seq if newest is not None else None,
        newest_bronze_at=newest.committed_at if newest is not None else None,
        read_at=now,
        source_clock=newest_clock(connection),
    )


def _worst_first(row: GameRow) -> tuple[int, float, str]:
    """Order by status, then by lag (unknown before known), then by key so that equals keep their places."""
    lag = row.live.backlog_age_seconds if row.live is not None else None
    return (-STATUSES.index(row.verdict.status), -lag if lag is not None else float("-inf"), row.game_key)


def _driver(row: RowMapping) -> Driver:
    return Driver(
        kind=row["kind"],
        name=row["name"],
        host=row["host"],
        pid=row["pid"],
        started_at=row["started_at"],
        heartbeat_at=row["heartbeat_at"],
        state=row["state"],
        error=row["error"],
        frontier_seq=row["frontier_seq"],
    )


def _game(row: RowMapping, by_group: dict[str, Driver], now: float) -> GameRow:
    group = row["group_name"]
    told = _told(row) if row["told_game_key"] is not None else None
    return GameRow(
        game_key=row["game_key"],
        game=row["game"],
        group=group,
        generation=row["generation"],
        last_seq=row["last_seq"],
        discovered_at=row["discovered_at"],
        told=told,
        verdict=judged(group, told, by_group.get(group or ""), now, row["retired_at"]),
    )


def _told(row: RowMapping) -> ReportedStream:
    return ReportedStream(
        group=row["told_group_name"],
        lane=row["told_lane"],
        status=row["told_status"],
        status_since=row["told_status_since"],
        cursor_seq=row["told_cursor_seq"],
        last_commit_at=row["told_last_commit_at"],
        backlog_age_seconds=row["told_backlog_age_seconds"],
        rows_per_second=row["told_rows_per_second"],
        latency_p95_seconds=row["told_latency_p95_seconds"],
        rows_total=row["told_rows_total"],
        rejects_total=row["told_rejects_total"],
        last_error=row["told_last_error"],
        updated_at=row["told_updated_at"],
    )


def _unreadable(error: SQLAlchemyError) -> Refused:
    reason = str(getattr(error, "orig", None) or error).splitlines()[0]
    return Refused(f"The control store cannot be read: {reason}. Check the setting store.url and that the store is up.")

"""Reads from the control store the fleet with its judgement, as people see it; changes nothing."""

from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection, Engine, RowMapping, func, select

from listeners.process_kinds import GROUP
from listeners.sample import StreamState
from pipeline.health.facts.liveness import drivers_in
from pipeline.health.kinds.registry import registered
from pipeline.health.verdicts.judgement import Judgement, StreamVerdict, judge_fleet
from pipeline.health.verdicts.processes import DriverState, FleetFacts
from pipeline.health.verdicts.reported import AssignedGame
from pipeline.health.verdicts.silence import is_silent
from pipeline.health.verdicts.through import bronze_time, game_time, record_time
from pipeline.health.verdicts.upkeep import UNKNOWN, UpkeepFacts, limit_seconds
from pipeline.settings.tree import Settings
from pipeline.store.database.engine import reading, refused_write
from pipeline.store.database.tables import (
    bronze_commits,
    games,
    registrations,
    streams,
)
from pipeline.store.operations import read_open
from pipeline.store.processes.drivers import REPORTED, reported_in
from pipeline.store.reports import backlog_in, ingested_since, newest_rounds
from pipeline.store.rows import Driver, ThroughReading, Withdrawal
from pipeline.store.source_gaps import gaps_in
from pipeline.store.sources import newest_clock
from pipeline.store.through import through_in

_LATENCY_STARTS: Final = {
    "broker": "the time when the Kafka broker appended the record",
    "producer": "the producer's clock, as the topic has message.timestamp.type=CreateTime",
    "landing": "the time when the landing table's file was added",
}


@dataclass(frozen=True, slots=True)
class GameRow:
    """One game: its desired state, what was reported of it, and what may be believed."""

    game_key: str
    game: str  # the exact name; it may hold anything, so show it as plain text only
    group: str | None
    generation: int
    last_seq: int
    discovered_at: float
    reported: StreamState | None
    verdict: StreamVerdict
    lag_seconds: float | None = None  # age of the oldest row that its table may lack, wherever it waits
    through_at: float | None = None  # its table has all that the source had by then; None: unknown
    record_after: float | None = None  # its source got the newest record after that; None: unknown
    is_retired: bool = False

    @property
    def in_trouble(self) -> bool:
        """Return whether a person should look: at risk or worse, unknown included."""
        return self.verdict.status.is_trouble

    @property
    def is_own_trouble(self) -> bool:
        """Return whether it is this stream's trouble, and not that of ingest or of the store, which is named once."""
        return self.in_trouble and not self.verdict.waits_for_ingest and not self.verdict.is_unheard

    @property
    def live(self) -> StreamState | None:
        """What was reported, if it still describes the present: rates and latency come only from here."""
        return _live(self.reported, self.verdict)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The whole control store as a person sees it, read at one moment."""

    judgement: Judgement
    rows: tuple[GameRow, ...]  # worst first
    drivers: tuple[Driver, ...]  # in the order of their kinds, then by name
    groups: tuple[str, ...]  # every group that exists, runs or carries a game
    registered_games: int
    newest_bronze_seq: int | None
    newest_bronze_at: float | None
    read_at: float  # Unix seconds by the store's clock
    upkeep: UpkeepFacts = UNKNOWN
    source_clock: str | None = None  # whose time the source's records have; None: not known
    through_at: float | None = None  # bronze has all that the source had by then; None: unknown
    withdrawals: tuple[Withdrawal, ...] = ()  # incidents that took such times back, the newest last
    begun_at: float | None = None  # when its first group was made or its first game arrived; None: neither was

    @property
    def latency_start(self) -> str:
        """What latency is measured from, in words."""
        return _LATENCY_STARTS.get(self.source_clock or "", "a source time of an unknown clock")

    @property
    def stranded_games(self) -> tuple[tuple[str, str], ...]:
        """Each game whose group is down though it should run, with that group; a retired game has none."""
        down = {name for name, is_down in self.judgement.wanted_groups.items() if is_down}
        return tuple((row.game_key, row.group) for row in self.rows if row.group is not None and row.group in down)

    @property
    def through_times(self) -> dict[str, float]:
        """The time through which each game is complete, by key, without those of which none is known."""
        return {row.game_key: row.through_at for row in self.rows if row.through_at is not None}

    def row(self, game_key: str) -> GameRow | None:
        """Return the row of one game, or None when the store does not know it."""
        return next((row for row in self.rows if row.game_key == game_key), None)

    def driver(self, kind: str, name: str) -> Driver | None:
        """Return one driver, or None when none of that name ever reported."""
        return next((driver for driver in self.drivers if (driver.kind, driver.name) == (kind, name)), None)

    def drivers_of(self, kind: str) -> tuple[Driver, ...]:
        """Return the drivers of one kind that ever reported, by name."""
        return tuple(driver for driver in self.drivers if driver.kind == kind)

    def state(self, kind: str, name: str) -> DriverState | None:
        """Return the judged state of one driver, or None where none should run and none ever did."""
        return self.judgement.driver(kind, name)


def read_fleet(
    engine: Engine,
    now: float | None = None,
    settings: Settings = Settings(),
) -> Fleet:
    """Read every game, driver and group, and judge them; `now` is Unix seconds, by default the store's time.

    By the settings `metrics` missed heartbeats are counted, by `maintenance` it is known whether a round is overdue.

    Raises:
        Refused: the control store cannot be read.
    """
    with reading(), engine.connect() as connection:
        return _read(connection, now, settings)


def _read(connection: Connection, now: float | None, settings: Settings) -> Fleet:
    through = through_in(connection)  # before the games: their last seqs are no older
    known = drivers_in(connection, settings.metrics, now)
    backlog = backlog_in(connection)
    joined = games.outerjoin(streams, streams.c.game_key == games.c.game_key)
    rows = connection.execute(select(games, *REPORTED).select_from(joined)).mappings().all()
    waiting, stuck = _open_operations(connection)
    newest = connection.execute(
        select(bronze_commits.c.seq, bronze_commits.c.committed_at).order_by(bronze_commits.c.seq.desc()).limit(1)
    ).first()
    facts = FleetFacts(
        now=known.now,
        drivers=known.drivers,
        leases=known.leases,
        runs=known.runs,
        ended=known.ended,
        lived=known.lived,
        groups=known.groups,
        games=[_assigned(row) for row in rows],
        waiting_operations=waiting,
        stuck_operations=stuck,
        newest_bronze_at=newest.committed_at if newest is not None else None,
        heartbeat_seconds=settings.metrics.heartbeat_seconds,
        source=backlog,
        gaps=gaps_in(connection) if backlog is not None and backlog.rows == 0 else (),
        upkeep=UpkeepFacts(limit_seconds(settings.maintenance), ingested_since(connection), *newest_rounds(connection)),
    )
    if is_silent(facts):
        facts = replace(facts, store_refusal=refused_write(connection))
    judgement = judge_fleet(facts, registered())
    order = {kind: place for place, kind in enumerate(judgement.kinds)}
    known_games = connection.execute(select(func.count(registrations.c.game_key.distinct()))).scalar_one()
    shown = [_game(row, game, judgement, through) for row, game in zip(rows, facts.games, strict=True)]
    return Fleet(
        judgement=judgement,
        rows=tuple(sorted(shown, key=_worst_first)),
        drivers=tuple(sorted(known.drivers.values(), key=lambda driver: (order[driver.kind], driver.name))),
        groups=tuple(each.name for each in judgement.of(GROUP)),
        registered_games=known_games,
        newest_bronze_seq=newest.seq if newest is not None else None,
        newest_bronze_at=facts.newest_bronze_at,
        read_at=known.now,
        upkeep=facts.upkeep,
        source_clock=newest_clock(connection),
        through_at=bronze_time(through, known.now),
        withdrawals=() if through is None else through.withdrawals,
        begun_at=min(
            (
                *(each.created_at for each in known.groups.values() if each.created_at is not None),
                *(row["discovered_at"] for row in rows),
            ),
            default=None,
        ),
    )


def _open_operations(connection: Connection) -> tuple[int, int]:
    """Count the open operations that wait for the controller, and those that need a person."""
    stuck = [each.is_stuck for each in read_open(connection)]
    return stuck.count(False), stuck.count(True)


def _worst_first(row: GameRow) -> tuple[int, float, str]:
    """Order by status, then by lag (unknown before known), then by key so that equals keep their places."""
    lag = row.lag_seconds
    return (-row.verdict.status.severity, -lag if lag is not None else float("-inf"), row.game_key)


def _assigned(row: RowMapping) -> AssignedGame:
    return AssignedGame(row["game_key"], row["group_name"], reported_in(row), row["retired_at"])


def _cursor(game: AssignedGame) -> int | None:
    return None if game.reported is None else game.reported.cursor_seq


def _game(row: RowMapping, game: AssignedGame, judgement: Judgement, through: ThroughReading | None) -> GameRow:
    verdict, last_seq, now = judgement.games[game.game_key], row["last_seq"], judgement.now
    live = _live(game.reported, verdict)
    return GameRow(
        game_key=game.game_key,
        game=row["game"],
        group=game.group,
        generation=row["generation"],
        last_seq=last_seq,
        discovered_at=row["discovered_at"],
        reported=game.reported,
        verdict=verdict,
        lag_seconds=None if live is None else judgement.source.lag(live.backlog_age_seconds),
        through_at=game_time(through, last_seq, _cursor(game), now),
        record_after=record_time(through, last_seq, now),
        is_retired=game.retired_at is not None,
    )


def _live(reported: StreamState | None, verdict: StreamVerdict) -> StreamState | None:
    return reported if verdict.reason is None or verdict.waits_for_ingest else None

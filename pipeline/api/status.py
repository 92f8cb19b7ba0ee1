"""The status of an environment at one moment, as `turnout status` prints it: each field is a key of its JSON.

`read` raises `Refused` where the control store cannot be read; the rest is pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from listeners.sample import StreamState
from pipeline.api import fleet as fleet_queries
from pipeline.api import incidents as incident_queries
from pipeline.api.environment import OpenEnvironment
from pipeline.api.incidents import CausesJudged, IncidentReport, IncidentsReport
from pipeline.health.facts.fleet import Fleet, GameRow
from pipeline.health.headlines.pages import of_fleet
from pipeline.health.headlines.standings import Situation
from pipeline.health.verdicts.judgement import Judgement, Problem
from pipeline.store.database.engine import reading
from pipeline.store.operations import Operation, read_open
from pipeline.store.rows import RoundFacts


@dataclass(frozen=True, slots=True)
class DriverReport:
    """A driver's judged state and its reason."""

    kind: str
    name: str
    state: str  # not_started | starting | running | stopped | failed | dead | unknown
    reason: str | None


@dataclass(frozen=True, slots=True)
class Latency:
    """A game's latency in seconds: of the last five minutes, and of the last one. None is unknown."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    p99_last_minute: float | None = None


@dataclass(frozen=True, slots=True)
class LatencySegments:
    """Where a game's latency comes from, in seconds. None is unknown."""

    upstream: float | None = None
    queue: float | None = None
    process: float | None = None
    commit: float | None = None


@dataclass(frozen=True, slots=True)
class GameStatus:
    """One game."""

    game_key: str
    game: str  # the exact name; it may hold anything
    group: str | None
    status: str
    cause: str | None
    lag_seconds: float | None
    latency_seconds: Latency
    segments_seconds: LatencySegments
    in_trouble: bool
    waits_for_ingest: bool
    is_unheard: bool
    through_time: float | None  # its table has all that the source had by then (Unix seconds); None: unknown

    @property
    def is_own_trouble(self) -> bool:
        """Whether it is this stream's trouble, and not that of ingest or of the store, which is named once."""
        return self.in_trouble and not self.waits_for_ingest and not self.is_unheard


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """How maintenance goes."""

    last_round: RoundFacts | None
    last_good_round_at: float | None
    overdue_seconds: float


@dataclass(frozen=True, slots=True)
class NamedSourceReport:
    """What waits in one of several sources. None is unknown."""

    name: str
    backlog_seconds: float | None
    backlog_rows: int | None
    reason: str | None  # why a number is unknown


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What waits in the source. None is unknown."""

    condition: str  # level | behind | late | unknown
    text: str
    backlog_seconds: float | None
    backlog_rows: int | None
    sources: tuple[NamedSourceReport, ...]  # of each of several
    through_time: float | None  # bronze has all that the source had by then (Unix seconds)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of the whole fleet, which the Fleet page and the alert TurnoutFleetUnhealthy show as well."""

    healthy: bool  # no problem; an incident, such as of refused rows, may be open
    headline: str  # the sentence of the Fleet page, with its clauses
    problems: tuple[Problem, ...]  # without those of single games


@dataclass(frozen=True, slots=True)
class StatusReport(Verdict):
    """The whole status."""

    at: float  # Unix seconds by the store's clock
    drivers: tuple[DriverReport, ...]
    maintenance: UpkeepReport
    games: tuple[GameStatus, ...]  # worst first
    needs_human: tuple[Operation, ...]
    open_operations: int
    newest_bronze_seq: int | None
    source: SourceReport
    incidents: tuple[IncidentReport, ...]
    causes_judged: CausesJudged | None  # None: nobody ever judged causes
    source_clock: str | None
    latency_measured_from: str


@reading()
def read(environment: OpenEnvironment) -> StatusReport:
    """Read the status."""
    fleet = fleet_queries.read(environment)
    with environment.engine.connect() as connection:
        operations = read_open(connection)
    stands = incident_queries.situation(environment, fleet)
    return report(fleet, operations, incident_queries.read(environment, fleet), stands)


def report(
    fleet: Fleet, operations: Sequence[Operation], incidents: IncidentsReport, stands: Situation
) -> StatusReport:
    """Return the status of a fleet with these open operations, these incidents, and what stands of them now."""
    judgement = fleet.judgement
    source, judged = judgement.source, verdict(judgement)
    named = (NamedSourceReport(each.name, each.age_seconds, each.rows, each.reason) for each in source.sources)
    return StatusReport(
        healthy=judged.healthy,
        headline=of_fleet(stands).line,
        problems=judged.problems,
        at=fleet.read_at,
        drivers=tuple(
            DriverReport(each.kind, each.name, each.liveness.state, each.liveness.reason) for each in judgement.drivers
        ),
        maintenance=UpkeepReport(
            last_round=fleet.upkeep.last,
            last_good_round_at=None if fleet.upkeep.good is None else fleet.upkeep.good.ended_at,
            overdue_seconds=fleet.upkeep.overdue_seconds(fleet.read_at),
        ),
        games=tuple(map(_game, fleet.rows)),
        needs_human=tuple(each for each in operations if each.is_stuck),
        open_operations=len(operations),
        newest_bronze_seq=fleet.newest_bronze_seq,
        source=SourceReport(
            source.condition, source.sentence, source.age_seconds, source.rows, tuple(named), fleet.through_at
        ),
        incidents=incidents.incidents,
        causes_judged=incidents.judged,
        source_clock=fleet.source_clock,
        latency_measured_from=fleet.latency_start,
    )


def verdict(judgement: Judgement) -> Verdict:
    """Return the verdict on the whole fleet; problems of streams in the list of games stand there."""
    kept = (each for each in judgement.problems if each.kind != "stream" or each.name not in judgement.games)
    return Verdict(judgement.healthy, judgement.headline, tuple(kept))


def _game(row: GameRow) -> GameStatus:
    latency, segments = _latency(row.live)
    return GameStatus(
        game_key=row.game_key,
        game=row.game,
        group=row.group,
        status=row.verdict.status,
        cause=_cause(row),
        lag_seconds=row.lag_seconds,
        latency_seconds=latency,
        segments_seconds=segments,
        in_trouble=row.in_trouble,
        waits_for_ingest=row.verdict.waits_for_ingest,
        is_unheard=row.verdict.is_unheard,
        through_time=row.through_at,
    )


def _latency(live: StreamState | None) -> tuple[Latency, LatencySegments]:
    """Return a game's latencies and where they come from; they are those of a stream whose report counts."""
    if live is None:
        return Latency(), LatencySegments()
    latency = Latency(
        live.latency_p50_seconds,
        live.latency_p95_seconds,
        live.latency_p99_seconds,
        live.latency_p99_last_minute_seconds,
    )
    return latency, LatencySegments(
        live.upstream_seconds, live.queue_seconds, live.process_seconds, live.commit_seconds
    )


def _cause(row: GameRow) -> str | None:
    verdict = row.verdict
    return verdict.reason or verdict.waits_for or (row.reported.last_error if row.reported is not None else None)

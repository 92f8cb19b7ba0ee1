"""One process's totals about games, groups, queries and ingest, and how a result adds to them.

Frozen values replaced under the exposition's lock, so that a snapshot is a shallow copy. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from listeners.sample import (
    LATENCY_EDGES_SECONDS,
    MOST_RULES,
    MOST_TYPES,
    OTHER,
    GameResult,
    PassResult,
    Progress,
    StreamState,
    TypeRows,
)

_N = TypeVar("_N", int, float)

MAX_REASONS: Final = 32  # reject reasons and pass phases are constants of our code, so more is a mistake
MAX_QUERIES: Final = 2_000  # the most games one group may carry, each with a query of its own
BUCKETS: Final = len(LATENCY_EDGES_SECONDS) + 1


@dataclass(frozen=True, slots=True)
class GameTotals:
    """This process's work for one game since its start."""

    group: str
    rows: int = 0
    rejects: Mapping[str, int] = field(default_factory=dict)
    commits: int = 0
    errors: int = 0
    latency_counts: tuple[int, ...] = (0,) * BUCKETS
    cursor_seq: int | None = None
    last_commit_at: float | None = None
    caught_up_rows: int = 0
    types: Mapping[str, TypeRows] = field(default_factory=dict)  # at most MOST_TYPES, and the others together
    broken: Mapping[str, int] = field(default_factory=dict)  # at most MOST_RULES, and the others together


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """This process's work as one cluster group since its start; None is unknown yet."""

    heartbeat_at: float | None = None
    passes: int | None = 0
    pass_seconds: float | None = None
    phases_seconds: Mapping[str, float] = field(default_factory=dict)
    frontier_seq: int | None = None


@dataclass(frozen=True, slots=True)
class QueryTotals:
    """Spark's report of one query: the last batch's durations and all rows so far (None: unknown yet)."""

    durations_ms: Mapping[str, int]
    input_rows: int | None


@dataclass(frozen=True, slots=True)
class IngestTotals:
    """The rows that this process ingested since its start."""

    seq: int
    accepted: int | None  # this and the next: None is unknown, as where only the control store tells of ingest
    refused: int | None
    last_commit_at: float
    clocks: Mapping[str, int] = field(default_factory=dict)  # rows by whose clock their source time is


@dataclass(frozen=True, slots=True)
class FleetProblems:
    """The last judgement of the whole fleet, and when (Unix seconds)."""

    counts: Mapping[str, int]  # by kind of problem, 0 included
    judged_at: float
    stopped_groups: Sequence[str] = ()  # those that are down as configured
    wanted_groups: Mapping[str, bool] = field(default_factory=dict)  # whether each that should run is down
    stranded_games: Sequence[tuple[str, str]] = ()  # with the group that is down
    through: Mapping[str, float] = field(default_factory=dict)  # times (Unix seconds) through which games are complete
    bronze_through: float | None = None  # the same of bronze; None: unknown


@dataclass(frozen=True, slots=True)
class DerivedMetrics:
    """A derived stream by its driver's last report; times are Unix seconds, None is unknown."""

    name: str
    game: str  # its key
    group: str  # that carries its game; empty: none does
    rows: int | None
    generation: int | None
    behind: int | None  # commits of its game's table that it has not read
    lag_seconds: float | None
    stopped: tuple[str, float] | None  # the kind of error for which it stands still, and since when; None: it does not
    reported_at: float | None
    is_paused: bool = False  # by a person
    duplicates: int | None = None  # rows that its generation left out as second ones
    unique_by: Sequence[str] = ()  # contracts that promise that it leaves none out


@dataclass(frozen=True, slots=True)
class ControllerMetrics:
    """The controller's work and what waits for operators, from the control store; times are Unix seconds."""

    is_controller_running: bool | None  # None: a control store without writes keeps it from reporting
    supervised_groups: int  # whose drivers the controller should keep running
    open_operations: Mapping[str, int]  # by state, 0 included
    oldest_stuck_since: float | None  # that needs an operator, the oldest; None: none does, or unknown
    evacuations: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Dead groups with games that cannot leave: their number, and since when."""
    maintenance_overdue_seconds: float | None = None  # by which a successful round is overdue; None: unknown
    # Of maintenance: when it ended, and whether successfully; None: none did.
    last_round: tuple[float, bool] | None = None
    last_good_round_at: float | None = None  # the newest successful one; None: none
    access_read_at: float | None = None  # when the catalog was last read; None: never, or unknown
    drift: Mapping[str, int] | None = None  # findings of then without ignored ones, by class, 0 included; None: unknown
    overdue_access: int | None = None  # grants that are over and not seen revoked; None: unknown
    source_age_seconds: float | None = None  # of the oldest row that waits in the source; None: unknown
    source_rows: int | None = None  # that wait there; None: unknown
    source_silent_after: float | None = None  # seconds without a row; None: some wait, or it is unknown
    sources: Mapping[str, tuple[float | None, int | None]] = field(default_factory=dict)  # the same of each of several
    mistrusted: Mapping[str, float] = field(default_factory=dict)  # registries that contradicted themselves, since when
    incidents: Mapping[str, tuple[int, int]] | None = None
    """Open incidents and their games by cause, 0 included; None: nobody judges causes."""
    derived: Sequence[DerivedMetrics] = ()
    left_out_types: Mapping[str, int] = field(default_factory=dict)  # by game, event types that a cap leaves untabled
    books_due: Mapping[str, float] = field(default_factory=dict)  # games, when their oldest open day is due to close
    contract_readers: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of output contracts, by name
    stale_contracts: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """Whether a promise of freshness is broken, or not known to be kept: by contract and the key of a game."""


@dataclass(frozen=True, slots=True)
class SelfCounts:
    """The telemetry's own totals since the start; None is unknown."""

    events_dropped: int | None = None
    listener_errors: int | None = None
    outbox_items: int | None = None
    flush_failures: int | None = None
    push_failures: int | None = None
    cpu_seconds: float | None = None  # of the driver's processes on its machine


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """What one driver's own `/metrics` says beside its games, for those that cannot reach it."""

    kind: str  # group | ingest
    name: str
    process: str  # another one for each process
    at: float
    group: GroupTotals | None
    ingest: IngestTotals | None
    queries: Mapping[str, QueryTotals]
    own: SelfCounts


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """Everything known at one moment; the values are replaced, never changed."""

    games: Mapping[str, GameTotals]
    states: Mapping[str, StreamState] | None  # None: no states were reported, so every game with results is exported
    groups: Mapping[str, GroupTotals]
    queries: Mapping[str, QueryTotals]
    ingest: IngestTotals | None
    own: SelfCounts
    fleet: FleetProblems | None = None  # None: this process does not judge the fleet
    controller_metrics: ControllerMetrics | None = None  # None: this process does not read it, or could not
    through_posts: tuple[int, int] | None = None  # taken and failed; None: this process posts to nobody


def after_result(before: GameTotals, game: GameResult) -> GameTotals:
    """Return the totals with one more result; a failed one counts as an error only, since its rows come again."""
    if game.error is not None:
        return replace(before, errors=before.errors + 1)
    committed = game.committed_at is not None
    return replace(
        before,
        rows=before.rows + game.rows,
        rejects=_added(before.rejects, game.rejects),
        commits=before.commits + committed,
        latency_counts=tuple(map(sum, zip(before.latency_counts, game.latency_counts, strict=True))),
        cursor_seq=game.seq_to if committed else before.cursor_seq,
        last_commit_at=game.committed_at if committed else before.last_commit_at,
        caught_up_rows=before.caught_up_rows + game.caught_up_rows,
        types=_types_added(before.types, game.types),
        broken=_added(before.broken, game.broken, MOST_RULES),
    )


def after_pass(before: GroupTotals, result: PassResult) -> GroupTotals:
    """Return the totals with one more pass; a chunk of catch-up adds its phases but is not a pass of the group."""
    if result.is_chunk:
        return replace(before, phases_seconds=_added(before.phases_seconds, result.phases_seconds))
    return replace(
        before,
        passes=(before.passes or 0) + 1,
        pass_seconds=max(0.0, result.finished_at - result.started_at),
        phases_seconds=_added(before.phases_seconds, result.phases_seconds),
        frontier_seq=max(before.frontier_seq or 0, result.frontier_seq),
    )


def after_progress(before: QueryTotals | None, progress: Progress) -> QueryTotals:
    """Return the totals with one more micro-batch; rows that Spark did not report add nothing."""
    rows = before.input_rows if before else None
    if progress.input_rows is not None:
        rows = (rows or 0) + progress.input_rows
    return QueryTotals(_added({}, progress.durations_ms), rows)


def after_rows(before: QueryTotals | None, rows: int) -> QueryTotals:
    """Return the totals with the rows of a micro-batch that Spark did not count."""
    known = before or QueryTotals({}, None)
    return replace(known, input_rows=(known.input_rows or 0) + rows)


def _types_added(totals: Mapping[str, TypeRows], more: Mapping[str, TypeRows]) -> Mapping[str, TypeRows]:
    """Return the sums by event type. A type keeps its label, as a counter never decreases; the largest come first."""
    if not more:
        return totals
    sums = dict(totals)
    for name, rows in sorted(more.items(), key=lambda each: (-sum(each[1]), each[0])):
        label = name if name in sums or len(sums.keys() - {OTHER}) < MOST_TYPES else OTHER
        before = sums.get(label, TypeRows(0, 0))
        sums[label] = TypeRows(before.landed + rows.landed, before.refused + rows.refused)
    return sums


def _added(totals: Mapping[str, _N], more: Mapping[str, _N], most: int = MAX_REASONS) -> dict[str, _N]:
    """Return the sums by label value; values beyond the bound are summed as `other`."""
    sums = dict(totals)
    for name, amount in more.items():
        label = name if name in sums or len(sums) < most else OTHER
        sums[label] = sums[label] + amount if label in sums else amount
    return sums

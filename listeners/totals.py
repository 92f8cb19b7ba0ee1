"""The totals one process keeps about games, groups, queries and ingest, and how a result adds to them.

Frozen values replaced under the exposition's lock, so that a snapshot is a shallow copy. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from listeners.sample import LATENCY_EDGES_SECONDS, GameResult, PassResult, Progress, StreamState

_N = TypeVar("_N", int, float)

OTHER: Final = "other"
"""Label value that takes what is beyond a label's bound."""

MAX_REASONS: Final = 32  # reject reasons and pass phases are words of our code, so more is a mistake
MAX_QUERIES: Final = 2_000  # the most games one group may carry, each with a query of its own
BUCKETS: Final = len(LATENCY_EDGES_SECONDS) + 1


@dataclass(frozen=True, slots=True)
class GameTotals:
    """What this process did for one game since it started."""

    group: str
    rows: int = 0
    rejects: Mapping[str, int] = field(default_factory=dict)
    commits: int = 0
    errors: int = 0
    latency_counts: tuple[int, ...] = (0,) * BUCKETS
    cursor_seq: int | None = None
    last_commit_at: float | None = None


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """What this process did as one cluster group since it started; None is not known yet."""

    heartbeat_at: float | None = None
    passes: int = 0
    pass_seconds: float | None = None
    phases_seconds: Mapping[str, float] = field(default_factory=dict)
    frontier_seq: int | None = None


@dataclass(frozen=True, slots=True)
class QueryTotals:
    """What Spark reported of one query: the last batch's durations and all rows so far (None: not known yet)."""

    durations_ms: Mapping[str, int]
    input_rows: int | None


@dataclass(frozen=True, slots=True)
class IngestTotals:
    """What this process ingested since it started."""

    seq: int
    accepted: int
    refused: int
    last_commit_at: float
    clocks: Mapping[str, int] = field(default_factory=dict)  # rows by whose clock their source time is


@dataclass(frozen=True, slots=True)
class FleetProblems:
    """What the last judgement of the whole fleet found, and when (Unix seconds)."""

    counts: Mapping[str, int]  # by kind of problem, 0 included
    judged_at: float
    stopped_groups: Sequence[str] = ()  # those that do not run, and need not


@dataclass(frozen=True, slots=True)
class Oversight:
    """What the control store says of the controller's work and of what waits for people; times are Unix seconds."""

    is_controller_running: bool
    supervised_groups: int  # whose drivers the controller should keep running
    open_operations: Mapping[str, int]  # by state, 0 included
    oldest_stuck_since: float | None  # that needs a person; None: none does, or it is not known
    evacuations: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Dead groups with games that cannot go: how many, and since when."""
    maintenance_overdue_seconds: float | None = None  # for which a round should have ended well; None: not known
    last_round: tuple[float, bool] | None = None  # of maintenance: when it ended, and if well; None: none did
    last_good_round_at: float | None = None  # the newest that ended well; None: none did
    access_read_at: float | None = None  # when the catalog was last read; None: it never was, or it is not known
    drift: Mapping[str, int] | None = (
        None  # findings of then that nobody ignores, by class, 0 included; None: not known
    )
    source_age_seconds: float | None = None  # of the oldest row that waits in the source; None: not known
    source_rows: int | None = None  # that wait there; None: not known


@dataclass(frozen=True, slots=True)
class SelfCounts:
    """How the telemetry itself is doing, as totals since the start; None is not known."""

    events_dropped: int | None = None
    listener_errors: int | None = None
    outbox_items: int | None = None
    flush_failures: int | None = None
    push_failures: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is known at one moment; the values are never changed, only replaced."""

    games: Mapping[str, GameTotals]
    states: Mapping[str, StreamState] | None  # None: no states were reported, so every game with results is shown
    groups: Mapping[str, GroupTotals]
    queries: Mapping[str, QueryTotals]
    ingest: IngestTotals | None
    own: SelfCounts
    fleet: FleetProblems | None = None  # None: this process does not judge the fleet
    oversight: Oversight | None = None  # None: this process does not read it, or could not


def after_result(before: GameTotals, game: GameResult) -> GameTotals:
    """Return the totals with one more result; a failed one is an error only, since its rows come again."""
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
    )


def after_pass(before: GroupTotals, result: PassResult) -> GroupTotals:
    """Return the totals with one more pass; a chunk of catch-up adds its phases but is no pass of the group."""
    if result.is_chunk:
        return replace(before, phases_seconds=_added(before.phases_seconds, result.phases_seconds))
    return replace(
        before,
        passes=before.passes + 1,
        pass_seconds=max(0.0, result.finished_at - result.started_at),
        phases_seconds=_added(before.phases_seconds, result.phases_seconds),
        frontier_seq=max(before.frontier_seq or 0, result.frontier_seq),
    )


def after_progress(before: QueryTotals | None, progress: Progress) -> QueryTotals:
    """Return the totals with one more micro-batch; rows Spark did not report add nothing."""
    rows = before.input_rows if before else None
    if progress.input_rows is not None:
        rows = (rows or 0) + progress.input_rows
    return QueryTotals(_added({}, progress.durations_ms), rows)


def _added(totals: Mapping[str, _N], more: Mapping[str, _N]) -> dict[str, _N]:
    """Return the sums by label value; values beyond the bound are summed as `other`."""
    sums = dict(totals)
    for name, amount in more.items():
        label = name if name in sums or len(sums) < MAX_REASONS else OTHER
        sums[label] = sums[label] + amount if label in sums else amount
    return sums

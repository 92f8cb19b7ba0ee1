"""The values that describe streams: a query's progress, a pass's result, a stream's state.

The listener and passes make them, the outbox's sinks consume them; nothing here reads a clock or does I/O.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

LATENCY_EDGES_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Upper edges of the latency histogram's buckets; a last bucket without edge follows."""

OTHER: Final = "other"
"""Label value that sums all values beyond a label's bound."""

MOST_TYPES: Final = 20
"""Event types of a game that metrics and states tell apart."""

MOST_RULES: Final = 20
"""Rules of output contracts that metrics tell apart for a game."""

_OF_NAMES: Final = "PythonMicroBatchStream"
"""Spark's word for a source that gives names of files, which tasks read: it counts the names as rows."""

CHUNK: Final = -1
"""The batch id of a catch-up chunk, which is not a micro-batch."""


class Lane(StrEnum):
    """How a stream is read now."""

    RUN = "RUN"  # in the group's pass
    CATCHUP = "CATCHUP"  # by bounded reads of bronze
    QUARANTINED = "QUARANTINED"  # parked after failures
    PAUSED = "PAUSED"


@dataclass(frozen=True, slots=True)
class Progress:
    """One micro-batch of one query as Spark reported it; what Spark leaves out or marks with -1 is None."""

    query_name: str | None
    query_id: str
    run_id: str
    batch_id: int
    started_at: str  # ISO 8601, as Spark writes it
    input_rows: int | None  # None also where Spark does not see the rows
    durations_ms: Mapping[str, int]


class Segments(NamedTuple):
    """Where the latency of rows comes from: means over rows in seconds, in the order of a row's way."""

    queue: float  # from source time to bronze commit
    process: float  # from bronze commit to the beginning of the table's commit
    commit: float  # of that commit
    upstream: float | None = None  # before all of them, from event time to source time; None where nobody knows


class TypeRows(NamedTuple):
    """Rows of one event type."""

    landed: int
    refused: int


@dataclass(frozen=True, slots=True)
class GameResult:
    """The result of one pass (or one catch-up chunk) for one game."""

    game_key: str
    lane: Lane
    seq_from: int  # first and last bronze seq of the rows handled
    seq_to: int
    rows: int  # landed in the game's table
    rejects: Mapping[str, int]  # refused rows by reason code
    files: int
    bytes: int
    committed_at: float | None  # Unix seconds; None without a commit
    commit_seconds: float
    latency_counts: tuple[int, ...]  # landed rows per bucket of LATENCY_EDGES_SECONDS, source time to table commit
    error: str | None = None  # why there was no commit, one line
    caught_up_rows: int = 0  # of `rows`, those that waited for a start or an outage: not in latency_counts
    segments_seconds: Segments | None = None  # of the rows in latency_counts; None: nobody knows, or none
    # By event type, without refused rows whose schema is not known.
    types: Mapping[str, TypeRows] = field(default_factory=dict)
    # Landed rows by the id of their schema, of schemas that nobody declared: statistics of variations.
    shapes: Mapping[int, int] = field(default_factory=dict)
    # Rows that break a rule of an output contract, by rule, whether they landed or were refused for it.
    broken: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PassResult:
    """The result of one micro-batch of a group's demux query, joined to its Progress by (run_id, batch_id)."""

    group: str
    run_id: str
    batch_id: int  # CHUNK: a chunk of catch-up
    started_at: float
    finished_at: float
    frontier_seq: int  # the last bronze seq this pass covers
    games: tuple[GameResult, ...]
    phases_seconds: Mapping[str, float] = field(default_factory=dict)  # decode, quarantine, commit
    input_rows: int | None = None  # that it read; None: only Spark's progress says

    @property
    def is_chunk(self) -> bool:
        """Whether this was a chunk of catch-up, which is not a pass of the group even without rows."""
        return self.batch_id == CHUNK


@dataclass(frozen=True, slots=True)
class StreamState:
    """The observed state of one stream, judged by the group's watchdog; None is unknown, times are Unix seconds.

    The control store keeps each field as a column of its table `streams`, and readers get them all back.
    """

    game_key: str
    group: str
    lane: str  # a Lane; another word is a newer version's
    status: str  # a Status, likewise
    status_since: float
    cursor_seq: int
    last_commit_at: float | None  # None: it made none yet
    backlog_age_seconds: float | None
    rows_per_second: float | None
    latency_p95_seconds: float | None  # of the last five minutes, as all latencies here; None without rows
    rows_total: int  # landed since the driver started
    rejects_total: int  # refused since the driver started
    last_error: str | None
    updated_at: float
    bytes_per_second: float | None = None  # of files in its table
    commits_per_second: float | None = None
    waits_for: str | None = None  # "waits for schema …": what its next rows lack; None: nothing
    refused: Mapping[str, int] = field(default_factory=dict)  # rows of the last five minutes by reason
    landed: int | None = None  # rows of the last five minutes in its table
    # Of the same five minutes by event type, at most MOST_TYPES and the others together.
    types: Mapping[str, TypeRows] = field(default_factory=dict)
    commit_mean_seconds: float | None = None  # the mean of its commits in the last minute; None: it made none
    latency_p50_seconds: float | None = None
    latency_p99_seconds: float | None = None
    latency_p99_last_minute_seconds: float | None = None
    queue_seconds: float | None = None  # this and the next three: the segments, means over rows
    process_seconds: float | None = None
    commit_seconds: float | None = None
    upstream_seconds: float | None = None  # None also where no event time is known
    schema_set: int | None = None  # the oldest by which its rows are written now or next; None: not known
    refused_at: Mapping[str, float] = field(default_factory=dict)  # when the last of `refused` was, by reason


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """One change of one stream's status."""

    game_key: str
    group: str
    at: float
    from_status: str | None  # None: unknown before
    to_status: str
    detail: str | None  # why, one line


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A sample of one cluster group."""

    group: str
    at: float
    frontier_seq: int | None  # None before the first pass
    streams: int
    behind: int  # streams outside of the lane RUN
    rows_per_second: float | None  # None is unknown, never 0


@dataclass(frozen=True, slots=True)
class StreamMinute:
    """One driver's numbers of one game in one minute; those of several drivers, and late ones, add up."""

    at: float  # Unix seconds: the minute's beginning
    game_key: str
    group: str
    rows: int  # landed, by the time of their commit
    caught_up_rows: int  # of them, those that waited through a start or an outage
    refused: int
    commits: int
    latency_counts: tuple[int, ...]  # as in GameResult; empty without any
    backlog_age_seconds: float | None  # the largest report; None: no report knew it
    status: str | None  # the worst report, as in StreamState; None: no report


@dataclass(frozen=True, slots=True)
class IngestMinute:
    """The ingest driver's numbers of one minute, also of one without rows."""

    at: float  # Unix seconds: the minute's beginning
    rows: int  # into bronze, refused ones included
    refused: int
    commits: int
    backlog_age_seconds: float | None = None  # the largest age of the oldest row waiting in the source; None: unknown


@dataclass(frozen=True, slots=True)
class CpuUse:
    """The CPU time that a driver's processes used between two moments (Unix seconds)."""

    began_at: float
    ended_at: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class ProcessMinute:
    """The CPU time of one driver in one minute; rows of one minute, as of a restarted driver, add up."""

    at: float  # Unix seconds: the minute's beginning
    kind: str
    name: str
    cpu_seconds: float  # of the processes on the driver's machine: Python, the JVM that it started, its workers
    measured_seconds: float  # of the minute, in which they were used
    is_whole: bool  # False: executors, or the JVM, are another's processes, and are not in it


def largest_types(types: Mapping[str, TypeRows]) -> dict[str, TypeRows]:
    """Return the event types with the most rows, at most MOST_TYPES, and the others together as OTHER."""
    ordered = sorted(types.items(), key=lambda each: (-sum(each[1]), each[0]))
    if len(ordered) <= MOST_TYPES:
        return dict(ordered)
    rest = [rows for _, rows in ordered[MOST_TYPES:]]
    found = dict(ordered[:MOST_TYPES])
    more = found.get(OTHER, TypeRows(0, 0))  # a type may have this very name
    found[OTHER] = TypeRows(
        more.landed + sum(each.landed for each in rest), more.refused + sum(each.refused for each in rest)
    )
    return found


def progress_from_json(text: str) -> Progress:
    """Return the Progress in the JSON of a StreamingQueryProgress.

    Raises:
        ValueError: the text is not such a JSON document.
    """
    try:
        raw = json.loads(text)
        counts_names = any(_OF_NAMES in str(each.get("description")) for each in raw.get("sources", ()))
        rows = None if counts_names else raw.get("numInputRows")
        return Progress(
            query_name=raw.get("name"),
            query_id=raw["id"],
            run_id=raw["runId"],
            batch_id=int(raw["batchId"]),
            started_at=raw["timestamp"],
            input_rows=None if rows is None or rows < 0 else int(rows),
            durations_ms={name: int(value) for name, value in raw.get("durationMs", {}).items() if value >= 0},
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a query progress: {error}") from error

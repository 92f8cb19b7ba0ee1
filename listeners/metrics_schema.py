"""The metrics Delta tables: their columns, and the rows of results and events.

Written by `metrics_table`, read by `history`, `minutes.reader` and `bridge`. Types stay plain so that every Delta
engine can read and write them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final, Protocol

import pyarrow as pa

from listeners.join import Pass
from listeners.sample import (
    GameResult,
    GroupSample,
    IngestMinute,
    ProcessMinute,
    StatusEvent,
    StreamMinute,
    largest_types,
)
from listeners.totals import ProcessSample

Row = Mapping[str, Any]

_TIME: Final = pa.timestamp("us", tz="UTC")


QUERY: Final = pa.struct(
    [("query", pa.string()), ("input_rows", pa.int64()), ("durations", pa.map_(pa.string(), pa.int64()))]
)
"""One query of a process: milliseconds of its last micro-batch, and its rows so far as Spark reported them."""


TYPE: Final = pa.struct([("event_type", pa.string()), ("rows", pa.int64()), ("refused", pa.int64())])
"""The rows of one event type in a pass: landed, and refused by it."""


class MetricsFolder(Protocol):
    """Where metrics tables are, in a folder or a bucket: a `pipeline.lake.storage.location.Location`."""

    def __truediv__(self, name: str, /) -> "MetricsFolder":
        """Return the place of a table."""
        ...

    def make(self) -> None:
        """Make the folder, where folders are something."""
        ...

    @property
    def options(self) -> dict[str, str] | None:
        """What delta-rs needs to reach it."""
        ...


@dataclass(frozen=True, slots=True)
class MetricsTable:
    """One metrics table; it is partitioned by `event_date` only, since a partition per game would be tiny."""

    name: str  # its folder below the metrics folder
    schema: pa.Schema
    order: tuple[str, ...] = ()  # of the rows in merged files
    is_numbered: bool = False  # each row has its writer's id and a number, by which readers know a doubled batch


STREAM_BATCH: Final = MetricsTable(  # one row per pass and game
    "stream_batch",
    pa.schema(
        [
            ("event_date", pa.date32()),  # of finished_at
            ("run_id", pa.string()),
            ("batch_id", pa.int64()),
            ("cluster_group", pa.string()),
            ("game_key", pa.string()),
            ("lane", pa.string()),
            ("seq_from", pa.int64()),
            ("seq_to", pa.int64()),
            ("rows", pa.int64()),
            ("rejects", pa.int64()),
            ("reject_reasons", pa.map_(pa.string(), pa.int64())),
            ("files", pa.int64()),
            ("bytes", pa.int64()),
            ("finished_at", _TIME),  # of the pass
            ("committed_at", _TIME),  # null without a commit
            ("commit_seconds", pa.float64()),
            ("latency_counts", pa.list_(pa.int32())),  # rows per bucket of sample.LATENCY_EDGES_SECONDS
            ("pass_seconds", pa.float64()),
            ("input_rows", pa.int64()),  # of the whole pass; null when unknown
            ("durations", pa.map_(pa.string(), pa.int64())),  # milliseconds as Spark reported; null when unknown
            ("error", pa.string()),
            ("caught_up_rows", pa.int64()),  # of rows, those that are not in latency_counts
            ("queue_seconds", pa.float64()),  # sample.Segments of the rows in latency_counts; null when unknown
            ("process_seconds", pa.float64()),
            ("upstream_seconds", pa.float64()),
            ("types", pa.list_(TYPE)),  # at most sample.MOST_TYPES, and the others together
            ("broken", pa.map_(pa.string(), pa.int64())),  # rows that break a rule of an output contract, by rule
        ]
    ),
)
STATUS_EVENT: Final = MetricsTable(  # one row per change of a stream's status
    "stream_status_event",
    pa.schema(
        [
            ("event_date", pa.date32()),
            ("game_key", pa.string()),
            ("cluster_group", pa.string()),
            ("at", _TIME),
            ("from_status", pa.string()),  # null: no status before
            ("to_status", pa.string()),
            ("detail", pa.string()),
        ]
    ),
)
GROUP_SAMPLE: Final = MetricsTable(  # a sample of a group, from time to time
    "group_sample",
    pa.schema(
        [
            ("event_date", pa.date32()),
            ("cluster_group", pa.string()),
            ("at", _TIME),
            ("frontier_seq", pa.int64()),
            ("streams", pa.int64()),
            ("behind", pa.int64()),
            ("rows_per_second", pa.float64()),  # null when unknown
        ]
    ),
)
STREAM_MINUTE: Final = MetricsTable(  # one row per minute and game; late results make further ones, which add up
    "stream_minute",
    pa.schema(
        [
            ("event_date", pa.date32()),  # of minute
            ("minute", _TIME),  # its beginning
            ("cluster_group", pa.string()),
            ("game_key", pa.string()),
            ("status", pa.string()),  # the worst; null when none was reported
            ("backlog_age_seconds", pa.float64()),  # the largest; null when unknown
            ("rows", pa.int64()),
            ("caught_up_rows", pa.int64()),
            ("refused", pa.int64()),
            ("commits", pa.int64()),
            ("latency_counts", pa.list_(pa.int32())),  # as in stream_batch; null without any
            ("writer", pa.string()),
            ("row", pa.int64()),
        ]
    ),
    order=("minute", "game_key"),
    is_numbered=True,
)
INGEST_MINUTE: Final = MetricsTable(  # one row per minute in which the ingest driver ran
    "ingest_minute",
    pa.schema(
        [
            ("event_date", pa.date32()),
            ("minute", _TIME),
            ("backlog_age_seconds", pa.float64()),  # of the source, the largest; null when unknown
            ("rows", pa.int64()),
            ("refused", pa.int64()),
            ("commits", pa.int64()),
            ("writer", pa.string()),
            ("row", pa.int64()),
        ]
    ),
    order=("minute",),
    is_numbered=True,
)
PROCESS_MINUTE: Final = MetricsTable(  # one row per minute and driver, where its CPU time can be measured
    "process_minute",
    pa.schema(
        [
            ("event_date", pa.date32()),
            ("minute", _TIME),
            ("kind", pa.string()),
            ("name", pa.string()),
            ("cpu_seconds", pa.float64()),
            ("measured_seconds", pa.float64()),
            ("is_whole", pa.bool_()),  # false: executors, or the JVM, are not in it
            ("writer", pa.string()),
            ("row", pa.int64()),
        ]
    ),
    order=("minute", "kind", "name"),
    is_numbered=True,
)
PROCESS_SAMPLE: Final = MetricsTable(  # one row per driver and heartbeat: what its /metrics says beside its games
    "process_sample",
    pa.schema(
        [
            ("event_date", pa.date32()),  # of at
            ("kind", pa.string()),
            ("name", pa.string()),
            ("process", pa.string()),
            ("at", _TIME),
            ("heartbeat_at", _TIME),  # this and all that follows: null when unknown, counted since the process began
            ("passes", pa.int64()),
            ("pass_seconds", pa.float64()),
            ("phase_seconds", pa.map_(pa.string(), pa.float64())),
            ("frontier_seq", pa.int64()),
            ("seq", pa.int64()),
            ("accepted", pa.int64()),
            ("refused", pa.int64()),
            ("committed_at", _TIME),
            ("clocks", pa.map_(pa.string(), pa.int64())),
            ("queries", pa.list_(QUERY)),
            ("events_dropped", pa.int64()),
            ("listener_errors", pa.int64()),
            ("outbox_items", pa.int64()),
            ("flush_failures", pa.int64()),
            ("push_failures", pa.int64()),
            ("cpu_seconds", pa.float64()),
        ]
    ),
)
MINUTES: Final = (STREAM_MINUTE, INGEST_MINUTE, PROCESS_MINUTE)
TABLES: Final = (STREAM_BATCH, STATUS_EVENT, GROUP_SAMPLE, *MINUTES, PROCESS_SAMPLE)

MetricsItem = Pass | StatusEvent | GroupSample | StreamMinute | IngestMinute | ProcessMinute | ProcessSample


def rows_of(item: MetricsItem) -> tuple[MetricsTable, Sequence[Row]]:
    """Return the table an item belongs to, and its rows there."""
    match item:
        case Pass():
            return STREAM_BATCH, _pass_rows(item)
        case StatusEvent():
            return STATUS_EVENT, [
                {
                    "event_date": _day(item.at),
                    "game_key": item.game_key,
                    "cluster_group": item.group,
                    "at": moment(item.at),
                    "from_status": item.from_status,
                    "to_status": item.to_status,
                    "detail": item.detail,
                }
            ]
        case GroupSample():
            return GROUP_SAMPLE, [
                {
                    "event_date": _day(item.at),
                    "cluster_group": item.group,
                    "at": moment(item.at),
                    "frontier_seq": item.frontier_seq,
                    "streams": item.streams,
                    "behind": item.behind,
                    "rows_per_second": item.rows_per_second,
                }
            ]
        case StreamMinute():
            return STREAM_MINUTE, [
                {
                    "event_date": _day(item.at),
                    "minute": moment(item.at),
                    "cluster_group": item.group,
                    "game_key": item.game_key,
                    "status": item.status,
                    "backlog_age_seconds": item.backlog_age_seconds,
                    "rows": item.rows,
                    "caught_up_rows": item.caught_up_rows,
                    "refused": item.refused,
                    "commits": item.commits,
                    "latency_counts": list(item.latency_counts) or None,
                }
            ]
        case IngestMinute():
            return INGEST_MINUTE, [
                {
                    "event_date": _day(item.at),
                    "minute": moment(item.at),
                    "backlog_age_seconds": item.backlog_age_seconds,
                    "rows": item.rows,
                    "refused": item.refused,
                    "commits": item.commits,
                }
            ]
        case ProcessMinute():
            return PROCESS_MINUTE, [
                {
                    "event_date": _day(item.at),
                    "minute": moment(item.at),
                    "kind": item.kind,
                    "name": item.name,
                    "cpu_seconds": item.cpu_seconds,
                    "measured_seconds": item.measured_seconds,
                    "is_whole": item.is_whole,
                }
            ]
        case ProcessSample():
            return PROCESS_SAMPLE, [_process_row(item)]


def moment(unix_seconds: float) -> datetime:
    """Return Unix seconds as the UTC time the tables keep."""
    return datetime.fromtimestamp(unix_seconds, UTC)


def _pass_rows(item: Pass) -> Sequence[Row]:
    result, progress = item.result, item.progress
    of_pass = {
        "event_date": _day(result.finished_at),
        "run_id": result.run_id,
        "batch_id": result.batch_id,
        "cluster_group": result.group,
        "finished_at": moment(result.finished_at),
        "pass_seconds": result.finished_at - result.started_at,
        "input_rows": item.input_rows,
        "durations": None if progress is None else list(progress.durations_ms.items()),
    }
    return [
        {
            **of_pass,
            "game_key": game.game_key,
            "lane": game.lane,
            "seq_from": game.seq_from,
            "seq_to": game.seq_to,
            "rows": game.rows,
            "rejects": sum(game.rejects.values()),
            "reject_reasons": list(game.rejects.items()),
            "files": game.files,
            "bytes": game.bytes,
            "committed_at": None if game.committed_at is None else moment(game.committed_at),
            "commit_seconds": game.commit_seconds,
            "latency_counts": list(game.latency_counts),
            "error": game.error,
            "caught_up_rows": game.caught_up_rows,
            "types": [
                {"event_type": name, "rows": rows.landed, "refused": rows.refused}
                for name, rows in largest_types(game.types).items()
            ],
            "broken": list(game.broken.items()),
            **_segments(game),
        }
        for game in result.games
    ]


def _process_row(item: ProcessSample) -> Row:
    group, ingest, own = item.group, item.ingest, item.own
    return {
        "event_date": _day(item.at),
        "kind": item.kind,
        "name": item.name,
        "process": item.process,
        "at": moment(item.at),
        "heartbeat_at": None if group is None or group.heartbeat_at is None else moment(group.heartbeat_at),
        "passes": None if group is None else group.passes,
        "pass_seconds": None if group is None else group.pass_seconds,
        "phase_seconds": None if group is None else list(group.phases_seconds.items()),
        "frontier_seq": None if group is None else group.frontier_seq,
        "seq": None if ingest is None else ingest.seq,
        "accepted": None if ingest is None else ingest.accepted,
        "refused": None if ingest is None else ingest.refused,
        "committed_at": None if ingest is None else moment(ingest.last_commit_at),
        "clocks": None if ingest is None else list(ingest.clocks.items()),
        "queries": [
            {"query": name, "input_rows": each.input_rows, "durations": list(each.durations_ms.items())}
            for name, each in item.queries.items()
        ],
        "events_dropped": own.events_dropped,
        "listener_errors": own.listener_errors,
        "outbox_items": own.outbox_items,
        "flush_failures": own.flush_failures,
        "push_failures": own.push_failures,
        "cpu_seconds": own.cpu_seconds,
    }


def _segments(game: GameResult) -> Row:
    """Return the segments that are not a column anyway, as `commit_seconds` is."""
    known = game.segments_seconds
    return {
        "queue_seconds": None if known is None else known.queue,
        "process_seconds": None if known is None else known.process,
        "upstream_seconds": None if known is None else known.upstream,
    }


def _day(unix_seconds: float) -> date:
    return moment(unix_seconds).date()

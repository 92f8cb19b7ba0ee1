"""Reads the metrics tables back without Spark, for the dashboard and the watchdog.

A missing table reads as empty. Rows that a writer's retry doubled are read once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from listeners.metrics_schema import STATUS_EVENT, STREAM_BATCH, MetricsFolder, MetricsTable, moment
from listeners.quantile import quantile
from listeners.sample import LATENCY_EDGES_SECONDS

_BUCKETS: Final = len(LATENCY_EDGES_SECONDS) + 1
# A pass is known by (run_id, batch_id); chunks of catch-up share one, but not when they ended or where they begin.
_ONCE: Final = "SELECT DISTINCT ON (run_id, batch_id, game_key, seq_from, finished_at) * FROM results"


@dataclass(frozen=True, slots=True)
class GameSummary:
    """One game's numbers over a span of time; a latency is None without landed rows."""

    game_key: str
    rows: int
    rejects: int
    commits: int
    errors: int
    p50_seconds: float | None
    p95_seconds: float | None
    p99_seconds: float | None
    last_commit_at: float | None  # Unix seconds; None without a commit


def passes(folder: MetricsFolder, game_key: str | None, since: float) -> pa.Table:
    """Return the results of the passes since then (Unix seconds), for one game or for all, oldest first."""
    wanted = _since("finished_at", since)
    if game_key is not None:
        wanted = wanted & (pc.field("game_key") == game_key)
    return _read(folder, STREAM_BATCH, wanted, f"{_ONCE} ORDER BY finished_at, run_id, batch_id, game_key, seq_from")


def summary(folder: MetricsFolder, since: float) -> Sequence[GameSummary]:
    """Return the numbers of each game with results since then (Unix seconds), ordered by key.

    Rows of a failed result are not counted: they come again. Percentiles come from the summed histograms.
    """
    buckets = ", ".join(f"coalesce(sum(latency_counts[{n}]), 0)::BIGINT" for n in range(1, _BUCKETS + 1))
    schema = pa.schema(
        [
            ("game_key", pa.string()),
            ("rows", pa.int64()),
            ("rejects", pa.int64()),
            ("commits", pa.int64()),
            ("errors", pa.int64()),
            ("counts", pa.list_(pa.int64())),
            ("last_commit_at", pa.float64()),
        ]
    )
    query = f"""
        SELECT game_key,
               coalesce(sum(rows) FILTER (error IS NULL), 0)::BIGINT AS rows,
               coalesce(sum(rejects) FILTER (error IS NULL), 0)::BIGINT AS rejects,
               count(committed_at) AS commits, count(error) AS errors,
               [{buckets}] AS counts, epoch(max(committed_at)) AS last_commit_at
        FROM ({_ONCE}) GROUP BY game_key ORDER BY game_key"""  # noqa: S608 - made of constants
    return [
        _summary(row)
        for row in _read(folder, STREAM_BATCH, _since("finished_at", since), query, schema=schema).to_pylist()
    ]


def transitions(folder: MetricsFolder, since: float, limit: int) -> pa.Table:
    """Return at most `limit` changes of status since `since` (Unix seconds), newest first."""
    query = 'SELECT DISTINCT * FROM results ORDER BY "at" DESC, game_key LIMIT $limit'
    return _read(folder, STATUS_EVENT, _since("at", since), query, parameters={"limit": limit})


def _summary(row: dict[str, Any]) -> GameSummary:
    counts = row["counts"]
    return GameSummary(
        row["game_key"],
        row["rows"],
        row["rejects"],
        row["commits"],
        row["errors"],
        quantile(counts, 0.5),
        quantile(counts, 0.95),
        quantile(counts, 0.99),
        row["last_commit_at"],
    )


def _since(column: str, since: float) -> pc.Expression:
    start = moment(since)
    # The date alone lets readers skip whole days; the time then decides.
    return (pc.field("event_date") >= pa.scalar(start.date())) & (
        pc.field(column) >= pa.scalar(start, pa.timestamp("us", tz="UTC"))
    )


def _read(
    folder: MetricsFolder,
    table: MetricsTable,
    wanted: pc.Expression,
    query: str,
    *,
    schema: pa.Schema | None = None,
    parameters: dict[str, int] | None = None,
) -> pa.Table:
    """Run the query over the selected rows, named `results`, and return its answer in the schema."""
    path = folder / table.name
    answer = schema or table.schema
    url, options = str(path), path.options
    try:
        rows_of_table = DeltaTable(url, storage_options=options).to_pyarrow_dataset(schema=table.schema)
    except TableNotFoundError:
        return answer.empty_table()
    results = rows_of_table.to_table(filter=wanted)
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.register("results", results)
        return connection.sql(query, params=parameters).to_arrow_table().select(answer.names).cast(answer)

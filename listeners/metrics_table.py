"""Writes the metrics Delta tables with delta-rs, off the hot path: adding buffers, a thread of its own writes.

A lost store never touches a stream: rows wait in a bounded buffer; the oldest are dropped and counted.
"""

import logging
import random
import threading
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, SchemaMismatchError, TableNotFoundError

from listeners.metrics_schema import TABLES, MetricsFolder, MetricsItem, MetricsTable, Row, rows_of

BATCH_ROWS: Final = 5_000  # most rows of one commit
CHECKPOINT_COMMITS: Final = 50  # the most small log files that a reader lists
_LOG_RETENTION: Final = "interval 3 days"  # a commit every few seconds would fill the log's folder

_OURS: Final = {"turnout": "metrics"}  # the mark of our commits, see pipeline.lake.delta.marks

_log = logging.getLogger(__name__)


class MetricsTables:
    """The metrics tables as one process writes them; several processes may share the folder.

    Args:
        folder: holds one Delta table per kind of row; created when missing.
        writer_id: names this writer in the tables' logs; each instance adds a mark of its own, so that a restarted
            writer never takes its predecessor's commits for its own.
        capacity: most rows per table that wait for the store.
    """

    def __init__(self, folder: MetricsFolder, writer_id: str, capacity: int = 50_000) -> None:
        app_id = f"turnout-metrics/{writer_id}/{uuid.uuid4().hex[:12]}"
        self._writers = {table.name: _Writer(folder / table.name, table, app_id, capacity) for table in TABLES}
        self._flushing = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._flush_failures = 0

    @property
    def waiting(self) -> int:
        """Rows that are not known to be in the tables."""
        return sum(writer.waiting for writer in self._writers.values())

    @property
    def dropped(self) -> int:
        """Rows that were never written."""
        return sum(writer.dropped for writer in self._writers.values())

    @property
    def flush_failures(self) -> int:
        """Failed writes; their rows are retried."""
        return self._flush_failures

    def add(self, item: MetricsItem) -> None:
        """Buffer a pass, a status event, a group sample or a minute for the next flush; returns at once."""
        table, rows = rows_of(item)
        self._writers[table.name].add(rows)

    def flush(self) -> bool:
        """Write all buffered rows and return whether that succeeded; rows that failed stay for the next flush."""
        with self._flushing:
            outcomes = [self._flush_one(writer) for writer in self._writers.values()]
            return all(outcomes)

    def start(self, flush_seconds: float) -> None:
        """Flush periodically on a thread of its own, until `close`."""
        if self._thread is not None:
            raise RuntimeError("these metrics tables are already being flushed")
        self._thread = threading.Thread(target=self._run, args=(flush_seconds,), name="flush-metrics", daemon=True)
        self._thread.start()

    def close(self, deadline_seconds: float) -> bool:
        """Write the buffered rows until the deadline, stop, and return whether all were written."""
        self._stopping.set()
        if self._thread is None:
            self.start(0.0)
        if self._thread is not None:
            self._thread.join(deadline_seconds)
        return self.waiting == 0

    def _run(self, flush_seconds: float) -> None:
        # Jitter keeps the writers of several processes from meeting at every commit. Drawn from a generator of its own:
        # a thread that draws from the module's disturbs a program that has seeded that one.
        jitter = random.Random()  # noqa: S311 - no secret
        while not self._stopping.wait(flush_seconds * jitter.uniform(0.8, 1.2)):
            self.flush()
        self.flush()

    def _flush_one(self, writer: "_Writer") -> bool:
        try:
            writer.flush()
        except Exception as error:  # noqa: BLE001 - the edge to the store: after any error the rows must wait
            self._flush_failures += 1
            _log.warning("cannot write metrics table %s, its rows wait: %s", writer.path, error)
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rows on their way into a table; after a lost reply the version shows whether they arrived."""

    version: int
    data: pa.Table


class _Writer:
    """One table: a buffer, and at most one batch with an unknown outcome."""

    def __init__(self, path: MetricsFolder, table: MetricsTable, app_id: str, capacity: int) -> None:
        self.path = path
        self.dropped = 0
        self._table = table
        self._app_id = app_id
        self._capacity = capacity
        self._buffer: deque[Row] = deque()
        self._lock = threading.Lock()
        self._open: _Batch | None = None
        self._version = 0
        self._numbered = 0  # rows so far
        self._tried = False

    @property
    def waiting(self) -> int:
        batch = self._open
        return len(self._buffer) + (0 if batch is None else batch.data.num_rows)

    def add(self, rows: Sequence[Row]) -> None:
        with self._lock:
            self._buffer.extend(rows)
            for _ in range(len(self._buffer) - self._capacity):
                self._buffer.popleft()
                self.dropped += 1

    def flush(self) -> None:
        """Append the buffer batch by batch. Idempotent: a retry looks for the batch's (app id, version)."""
        while self._open is not None or self._take():
            batch = self._open
            assert batch is not None
            delta = self._load()
            if not (self._tried and (delta.transaction_version(self._app_id) or 0) >= batch.version):
                self._tried = True
                try:
                    self._append(delta, batch, None)
                except SchemaMismatchError:  # an older turnout made the table, without a column of this one
                    self._append(delta, batch, "merge")
            self._open, self._tried = None, False

    def _append(self, delta: DeltaTable, batch: _Batch, schema_mode: Literal["merge"] | None) -> None:
        transaction = Transaction(self._app_id, batch.version)
        write_deltalake(
            delta,
            batch.data,
            mode="append",
            schema_mode=schema_mode,
            commit_properties=CommitProperties(
                app_transactions=[transaction], custom_metadata=_OURS, max_commit_retries=30
            ),
        )

    def _take(self) -> bool:
        """Make a batch of the oldest buffered rows; return whether there were any.

        Raises:
            pyarrow.ArrowException: a row does not fit the table; the batch is dropped, for it never would.
        """
        with self._lock:
            rows = [self._buffer.popleft() for _ in range(min(len(self._buffer), BATCH_ROWS))]
        if not rows:
            return False
        if self._table.is_numbered:
            rows = [{**row, "writer": self._app_id, "row": at} for at, row in enumerate(rows, self._numbered)]
            self._numbered += len(rows)
        try:
            data = pa.Table.from_pylist(rows, schema=self._table.schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            with self._lock:
                self.dropped += len(rows)
            raise ValueError(f"{len(rows)} row(s) do not fit the table and are dropped: {error}") from error
        self._version += 1
        self._open = _Batch(self._version, data)
        return True

    def _load(self) -> DeltaTable:
        url, options = str(self.path), self.path.options
        try:  # not `is_deltatable`, which holds the interpreter's lock until storage answers
            return DeltaTable(url, storage_options=options)
        except TableNotFoundError:
            self.path.make()
            try:
                DeltaTable.create(
                    url,
                    self._table.schema,
                    mode="ignore",
                    partition_by=["event_date"],
                    configuration={
                        "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
                        "delta.logRetentionDuration": _LOG_RETENTION,
                    },
                    storage_options=options,
                    commit_properties=CommitProperties(custom_metadata=_OURS),
                )
            except DeltaError as error:
                try:
                    return DeltaTable(url, storage_options=options)  # another process was quicker
                except TableNotFoundError:
                    raise error from None
        return DeltaTable(url, storage_options=options)

"""One streaming query over a source and its passes: the query that a group's games share, or one game's own."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from listeners.sample import Lane, PassResult
from listeners.stream_id import StreamId
from pipeline.base.failpoints import hit
from pipeline.data.pins import SetInUse, pin_set
from pipeline.data.streams.checkpoint import can_resume, reads_from
from pipeline.data.streams.definition import StreamSource
from pipeline.data.streams.outage import CachedRegistry, tolerate_store_outage
from pipeline.data.streams.passes import Outcome, Passes
from pipeline.data.streams.roster import Roster
from pipeline.data.streams.stream import Stream
from pipeline.health.verdicts.latency import Start
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Settings

POOL_OF_PASSES = "pass"
POOL_OF_CATCH_UP = "catch-up"
"""Scheduler pools, see pools.xml: a pass gets the next free core before a catch-up does."""

_STOP_SECONDS = 120.0

Publish = Callable[[PassResult], None]
Wanted = Callable[[Collection[Stream]], None]


class Stopping(Exception):
    """The query is stopping, so no further pass starts."""


@dataclass(frozen=True, slots=True)
class DemuxContext:
    """The state that all queries of one driver share."""

    spark: SparkSession
    settings: Settings
    roster: Roster
    schemas: CachedRegistry
    publish: Publish
    wanted: Wanted = lambda _streams: None  # asks registries for what these streams wait for
    start: Start = field(default_factory=Start)  # of the shared query, which catch-up works for too


class Demux:
    """A query and its passes. The cursors are in the tables, so nothing depends on its checkpoint."""

    def __init__(
        self, driver: DemuxContext, stream_id: StreamId, checkpoint: Path, source: StreamSource, passes: Passes
    ) -> None:
        """Prepare a query; it starts with `start`. A query of kind `game` reads that game only."""
        self._driver, self._id, self._checkpoint = driver, stream_id, checkpoint
        self._source, self._passes = source, passes
        self._key = stream_id.name if stream_id.kind == "game" else None
        self._query_folder = located(checkpoint / "query")
        self._batches = source.batches(self._key, self._query_folder, once=False)
        self._start = driver.start if self._key is None else Start()
        self._gate = threading.Lock()  # held during a pass
        self._stopping = threading.Event()
        self._fresh = True  # the next micro-batch may be a replay
        self._resumed = False  # from a checkpoint, which another driver may have moved since
        self._first_version: int | None = None  # of bronze, that a new checkpoint begins with
        self.frontier_seq = 0  # the last bronze seq passed; the next micro-batch may have more files of it
        self._whole_seq = 0  # the last seq without further files
        # Complete at the end of the last pass: what they lack is in the next one.
        self._along: Mapping[str, Stream] = {}
        self.pass_since: float | None = None  # when the running pass began
        self._ceiling = 0  # the running pass reads up to this bronze seq
        self.set_in_use = SetInUse()
        self.query: StreamingQuery | None = None

    def start(self, *, once: bool) -> StreamingQuery:
        """Start the query; with `once` it ends when everything that was in bronze at its start has passed."""
        self._start.note(time.time())
        head, log = self._source.head(), self._source.table
        self._batches = self._source.batches(self._key, self._query_folder, once=once)
        self._fresh = True
        self._resumed = can_resume(self._checkpoint / "query", log)
        if not self._resumed:
            # Catch-up reads the rows before the first micro-batch (law L2).
            self._along, self._whole_seq = {}, head
            self.frontier_seq = self._whole_seq
            self._first_version = log.version
        writer = (
            self._batches.frame()
            .writeStream.queryName(self._id.query_name)
            # With its scheme: a cluster's default file system may be another than this machine's.
            .option("checkpointLocation", f"file:{self._checkpoint / 'query'}")
            .foreachBatch(self._batch)
        )
        self._driver.spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL_OF_PASSES)
        poll = f"{self._batches.poll_seconds} seconds"
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=poll)
        self.query = writer.start()
        return self.query

    def stop(self) -> None:
        """End the query after the running pass; `query.stop` alone would interrupt a pass.

        Raises:
            TimeoutError: the pass does not end; nothing may be handed over.
        """
        self._stopping.set()
        if not self._gate.acquire(timeout=_STOP_SECONDS):
            raise TimeoutError(f"the pass of {self._id.query_name} has not ended within {_STOP_SECONDS:.0f} s")
        self._gate.release()
        if self.query is not None:
            self.query.stop()

    def try_stop(self) -> bool:
        """Let no further pass start, and end the query if none is running; return whether it has ended.

        The query does not continue after this request: callers repeat it until the query has ended, then start another.
        """
        self._stopping.set()
        if not self._gate.acquire(blocking=False):
            return False
        self._gate.release()
        if self.query is not None:
            self.query.stop()
        return True

    @property
    def is_stopping(self) -> bool:
        """Whether its end was requested."""
        return self._stopping.is_set()

    @property
    def reach_seq(self) -> int:
        """The last bronze seq that will have passed when the running pass ends; without one, that has passed."""
        return max(self.frontier_seq, self._ceiling)

    def reads_from(self) -> int | None:
        """Return the version of bronze that the query reads next, also after a restart; None where unknown."""
        found = reads_from(self._query_folder)
        return self._first_version if found is None else found

    def advance(self, seq: int) -> None:
        """Count everything up to a seq as passed: bronze has not grown while the query had time to read it."""
        self.frontier_seq = max(self.frontier_seq, seq)
        self._whole_seq = max(self._whole_seq, seq)

    def due(self, stream: Stream) -> int:
        """Return the seq up to which a stream must be complete, or no pass of this query will complete it.

        Spark may end a micro-batch amid the files of a seq: the rest of it is not due for streams that were complete in
        the last pass.
        """
        went_along = self._along.get(stream.game_key) is stream
        return self._whole_seq if went_along else self.frontier_seq

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        """Run one pass. Every game's cursor makes it idempotent; the batch id only names the pinned schema set."""
        with self._gate:
            if self._stopping.is_set():
                raise Stopping
            started = self.pass_since = time.time()
            self.set_in_use.choosing()
            try:
                self._pass(frame, batch_id, started)
                self._start.end(time.time())
            finally:
                self.set_in_use.end()
                self._driver.roster.end_pass(self._key)
                self.pass_since = None
                self._ceiling = 0

    def _pass(self, frame: DataFrame, batch_id: int, started: float) -> None:
        heard = False
        with tolerate_store_outage("the driver keeps its streams"):
            self._driver.roster.sync()
            heard = True
        pinned = pin_set(self._query_folder / "pins", batch_id, self._driver.schemas.latest)
        self.set_in_use.chosen(pinned.version)
        hit("after_schema_pin")
        streams = self._driver.roster.for_pass(self.frontier_seq, self._key)
        rows = self._batches.rows(frame, batch_id)
        self._ceiling = self._source.head()  # after the rows were planned, which thus are of the same table
        schemas = self._driver.schemas.snapshot(pinned)
        whole = {key for key, stream in streams.items() if self._is_whole(stream, heard=heard)}
        if streams:
            read_since = self._start.over_at
            outcome = self._passes.apply(rows, streams, schemas, Lane.RUN, repeated=self._fresh, read_since=read_since)
        else:  # all of them are behind: catch-up needs the processors
            outcome = Outcome(rows.last_seq(), [], {}, {}, {})
        self._fresh = False
        landed = committed(outcome)
        whole -= {key for key in whole if streams[key].behind}  # those whose rows of this pass did not land
        self._end_pass({key: streams[key] for key in whole.union(landed)}, outcome.seq_to or 0)
        with tolerate_store_outage("failures are not recorded"):
            self._driver.roster.settle(outcome.failures, landed, len(streams))
        run_id = self._driver.spark.sparkContext.getLocalProperty("spark.jobGroup.id") or ""
        self._driver.publish(
            pass_result(self._driver.roster.group, outcome, started, run_id, batch_id, self.frontier_seq, rows.count)
        )
        self._driver.wanted([streams[key] for key in outcome.waits])
        hit("after_table_commits")

    def _end_pass(self, whole: Mapping[str, Stream], read_to: int) -> None:
        """Record how far the complete streams are, up to a seq that may have more files.

        Not up to the frontier: `advance` may have counted more as passed than was read.
        """
        for stream in whole.values():  # all of a game's rows of one seq lie in one file (law L2)
            stream.complete_through = max(stream.complete_through, stream.cursor, read_to - 1)
        self._along, self._whole_seq = whole, max(self._whole_seq, read_to - 1)
        self.frontier_seq = max(self.frontier_seq, read_to)  # last: a stream without these rows is behind

    def _is_whole(self, stream: Stream, *, heard: bool) -> bool:
        """Return whether a stream has all rows of its game that bronze held before the pass that starts.

        A query that has just started does not know its position. The store has ingest's reports then: ingest reports
        a commit before it makes the next one, so all commits before this pass are reported.
        """
        if self.frontier_seq == 0 or (self._fresh and self._resumed):
            return heard and stream.last_seq <= stream.complete_through
        return self.due(stream) <= stream.complete_through


def committed(outcome: Outcome) -> list[str]:
    """Return the games whose cursor moved."""
    return [result.game_key for result in outcome.results if result.committed_at is not None]


def pass_result(
    group: str,
    outcome: Outcome,
    started: float,
    run_id: str,
    batch_id: int,
    frontier_seq: int,
    input_rows: int | None = None,
) -> PassResult:
    """Return the report of a pass or chunk."""
    return PassResult(
        group=group,
        run_id=run_id,
        batch_id=batch_id,
        started_at=started,
        finished_at=time.time(),
        frontier_seq=frontier_seq,
        games=tuple(outcome.results),
        phases_seconds=outcome.phases,
        input_rows=input_rows,
    )

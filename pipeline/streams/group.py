"""A cluster group's streams on one driver: the demux query, its passes, and catch-up between them.

One lock orders passes and catch-up chunks, so a stream is never in both. Who is behind is worked out again and
again from cursors and chains; nothing durable says it (law L7).
"""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from sqlalchemy import Engine

from listeners.sample import PassResult
from listeners.stream_id import StreamId
from pipeline import names
from pipeline.bronze import BRONZE
from pipeline.contracts.registry import LocalRegistry
from pipeline.delta_table import CursorTable
from pipeline.pins import pin
from pipeline.quarantine import QUARANTINE
from pipeline.settings import Paths, Settings
from pipeline.store.games import assigned
from pipeline.streams.passes import Outcome, Passes
from pipeline.streams.stream import Stream, stream_of

_COMMIT_THREADS = 4  # commits wait for storage, not for processors
_CATCHUP_GAMES = 200  # most games one chunk reads together


class Stopping(Exception):
    """The group is being stopped: the pass that would begin now does not."""


class Group:
    """The streams one driver carries."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        paths: Paths,
        engine: Engine,
        name: str,
        tell: Callable[[PassResult], None],
    ) -> None:
        """Open the tables of the group's games; the query starts with `start`."""
        self._spark, self._settings, self._paths, self._engine = spark, settings, paths, engine
        self.name = name
        self._tell = tell
        self._registry = LocalRegistry(engine)
        self._checkpoint = paths.checkpoints / "demux" / name
        self._bronze = CursorTable.create(paths.bronze, BRONZE, names.bronze_app_id(settings.environment))
        quarantine = CursorTable.create(
            paths.quarantine, QUARANTINE, f"turnout/{settings.environment}/quarantine/{name}"
        )
        self._pool = ThreadPoolExecutor(_COMMIT_THREADS, thread_name_prefix="commit")
        self._passes = Passes(paths, quarantine, self._pool)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._fresh = True  # the next micro-batch may be a replay
        self.streams: dict[str, Stream] = {}
        self.frontier_seq = 0
        self.pass_since: float | None = None  # when the running pass began
        self.sync()

    def start(self, *, once: bool) -> StreamingQuery:
        """Start the demux query; with `once` it ends when everything that was in bronze at its start is passed."""
        self._bronze.refresh()
        self._fresh = True
        if not (self._checkpoint / "query" / "offsets").exists():
            # What lies before the first micro-batch is catch-up's (law L2).
            self.frontier_seq = self._bronze.cursor or 0
        frame = (
            self._spark.readStream.format("delta")
            .option("startingVersion", self._bronze.version)
            .option("maxBytesPerTrigger", self._settings.demux.max_bytes)
            .option("failOnDataLoss", "true")
            .load(str(self._paths.bronze))
        )
        writer = (
            frame.writeStream.queryName(StreamId("demux", self.name).query_name)
            .option("checkpointLocation", str(self._checkpoint / "query"))
            .foreachBatch(self._batch)
        )
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._settings.demux.trigger_seconds} seconds").start()

    def stop(self) -> None:
        """Let the running pass end and no further one begin."""
        self._stopping.set()
        with self._lock:
            self._pool.shutdown()

    def sync(self) -> None:
        """Take on games that were assigned to this group and drop those that were moved away."""
        wanted = {assignment.game_key: assignment for assignment in assigned(self._engine, self.name)}
        for key in self.streams.keys() - wanted.keys():
            del self.streams[key]
        for key, assignment in wanted.items():
            known = self.streams.get(key)
            if known is None or known.generation != assignment.generation:
                self.streams[key] = stream_of(
                    assignment,
                    self._settings.environment,
                    self._paths.table(key),
                    self._settings.demux.checkpoint_interval,
                )
            else:
                known.last_seq = max(known.last_seq, assignment.last_seq)

    def bronze_head(self) -> int:
        """Return the last seq in bronze now."""
        with self._lock:
            self._bronze.refresh()
            return self._bronze.cursor or 0

    def advance_frontier(self, seq: int) -> None:
        """Count everything up to a seq as passed: bronze has not grown while the query had time to read it."""
        with self._lock:
            self.frontier_seq = max(self.frontier_seq, seq)

    def finish(self) -> None:
        """Catch up with everything in bronze, after a bounded run; streams that fail stay behind with their error."""
        self.advance_frontier(self.bronze_head())
        while self.catch_up():
            pass

    def catch_up(self) -> bool:
        """Read one bounded chunk of bronze for the streams that are behind; tell whether there was one (law L7)."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.sync()
            behind = self._behind()
            if not behind:
                return False
            low = min(stream.complete_through for stream in behind)
            high = min(low + self._settings.demux.catchup_seqs, self.frontier_seq)
            chunk: dict[str, Stream] = {stream.game_key: stream for stream in behind if stream.complete_through < high}
            frame = self._spark.read.format("delta").load(str(self._paths.bronze))
            within = (F.col("seq") > low) & (F.col("seq") <= high) & F.col("game_key").isin(list(chunk))
            started = time.time()
            schemas = self._registry.snapshot()
            outcome = self._passes.apply(frame.where(within), chunk, schemas, "CATCHUP", repeated=True)
            self._settle_chunk(chunk.values(), high, outcome)
            self._tell(self._result(outcome, started, "catch-up", -1))
            return True
        finally:
            self._lock.release()

    def _behind(self) -> list[Stream]:
        """Return the streams whose rows at or below the frontier the pass will not bring again."""
        now = time.time()
        for stream in self.streams.values():
            if stream.complete_through < min(stream.last_seq, self.frontier_seq):
                stream.behind = True
        behind = [stream for stream in self.streams.values() if stream.behind and stream.retry_at <= now]
        for stream in behind:
            if stream.complete_through >= self.frontier_seq and stream.error is None:
                stream.behind = False
        behind = [stream for stream in behind if stream.behind]
        return sorted(behind, key=lambda stream: stream.complete_through)[:_CATCHUP_GAMES]

    def _settle_chunk(self, chunk: Iterable[Stream], high: int, outcome: Outcome) -> None:
        """A stream whose chunk was committed, or held nothing for it, is complete up to the chunk's end."""
        failed = {result.game_key: result for result in outcome.results if result.committed_at is None}
        for stream in chunk:
            result = failed.get(stream.game_key)
            if result is None:
                stream.complete_through = max(stream.complete_through, high)
                stream.error = None
                stream.behind = stream.complete_through < self.frontier_seq
            elif result.error is None:
                stream.reopen()  # the chain does not connect: another owner moved the cursor, or bronze has a gap
                stream.fail(f"bronze rows above seq {stream.cursor} do not connect to the table's cursor", time.time())

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        """Run one pass. Every game's cursor makes it idempotent; the batch id only names the pinned schema set."""
        while not self._lock.acquire(timeout=0.2):
            if self._stopping.is_set():
                raise Stopping
        try:
            if self._stopping.is_set():
                raise Stopping
            started = self.pass_since = time.time()
            self.sync()
            version = pin(self._checkpoint / "pins", batch_id, self._registry.latest_version)
            running = {key: stream for key, stream in self.streams.items() if not stream.behind}
            outcome = self._passes.apply(frame, running, self._registry.snapshot(version), "RUN", repeated=self._fresh)
            self._fresh = False
            if outcome.seq_to is not None:
                self.frontier_seq = max(self.frontier_seq, outcome.seq_to)
            run_id = self._spark.sparkContext.getLocalProperty("spark.jobGroup.id") or ""
            self._tell(self._result(outcome, started, run_id, batch_id))
        finally:
            self.pass_since = None
            self._lock.release()

    def _result(self, outcome: Outcome, started: float, run_id: str, batch_id: int) -> PassResult:
        return PassResult(
            group=self.name,
            run_id=run_id,
            batch_id=batch_id,
            started_at=started,
            finished_at=time.time(),
            frontier_seq=self.frontier_seq,
            games=tuple(outcome.results),
            phases_seconds=outcome.phases,
        )

"""The ingest query: wrappers from the source become rows of bronze, exactly once, with seq, pos and prev_seq.

Started by the ingest process. It decodes no payloads and does not know groups.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from sqlalchemy import Engine

from listeners.stream_id import StreamId
from pipeline.base import names
from pipeline.base.errors import Refused, Transient
from pipeline.base.failpoints import hit
from pipeline.base.names import GameKey
from pipeline.data import query_log
from pipeline.data.contracts.registries.notes import Need
from pipeline.data.ingest import checkpoint, restored
from pipeline.data.ingest.adopt import take_over
from pipeline.data.ingest.backlog import BronzePosition
from pipeline.data.ingest.batch_attempts import BatchAttempts, give_up_open
from pipeline.data.ingest.batch_checks import BatchChecks
from pipeline.data.ingest.bronze_progress import PLAN
from pipeline.data.ingest.bronze_writer import IngestJob, SourceJob, land
from pipeline.data.ingest.checkpoint import LandedBatches
from pipeline.data.ingest.evidence.kept import KeptMarks
from pipeline.data.ingest.identity import each_position, each_source
from pipeline.data.ingest.last_seqs import read_last_seqs, write_snapshot
from pipeline.data.ingest.onboarding import Onboarding
from pipeline.data.ingest.profiled import NeedId, NumberedProfile
from pipeline.data.ingest.profiles import DEFAULT, Profiles, configured
from pipeline.data.ingest.source_checks import record_parts, refuse_closed, verify_source
from pipeline.data.ingest.sources.kind import Begin, RowsOf, as_they_come
from pipeline.data.ingest.sources.supported import configured_source
from pipeline.data.ingest.sources.topic_again import OVERFLOW
from pipeline.data.pins import pin
from pipeline.health.facts.placing import placing_by
from pipeline.health.verdicts.latency import Start
from pipeline.lake.delta import lost_seqs
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.environment import require_own
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.settings.tree import Paths, Settings
from pipeline.store.games import record_last_seqs, record_seen
from pipeline.store.processes.drivers import record_commit
from pipeline.store.sources import generations, identity

Batches = Iterator[pa.RecordBatch]

_log = logging.getLogger("turnout")

_SNAPSHOT_EVERY = 100  # batches between two snapshots of the heads
_MOST_NOTED = 2_000  # needs that each task is given, so that it does not report them again


@dataclass(frozen=True, slots=True)
class LandedRows:
    """The rows that one micro-batch put into bronze."""

    seq: int
    rows: int
    refused: Mapping[str, int]  # by reason code
    oldest_source_at: float | None  # None when unknown
    committed_at: float
    seconds: float
    clocks: Mapping[str, int]  # rows by whose clock their source time is: broker, producer, landing, unknown


class Ingest:
    """One source's way into bronze. Only one may run at a time: when two commit at once, one fails."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        paths: Paths,
        engine: Engine,
        publish: Callable[[LandedRows], None],
        note: Callable[[Collection[Need]], None] = lambda _: None,
    ) -> None:
        """Open bronze and quarantine and find this source's position; `note` gets the schemas that games need.

        Raises:
            Refused: bronze is another environment's, or the source cannot be read.
        """
        require_own(paths.bronze, settings.environment)
        self._source = configured_source(settings, paths)
        self._source.check()
        self._spark, self._settings, self._paths, self._engine = spark, settings, paths, engine
        self._publish, self._note = publish, note
        self._onboarding = Onboarding(engine, settings.onboarding)
        self._generation = take_over(settings, paths, engine, self._source)
        self._batch_app = names.ingest_app_id(settings.environment, self._generation)
        self._checkpoint = paths.ingest / str(self._generation)
        self._bronze = CursorTable.create(paths.bronze, BRONZE, names.bronze_app_id(settings.environment))
        restored.heed_restores(self._bronze)
        # Delta-rs would accept a file with a column that the table lacks, and lose the column.
        self._bronze.add_missing_columns(BRONZE)
        self._streams = len(self._source.members)
        self._profiles = Profiles(engine, self._bronze, *(configured(settings, each) for each in self._source.settings))
        self._noted: set[NeedId] = set()
        self._arrival_times = [each.arrival_times() for each in self._source.members]
        self._quarantine = CursorTable.create(paths.quarantine, QUARANTINE, f"{self._batch_app}/quarantine")
        self._quarantine.add_missing_columns(QUARANTINE)
        self._placing = placing_by(settings)
        self._batch_attempts = BatchAttempts(self._quarantine, self._bronze, self._batch_app)
        self._snapshot = restored.snapshot_file(paths)
        self._rows_of: RowsOf = as_they_come
        self._begin: Begin | None = None  # of the run
        self._checks: BatchChecks | None = None  # of the run; none where a broker cannot be asked
        self._parts: AbstractSet[str] = frozenset()  # of several sources, those that are recorded
        self.place: BronzePosition | None = None  # bronze's position in the source; None before the first start
        self._start = Start()
        self._read_last_seqs()

    @property
    def head_seq(self) -> int:
        """The last seq in bronze, 0 when it is empty."""
        return self._bronze.cursor or 0

    def look_at_head(self) -> int:
        """Return the same after a look at what others have committed.

        Raises:
            RolledBack: one of them is a restore that removed rows.
        """
        self._bronze.refresh()
        return self.head_seq

    def start(self, *, once: bool) -> StreamingQuery:
        """Start the query; with `once` it ends when everything that was in the source at its start has landed.

        Raises:
            Refused: the source or the checkpoint was replaced, or has lost unread records.
            Transient: the broker does not answer.
        """
        self._start.note(time.time())
        for table in (self._bronze, self._quarantine):
            table.refresh()
            table.settle()
        landed = LandedBatches(self._bronze.transaction_version(self._batch_app), self._quarantine.cursor)
        query = self._checkpoint / "query"
        begin = verify_source(self._settings, self._paths, self._engine, self._generation, self._bronze, query, landed)
        self.place = BronzePosition(checkpoint.passed_offset(query, landed, self._streams), begin.position)
        self._parts = frozenset(each_source(self._source.description, begin.seen) if begin.seen else ())
        self._begin, self._checks = begin, None
        if begin.seen is not None:
            kept = KeptMarks(self._checkpoint)
            self._checks = BatchChecks(self._source, self._paths.bronze, kept, landed.bronze, begin)
            self._checks.learn(identity(self._engine, self._generation))
        self._give_up_others()
        self._read_last_seqs()
        record_last_seqs(self._engine, self._last_seqs, self._placing)
        frame, self._rows_of = self._source.read(self._spark, self._settings.ingest, begin)
        writer = (
            frame.writeStream.queryName(StreamId("ingest", "main").query_name)
            .option("checkpointLocation", str(query))
            .foreachBatch(self._batch)
        )
        if once:
            return writer.trigger(availableNow=True).start()
        poll = self._source.poll_seconds(self._settings.ingest.trigger_seconds)
        return writer.trigger(processingTime=f"{poll} seconds").start()

    def close(self) -> None:
        """Save the heads for a quick next start, and the sketch of names without a game."""
        self._onboarding.close()
        if (self._bronze.cursor or 0) == self._last_seqs_at:
            write_snapshot(self._bronze, self._last_seqs, self._snapshot)

    def _read_last_seqs(self) -> None:
        """Read the heads of bronze as it is now; a stale head would break a game's chain."""
        losses = lost_seqs.read(self._bronze.transaction_version, self._settings.environment)
        self._last_seqs = read_last_seqs(self._bronze, self._snapshot, losses)
        self._last_seqs_at = self._bronze.cursor or 0

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        """Land one micro-batch, and record bronze's new position in the source."""
        self._land(frame, batch_id)
        if self.place is not None:
            offset = self._offset(batch_id)
            self.place = None if offset is None else BronzePosition(offset, self.place.begin)

    def _land(self, frame: DataFrame, batch_id: int) -> None:
        """Land one micro-batch. Idempotent: bronze's txn of this generation is the batch id (law L1)."""
        started = time.time()
        self._bronze.refresh()
        done = self._bronze.transaction_version(self._batch_app)
        refuse_closed(self._generation, done)
        if done is not None and done >= batch_id:
            return
        plan = checkpoint.settle(self._checkpoint / "query", batch_id)
        if self._source.is_several:
            self._record_parts(batch_id)
        self._clear_attempt(batch_id)
        expected = self._bronze.cursor
        if (expected or 0) != self._last_seqs_at:
            # Another source was ingested meanwhile, or the last commit succeeded without its report.
            self._read_last_seqs()
        job = self._job(batch_id, (expected or 0) + 1)
        if self._checks is not None:
            self._checks.note_commits(self._source.passed(self._offset(batch_id)))
        reports = self._reports(frame, batch_id, partial(_landed, rows_of=self._rows_of, task=partial(land, job=job)))
        if not reports and done is None:  # a checkpoint lost before the first row landed can begin where it began
            checkpoint.pass_empty(self._checkpoint / "query", self._bronze.table_id, batch_id)
            return
        if self._checks is not None and self.place is not None:  # the rows were read: what they are of stands by now
            before = self._source.passed(self.place.offset) or self.place.begin
            last = [record for report in reports for record in report["last"]]
            self._checks.require_same(batch_id, before, last)
        self._commit(reports, batch_id, expected, plan)
        for report in reports:
            self._remember(report, report["seq"], started)
        if reports:
            self._start.end(time.time())

    def _reports(self, frame: DataFrame, batch_id: int, task: Callable[[Batches], Batches]) -> list[dict[str, Any]]:
        """Run the task on a batch; where one record stops Spark's reader, on the batch as another client reads it."""
        try:
            rows = frame.coalesce(1).mapInArrow(task, "report string").collect()
        except (Py4JJavaError, PySparkException) as error:
            end = self._offset(batch_id)
            if OVERFLOW not in str(error) or end is None or self._begin is None:
                raise
            _log.warning("batch %d has a record whose time Spark cannot hold: it is read by another client", batch_id)
            again = self._source.read_again(self._spark, self._offset(batch_id - 1), end, self._begin)
            rows = again.coalesce(1).mapInArrow(task, "report string").collect()
        return [json.loads(row.report) for row in rows]

    def _offset(self, batch_id: int) -> dict[str, Any] | None:
        return query_log.offset(self._checkpoint / "query" / "offsets" / str(batch_id), self._streams)

    def _record_parts(self, batch_id: int) -> None:
        """Record a topic that has appeared while the query runs, before a row of it lands."""
        passed = self._source.passed(self._offset(batch_id))
        if not each_position(self._source.description, passed).keys() <= self._parts:
            seen = record_parts(self._engine, self._generation, self._source)
            self._parts = frozenset() if seen is None else frozenset(each_source(self._source.description, seen))
            if self._checks is not None:
                self._checks.learn(identity(self._engine, self._generation))

    def _clear_attempt(self, batch_id: int) -> None:
        with self._alone():
            self._batch_attempts.clear(batch_id)

    def _give_up_others(self) -> None:
        """Abandon the unfinished batches of other sources, when the source setting was changed after a kill."""
        others = [number for number, _, _ in generations(self._engine) if number != self._generation]
        apps = [names.ingest_app_id(self._settings.environment, number) for number in others]
        with self._alone():
            give_up_open(self._quarantine, self._bronze, apps)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            yield
        except TableConflict as error:
            raise Refused(f"Another ingest writes to {self._paths.bronze}. Stop one of the two.") from error

    def _job(self, batch_id: int, seq: int) -> IngestJob:
        sources = tuple(self._source_job(batch_id, stream) for stream in range(self._streams))
        games = pin(self._checkpoint / "games", batch_id, lambda: self._onboarding.admit(time.time()))
        hit("after_schema_pin")
        return IngestJob(
            seq=seq,
            last_seqs=self._last_seqs,
            known=self._onboarding.known(games),
            onboarding=self._settings.onboarding,
            prefixes=self._onboarding.prefixes,
            bronze=self._paths.bronze,
            quarantine=self._paths.quarantine,
            bronze_files=self._settings.ingest.bronze_files,
            sources=sources,
        )

    def _source_job(self, batch_id: int, stream: int) -> SourceJob:
        """Return what a task knows of the source of one stream."""
        source, times = self._source.members[stream], self._arrival_times[stream]
        return SourceJob(
            self._profile(batch_id, stream),
            None if times is None else times.read(),
            source.landing,
            source.file_prefix(),
        )

    def _profile(self, batch_id: int, stream: int) -> NumberedProfile | None:
        """Return the profile of a batch, which is pinned before its first write: a repetition takes the same one."""
        if not self._profiles.are_used:
            return None
        # A batch whose games are pinned without a profile began before there were profiles.
        new = DEFAULT if (self._checkpoint / "games" / str(batch_id)).exists() else self._profiles.numbers[stream]
        pins = "profiles" if self._streams == 1 else f"profiles-{stream}"
        number = pin(self._checkpoint / pins, batch_id, lambda: new)
        profile = self._profiles.at(number)
        return None if profile is None else NumberedProfile(number, profile, frozenset(self._noted))

    def _commit(
        self, reports: Sequence[Mapping[str, Any]], batch_id: int, expected: int | None, plan: str | None
    ) -> None:
        """Commit quarantine first, then bronze: a refused row that is visible in bronze is in quarantine.

        A batch without rows is committed as well, without a seq: so bronze has every batch of the checkpoint since the
        first with rows. The commit keeps the batch's planned offsets, should Spark's file of them be lost.
        """
        refused = [DataFile(**report["quarantine"]) for report in reports if report["quarantine"] is not None]
        files = [DataFile(**file) for report in reports for file in report["files"]]
        seq = reports[-1]["seq"] if reports else expected or 0
        if not self._batch_attempts.write(refused, batch_id, (expected or 0) + 1, seq):
            self._batch_attempts.give_up(batch_id)
            raise Transient(f"another attempt has written batch {batch_id} meanwhile: landing it again")
        try:
            note = {} if plan is None else {PLAN: plan}
            self._bronze.commit(files, expected, seq, note, also={self._batch_app: batch_id})
        except TableConflict as error:
            raise Refused(
                f"Another ingest writes to {self._paths.bronze}: seq {seq} is taken. Stop one of the two."
            ) from error
        hit("after_bronze_write")

    def _remember(self, report: Mapping[str, Any], seq: int, started: float) -> None:
        """Report to the control store and the listeners; correctness does not depend on it."""
        self._last_seqs.update(dict.fromkeys(report["counts"], seq))
        self._last_seqs_at = seq
        for times, oldest in zip(self._arrival_times, report["oldest_of_each"], strict=True):
            if times is not None:
                times.consumed(oldest)
        record_seen(self._engine, report["routed"], seq, self._placing)
        self._onboarding.note(report["unknown"], time.time())
        self._ask_for(report["needs"])
        refused = sum(report["reasons"].values())
        read_since = self._start.over_at if math.isfinite(self._start.over_at) else None
        record_commit(self._engine, seq, report["rows"], refused, report["oldest_source_at"], read_since)
        if seq % _SNAPSHOT_EVERY == 0:
            self.close()
        now = time.time()
        refusals, oldest = report["reasons"], report["oldest_source_at"]
        self._publish(LandedRows(seq, report["rows"], refusals, oldest, now, now - started, report["clocks"]))

    def _ask_for(self, needs: Sequence[Sequence[Any]]) -> None:
        """Hand over what games need; groups report it again where it gets lost."""
        if not needs:
            return
        if len(self._noted) > _MOST_NOTED:
            self._noted.clear()
        found = [
            Need(GameKey(key), game, registry, bytes.fromhex(writer), seq, pos)
            for key, game, registry, writer, seq, pos in needs
        ]
        self._note(found)
        self._noted.update((need.game_key, need.writer) for need in found)


def _landed(batches: Batches, rows_of: RowsOf, task: Callable[[Batches], Batches]) -> Batches:
    """Read the source's rows and land them."""
    return task(rows_of(batches))

"""The environment's landing table as a source: read by `landing_source`, checked by its own log."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession

from pipeline.base.errors import Refused
from pipeline.data import log_tail
from pipeline.data.ingest import bronze_progress, identity
from pipeline.data.ingest.identity import (
    Commits,
    LandingObservation,
    Position,
    SourceObservation,
    SourceProblem,
    SourceRecord,
)
from pipeline.data.ingest.sources import landing_log
from pipeline.data.ingest.sources.kind import Begin, RowsOf, SampledRecord, SourceKind
from pipeline.data.ingest.sources.landing_backlog import LandingBacklog
from pipeline.data.ingest.sources.landing_files import HEADERS, are_headers, names_in_files, read_files
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.data.ingest.sources.landing_source import LandingReader, LandingSource
from pipeline.data.ingest.sources.landing_times import LandingTimes
from pipeline.data.ingest.sources.landing_witness import LandingWitness
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.delta.opening import create, open_table
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from pipeline.settings.parsing import parse_bytes
from pipeline.settings.source import Source, source_described
from pipeline.settings.tree import Ingest
from pipeline.store.sources import Identity


class Landing:
    """The landing table in the environment's folder, or another one."""

    beginning = Commits(0)
    is_several = False

    def __init__(self, source: Source, landing: Location) -> None:
        """Keep the folder; reads nothing yet."""
        self.settings = (source,)
        self.landing = self._landing = located(source.path) if source.path else landing
        self._prefix: str | None = None
        self._needs_headers = source.routing.startswith("header:")

    @property
    def description(self) -> str:
        """One line that names it. The environment's own has no path in it: the environment may be moved."""
        return source_described(self.settings[0])

    @property
    def members(self) -> tuple[SourceKind, ...]:
        """The table itself."""
        return (self,)

    def owns(self, described: str) -> bool:
        """Return whether a description is this table's."""
        return described == self.description

    def file_prefix(self) -> str:
        """Return what stands before names of its files in bronze: tables may have files of one name."""
        if self._prefix is None:  # read once: the reader ends where the table has another id
            own = not self.settings[0].path
            self._prefix = "" if own else f"{bronze_progress.FOREIGN}{open_table(self._landing).metadata().id}/"
        return self._prefix

    def is_namesake(self, description: str, own: str) -> bool:  # noqa: ARG002 - the kinds' signature
        """Return False: rows of two landing tables differ by their files' names."""
        return False

    def check(self) -> None:
        """Refuse a table with wrong columns; create the environment's own where there is none."""
        try:
            columns = {field.name: field.type for field in pa.schema(open_table(self._landing).schema().to_arrow())}
        except TableNotFoundError as error:
            if self.settings[0].path:
                raise Refused(f"There is no landing table {self._landing}. Create it, or correct its path.") from error
            wanted = LANDING.append(BRONZE.field(HEADERS)) if self._needs_headers else LANDING
            create(self._landing, wanted)
            return
        wrong = any(columns.get(field.name) != field.type for field in LANDING)
        headers = columns.get(HEADERS)
        lacks_headers = self._needs_headers if headers is None else not are_headers(headers)
        if wrong or lacks_headers:
            expected = ", ".join(f"{field.name} {field.type}" for field in LANDING)
            if lacks_headers:
                expected += f", {HEADERS} map<string, binary> or list of struct of key: string, value: binary"
            present = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            raise Refused(
                f"The landing table {self._landing} has the wrong columns: expected {expected}; found {present}."
            )

    def observe(self, position: Position | None) -> SourceObservation | None:
        """Read the table's log."""
        return landing_log.observe_landing(self._landing, position if isinstance(position, Commits) else None)

    def judge(self, known: SourceRecord, position: Position, seen: SourceObservation) -> SourceProblem | None:
        """Compare the table's commits with those that were read."""
        if not isinstance(seen, LandingObservation) or not isinstance(position, Commits):
            raise TypeError(f"a position {position} does not belong to a source {seen}")
        return identity.judge_landing(known, position, seen)

    def first(self, seen: SourceObservation | None) -> Position | None:
        """Return the first commit; a table with other changes than appends begins with a snapshot."""
        if not isinstance(seen, LandingObservation):
            return None
        return Commits(0 if seen.first == 0 and not seen.changed and not seen.missing else None)

    def passed(self, offset: Mapping[str, Any] | None) -> Position | None:
        """Return the next commit; a snapshot is followed by the commit after it."""
        if offset is None:
            return None
        return Commits(offset["reservoirVersion"] + bool(offset["isStartingVersion"]))

    def id_in(self, offset: Mapping[str, Any] | None) -> str | None:
        """Return the table's id, which a checkpoint on it has, too."""
        return None if offset is None else str(offset["reservoirId"])

    def begin_behind(self, start: Position | None, seen: SourceObservation | None) -> Mapping[str, Any] | None:
        """Return the offset of a commit that does not exist yet, which no option of Spark can name."""
        if not isinstance(start, Commits) or not isinstance(seen, LandingObservation):
            return None
        return log_tail.offset(seen.id, start.version or 0) if (start.version or 0) > seen.last else None

    def offset_at(self, position: Position, seen: SourceObservation) -> Mapping[str, Any]:
        """Return a position as Spark's offset."""
        if not isinstance(position, Commits) or not isinstance(seen, LandingObservation):
            raise TypeError(f"a position {position} does not belong to a source {seen}")
        if position.version is None:
            return log_tail.offset(seen.id, seen.last, is_starting=True)
        return log_tail.offset(seen.id, position.version)

    def require_readable(self, position: Position, seen: SourceObservation) -> None:
        """Do nothing: a commit is there or not."""

    def end_of_bronze(
        self, bronze: Location, known: Mapping[str, Identity], seen: SourceObservation,
        checkpointed: Callable[[], Position | None],
    ) -> tuple[Position, SourceObservation]:  # fmt: skip
        """Return the commit after the last one in bronze; of a table that was made again, where the old one was left.

        Bronze has file names, and a table that was made again no longer has a log with their commits.
        """
        one = known.get(self.description)
        if one is None:
            return Commits(0), seen
        start = identity.parse(one.start) if one.start else None
        if one.source_id not in {None, seen.id}:
            return checkpointed() or start or Commits(0), seen
        position = self._after_bronze(bronze, one, start)
        return position, self.observe(position) or seen

    def _after_bronze(self, bronze: Location, known: Identity, start: Position | None) -> Commits:
        """Return the commit after the last one in bronze; for a partly landed commit, itself without landed files."""
        begun = start if isinstance(start, Commits) else Commits(0)
        prefix = self.file_prefix()
        if begun.version is None:  # a snapshot is not read in the order of commits: the file names show what has landed
            every = bronze_progress.last_commit(bronze, known.since_seq, {}, prefix)
            done = begun.skip | (every.files if every else frozenset())
            if done <= landing_log.files_now(self._landing):
                return Commits(None, done)
        files = landing_log.files_by_commit(self._landing)
        commit_of = {name: version for version, names in files.items() for name in names}
        last = bronze_progress.last_commit(bronze, known.since_seq, commit_of, prefix)
        if last is None:
            return begun
        done = last.files | begun.skip
        if last.version >= 0:
            here = set(files[last.version])
            return Commits(last.version, done & here) if here - done else Commits(last.version + 1)
        return Commits(None, done)  # the log has lost the commit of the last file; the names of all landed files do

    def read(self, spark: SparkSession, ingest: Ingest, begin: Begin) -> tuple[DataFrame, RowsOf]:
        """Return the table's files as a stream, and what reads them.

        Raises:
            Refused: the table has the wrong columns, or deletion vectors where it is read as it is; or this Spark lacks
                what reads it.
        """
        if not log_tail.is_supported():
            raise Refused(
                f"Spark {pyspark.__version__} cannot read a landing table: it needs 4.2. Use Databricks Runtime 19 or "
                f"newer, or a source of kind 'kafka'."
            )
        self.check()
        table = open_table(self._landing)
        start = begin.position if isinstance(begin.position, Commits) else Commits(0)
        is_starting = start.version is None and not begin.resumes
        if is_starting and any(batch.num_rows for batch in table.deletion_vectors()):
            raise Refused(
                f"The landing table {self._landing} has deletion vectors, which ingest cannot read in a snapshot. "
                f"Rewrite those files (REORG TABLE ... APPLY (PURGE)), then start ingest."
            )
        options = {
            "landing": str(self._landing),
            "id": str(table.metadata().id),
            "version": str(table.version() if start.version is None else start.version),
            "is_starting": json.dumps(is_starting),
            "known_to": str(table.version()),
            "max_bytes": str(parse_bytes("ingest.max_bytes", ingest.max_bytes)),
            "trigger_seconds": str(ingest.trigger_seconds),
        }
        spark.dataSource.register(LandingSource)
        frame = spark.readStream.format(LandingSource.name()).options(**options).load()
        return frame, partial(read_files, landing=self._landing, columns=names_in_files(table), skip=start.skip)

    def poll_seconds(self, trigger_seconds: float) -> float:
        """Return the seconds between two looks for the next commit; the reader keeps batches apart."""
        return log_tail.poll_seconds(self._landing, trigger_seconds)

    def backlog(self) -> LandingBacklog:
        """Return what counts the waiting commits."""
        return LandingBacklog(self._landing, self.description)

    def read_again(
        self, spark: SparkSession, start: Mapping[str, Any] | None, end: Mapping[str, Any], begin: Begin
    ) -> DataFrame:
        """Return the files between two offsets, for a batch whose records of another source are read again."""
        if start is None:
            seen = begin.seen or landing_log.observe_landing(self._landing, None)
            start = self.offset_at(begin.position or Commits(0), seen)
        reader = LandingReader(self._landing, dict(start), open_table(self._landing).version(), 0, 0.0)
        files = list(reader.readBetweenOffsets(dict(start), dict(end)))
        return spark.createDataFrame(files, "topic string")

    def witness(self) -> LandingWitness:
        """Return what compares commits of its log."""
        return LandingWitness(self._landing)

    def arrival_times(self) -> LandingTimes:
        """Return the times at which files were added."""
        return LandingTimes(self._landing)

    def sample(self, most: int) -> list[SampledRecord]:
        """Return rows of the newest files."""
        try:
            table = open_table(self._landing)
        except TableNotFoundError as error:
            raise Refused(
                f"There is no landing table {self._landing}. Write records to it, or set source.kind."
            ) from error
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        actions.sort(key=lambda action: (action["modification_time"], action["path"]), reverse=True)
        records: list[SampledRecord] = []
        columns = names_in_files(table)
        for action in actions:
            files = iter([pa.record_batch({"topic": [action["path"]]})])
            for batch in read_files(files, self._landing, columns, frozenset()):
                values, keys, headers = (batch.column(name).to_pylist() for name in ("value", "key", HEADERS))
                records += [
                    SampledRecord(value, key, tuple((each["key"] or "", each["value"]) for each in given or ()))
                    for value, key, given in zip(values, keys, headers, strict=True)
                ]
                if len(records) >= most:
                    return records[:most]
        return records

    def prober(self, described: str) -> None:
        """Return None: no broker is involved."""

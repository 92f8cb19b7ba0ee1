"""The source of wrappers: a Kafka topic or a Delta landing table, read as one streaming DataFrame."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.delta.log import commits_after
from pipeline.delta.opening import open_table
from pipeline.errors import Refused
from pipeline.failpoints import effect
from pipeline.ingest.bronze_writer import INPUT
from pipeline.ingest.identity import Commits, Offsets, TopicObservation, offsets_json
from pipeline.ingest.landing_files import names_in_files, read_files
from pipeline.ingest.landing_log import LANDING, file_name
from pipeline.ingest.landing_source import LandingSource
from pipeline.ingest.source_checks import Begin
from pipeline.ingest.topic import CHECK_ONLY
from pipeline.settings import Ingest, Source

_CONNECT_SECONDS: Final = 5.0
# Spark polls only for existing records, then asks for the partition's ends. That waits for the fetch the client
# has sent ahead on the same connection: at the end of a partition 500 ms by default, for each partition.
_FETCH_WAIT_MS: Final = 10
_LANDING: Final = "landing table"
_LAST_YEAR: Final = 9999  # as for event times
# Spark looks at a batch's size after each row it hands to Python; where a list is null, Arrow walks back over all nulls
# before. No headers are an empty list.
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_CLOCK_SLACK_SECONDS: Final = 3600.0  # by which the clocks of landing's writers may differ


def describe(source: Source) -> str:
    """Return one line that names the source; a new line means a new ingest generation.

    An environment has one landing table, so its path is not part of the name: the environment may be moved.
    """
    if source.kind == "kafka":
        return f"{describe_topic(source.topic)}{source.bootstrap_servers}"
    return _LANDING


def describe_topic(topic: str) -> str:
    """Return the beginning of a topic's description, for any brokers."""
    return f"kafka topic {topic} at "


def check(source: Source, landing: Path) -> None:
    """Check the source before anything is read.

    Raises:
        Refused: it cannot be reached, does not exist, or has the wrong columns.
    """
    if source.kind == "kafka":
        _check_kafka(source)
    else:
        _check_landing(landing)


RowsOf = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Converts the stream of a source to the columns of `bronze_writer.INPUT`, in a task."""


def as_they_come(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the rows of a source whose stream has all columns."""
    return batches


def read(spark: SparkSession, source: Source, ingest: Ingest, landing: Path, begin: Begin) -> tuple[DataFrame, RowsOf]:
    """Return the source as a stream, and the function with which a task gets its rows.

    Without a checkpoint the stream starts at `begin`.

    Raises:
        Refused: the landing table has the wrong columns, or deletion vectors where it is read as it is.
    """
    if source.kind == "kafka":
        return _read_topic(spark, source, ingest, begin), as_they_come
    _check_landing(landing)
    table = open_table(landing)
    start = begin.position if isinstance(begin.position, Commits) else Commits(0)
    is_starting = start.version is None and not begin.resumes
    if is_starting and any(batch.num_rows for batch in table.deletion_vectors()):
        raise Refused(
            f"The landing table {landing} has deletion vectors, which ingest cannot read in a snapshot. Rewrite those "
            f"files (REORG TABLE ... APPLY (PURGE)), then start ingest."
        )
    options = {
        "landing": str(landing),
        "id": str(table.metadata().id),
        "version": str(table.version() if start.version is None else start.version),
        "is_starting": json.dumps(is_starting),
        "known_to": str(table.version()),
        "max_bytes": str(_bytes(spark, ingest.max_bytes)),
    }
    spark.dataSource.register(LandingSource)
    frame = spark.readStream.format(LandingSource.name()).options(**options).load()
    return frame, partial(read_files, landing=landing, columns=names_in_files(table), skip=start.skip)


def _bytes(spark: SparkSession, text: str) -> int:
    """Parse a number of bytes as Spark does, such as 64m."""
    jvm: Any = spark._jvm  # noqa: SLF001 - its only way to it
    return int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(text))


def _read_topic(spark: SparkSession, source: Source, ingest: Ingest, begin: Begin) -> DataFrame:
    starting = source.starting_offsets
    if isinstance(begin.position, Offsets):
        seen = begin.seen if isinstance(begin.seen, TopicObservation) else None
        starting = offsets_json(source.topic, begin.position, seen)
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", source.bootstrap_servers)
        .option("subscribe", source.topic)
        .option("startingOffsets", starting)
        .option("maxOffsetsPerTrigger", ingest.max_rows)
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", source.isolation_level)
        .option("kafka.fetch.max.wait.ms", _FETCH_WAIT_MS)
    )
    for name, value in source.kafka_options.items():
        if (plain := name.removeprefix("kafka.")) not in CHECK_ONLY:
            reader = reader.option(f"kafka.{plain}", value)
    return of_topic(reader.load())


def of_topic(records: DataFrame) -> DataFrame:
    """Return a topic's records, as Spark gives them, with the columns of `bronze_writer.INPUT`."""
    clock = F.when(F.col("timestampType") == 1, "broker").when(F.col("timestampType") == 0, "producer")
    # A record without a time, as very old producers wrote them, comes with the millisecond before 1970; and a producer
    # may claim a year that most readers of the tables cannot hold.
    known = clock.isNotNull() & (F.year("timestamp") <= _LAST_YEAR)
    given = {
        "source_clock": clock,
        "source_time": F.when(known, F.col("timestamp")),
        "headers": F.coalesce("headers", F.array().cast(_HEADERS)),
    }
    return records.withColumns(given).select(*INPUT)


class LandingTimes:
    """Adds the time at which each landing file was added: the source's commit time, which Spark's stream lacks."""

    def __init__(self, landing: Path) -> None:
        """Prepare; reads nothing yet."""
        self._landing = landing
        self._version: int | None = None
        self._times: dict[str, int] = {}

    def read(self) -> Mapping[str, int]:
        """Return file name → time in microseconds of every file that may still be unread.

        The first call reads the whole table, later ones only its new commits.
        """
        if self._version is None:
            table = open_table(self._landing)
            actions = pa.table(table.get_add_actions(flatten=True))
            files = zip(
                actions.column("path").to_pylist(), actions.column("modification_time").to_pylist(), strict=True
            )
            self._times = {file_name(path, self._landing): ms * 1000 for path, ms in files}
            self._version = table.version()
        for version, commit in commits_after(self._landing, self._version):
            added = [action["add"] for action in commit if "add" in action]
            self._times.update({file_name(add["path"], self._landing): add["modificationTime"] * 1000 for add in added})
            self._version = version
        return self._times

    def consumed(self, oldest_source_at: float | None) -> None:
        """Forget files much older than a finished batch (Unix seconds): commits are read in order."""
        if oldest_source_at is not None:
            floor = (oldest_source_at - _CLOCK_SLACK_SECONDS) * 1e6
            self._times = {name: time for name, time in self._times.items() if time >= floor}


def _check_kafka(source: Source) -> None:
    servers = [server.strip() for server in source.bootstrap_servers.split(",")]
    if not any(_reachable(server) for server in servers):
        raise Refused(
            f"No Kafka broker answers at {source.bootstrap_servers}. Start it, or correct source.bootstrap_servers."
        )


def _reachable(server: str) -> bool:
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit():
        raise Refused(f"source.bootstrap_servers: {server!r} is not host:port.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False


def _check_landing(landing: Path) -> None:
    try:
        columns = {field.name: field.type for field in pa.schema(open_table(landing).schema().to_arrow())}
    except TableNotFoundError:
        with effect("create_table"):
            DeltaTable.create(landing, Schema.from_arrow(LANDING), mode="ignore")
        return
    wrong = [field for field in LANDING if columns.get(field.name) != field.type]
    if wrong:
        expected = ", ".join(f"{field.name} {field.type}" for field in LANDING)
        present = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        raise Refused(f"The landing table {landing} has the wrong columns: expected {expected}; found {present}.")

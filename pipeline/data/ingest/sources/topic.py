"""A Kafka topic as a source: read by Spark's own Kafka reader, checked by its broker's answers."""

import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.base.errors import Refused, Transient
from pipeline.data.ingest import bronze_progress, identity
from pipeline.data.ingest.identity import (
    Offsets,
    Position,
    SourceObservation,
    SourceProblem,
    SourceRecord,
    TopicObservation,
)
from pipeline.data.ingest.sources import topic_observation
from pipeline.data.ingest.sources.kind import (
    HEADERS,
    INPUT,
    Begin,
    Probe,
    RowsOf,
    SampledRecord,
    SourceKind,
    as_they_come,
)
from pipeline.data.ingest.sources.topic_again import ranges, read_again
from pipeline.data.ingest.sources.topic_backlog import TopicBacklog
from pipeline.data.ingest.sources.topic_probe import prober
from pipeline.data.ingest.sources.topic_sample import sample_topic
from pipeline.data.ingest.sources.topic_witness import TopicWitness, witness_of
from pipeline.lake.kafka.connection import CHECK_ONLY
from pipeline.lake.storage.location import Location
from pipeline.settings.source import Source, topic_described
from pipeline.settings.tree import Ingest
from pipeline.store.sources import Identity

_CONNECT_SECONDS: Final = 5.0
# Spark polls only for existing records, then asks for the partition's ends. That waits for the fetch the client
# has sent ahead on the same connection: at the end of a partition 500 ms by default, for each partition.
_FETCH_WAIT_MS: Final = 10
_TOPIC: Final = "kafka topic "
_LAST_YEAR: Final = 9999  # as for event times


class Topic:
    """The topic that the settings name."""

    beginning: Position = Offsets({})
    landing = None
    is_several = False

    def __init__(self, source: Source, landing: Location) -> None:
        """Keep the settings; asks nothing yet."""
        self._source, self._landing = source, landing

    @property
    def description(self) -> str:
        """One line that names the topic and its brokers."""
        return topic_described(self._source.topic, self._source)

    @property
    def settings(self) -> tuple[Source, ...]:
        """The settings."""
        return (self._source,)

    @property
    def members(self) -> tuple[SourceKind, ...]:
        """Itself: Spark reads it as one stream."""
        return (self,)

    def file_prefix(self) -> str:
        """Return nothing: its rows come from no files."""
        return ""

    def owns(self, described: str) -> bool:
        """Return whether a description is this topic's."""
        return described == self.description

    def is_namesake(self, description: str, own: str) -> bool:
        """Return whether it is a topic of the same name as `own` at other brokers: the offsets are ambiguous."""
        named = f"{own.partition(' at ')[0]} at "
        return named.startswith(_TOPIC) and description.startswith(named) and not description.startswith(own)

    def check(self) -> None:
        """Refuse brokers of which none can be reached."""
        servers = [server.strip() for server in self._source.bootstrap_servers.split(",")]
        if not any(_reachable(server) for server in servers):
            raise Refused(
                f"No Kafka broker answers at {self._source.bootstrap_servers}. "
                "Start it, or correct source.bootstrap_servers."
            )

    def observe(self, position: Position | None) -> SourceObservation | None:  # noqa: ARG002 - the kinds' signature
        """Ask the broker; None when it cannot be asked with the given options."""
        return topic_observation.observe_topic(self._source)

    def judge(self, known: SourceRecord, position: Position, seen: SourceObservation) -> SourceProblem | None:
        """Compare partitions and offsets with what was read."""
        if not isinstance(seen, TopicObservation) or not isinstance(position, Offsets):
            raise TypeError(f"a position {position} does not belong to a source {seen}")
        return identity.judge_topic(known, position, seen)

    def first(self, seen: SourceObservation | None) -> Position | None:
        """Return the offsets that the setting asks for."""
        if not isinstance(seen, TopicObservation):
            return None
        return identity.first_offsets(self._source.starting_offsets, seen)

    def passed(self, offset: Mapping[str, Any] | None) -> Position | None:
        """Return the next offset of each partition."""
        if offset is None:
            return None
        return Offsets({int(number): at for number, at in offset[self._source.topic].items()})

    def id_in(self, offset: Mapping[str, Any] | None) -> str | None:  # noqa: ARG002 - the kinds' signature
        """Return None: a checkpoint on a topic lacks its id."""
        return None

    def begin_behind(self, start: Position | None, seen: SourceObservation | None) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Return None: an option names every beginning."""
        return None

    def offset_at(self, position: Position, seen: SourceObservation) -> Mapping[str, Any]:
        """Return a position as Spark's offset, which names every partition."""
        if not isinstance(position, Offsets) or not isinstance(seen, TopicObservation):
            raise TypeError(f"a position {position} does not belong to a source {seen}")
        return {self._source.topic: _after(position, seen)}

    def require_readable(self, position: Position, seen: SourceObservation) -> None:
        """Refuse for now to continue at a position that an open transaction hides; Spark would see a loss."""
        if not isinstance(position, Offsets) or not isinstance(seen, TopicObservation):
            return
        hidden = identity.open_transactions(position, seen)
        if hidden is not None:
            raise Transient(
                f"The Kafka topic {seen.name!r} has an open transaction, and ingest cannot pass the records that it "
                f"has read of it before it ends: {hidden}. Wait until its producer or its transaction.timeout.ms ends "
                f"it."
            )

    def end_of_bronze(
        self, bronze: Location, known: Mapping[str, Identity], seen: SourceObservation,
        checkpointed: Callable[[], Position | None],  # noqa: ARG002 - the kinds' signature
    ) -> tuple[Position, SourceObservation]:  # fmt: skip
        """Return for each partition the offset after the last one in bronze; without rows there, its first offset."""
        if not isinstance(seen, TopicObservation):
            raise TypeError(f"{seen} is no topic")
        one = known.get(self.description)
        if one is None:
            return Offsets(dict(seen.earliest)), seen
        start = identity.parse(one.start) if one.start else None
        same = one.source_id in {None, seen.id}
        begun = dict(start.next) if isinstance(start, Offsets) else {}
        written = {number for number, end in seen.latest.items() if end > begun.get(number, 0)}
        wanted = written if same else set(range(one.partitions or 0))
        last = bronze_progress.last_offsets(bronze, seen.name, one.since_seq, wanted)
        if (
            start is None and same
        ):  # its first offset is unknown: a partition without rows in bronze begins where it can
            begun = dict(seen.earliest)
        return Offsets({**begun, **{number: offset + 1 for number, offset in last.items()}}), seen

    def read(self, spark: SparkSession, ingest: Ingest, begin: Begin) -> tuple[DataFrame, RowsOf]:
        """Return the topic as a stream with all columns."""
        source = self._source
        starting = source.starting_offsets
        if isinstance(begin.position, Offsets):
            seen = {source.topic: begin.seen} if isinstance(begin.seen, TopicObservation) else {}
            starting = identity.offsets_json({source.topic: begin.position}, seen)
        return read_records(spark, ingest, source, ("subscribe", source.topic), starting), as_they_come

    def poll_seconds(self, trigger_seconds: float) -> float:
        """Return the same: at each look, Spark's own reader begins a batch if there are rows."""
        return trigger_seconds

    def backlog(self) -> TopicBacklog:
        """Return what asks the brokers for the backlog."""
        return TopicBacklog(self._source)

    def read_again(
        self, spark: SparkSession, start: Mapping[str, Any] | None, end: Mapping[str, Any], begin: Begin
    ) -> DataFrame:
        """Return the records between two offsets by another client than Spark's."""
        if start is None and isinstance(begin.position, Offsets):
            start = {self._source.topic: {str(number): at for number, at in begin.position.next.items()}}
        return read_again(spark, self._source, ranges(start or {}, end))

    def witness(self) -> TopicWitness | None:
        """Return what asks the brokers for ids and leader epochs."""
        return witness_of(self._source)

    def arrival_times(self) -> None:
        """Return None: each record has its time."""

    def sample(self, most: int) -> list[SampledRecord]:
        """Return some of the newest records of each partition."""
        return sample_topic(self._source, most)

    def prober(self, described: str) -> Probe | None:
        """Return what asks a broker for records between two offsets."""
        if described != self.description:
            return None
        return prober(self._source)


def read_records(
    spark: SparkSession, ingest: Ingest, source: Source, subscription: tuple[str, str], starting: str
) -> DataFrame:
    """Return records with the columns of `INPUT` by Spark's own reader, from its `startingOffsets` on."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", source.bootstrap_servers)
        .option(*subscription)
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
    """Return a topic's records, as Spark gives them, with the columns of `INPUT`."""
    clock = F.when(F.col("timestampType") == 1, "broker").when(F.col("timestampType") == 0, "producer")
    # A record without a time, as very old producers wrote them, comes with the millisecond before 1970; and a producer
    # may claim a year that most readers of the tables cannot hold.
    known = clock.isNotNull() & F.year("timestamp").between(1, _LAST_YEAR)
    given = {
        "source_clock": clock,
        "source_time": F.when(known, F.col("timestamp")),
        "headers": F.coalesce("headers", F.array().cast(HEADERS)),
    }
    return records.withColumns(given).select(*INPUT)


def _after(position: Offsets, seen: TopicObservation) -> dict[str, int]:
    """Return the next offset of every partition."""
    return {str(number): position.next.get(number, 0) for number in sorted(position.next.keys() | seen.earliest.keys())}


def _reachable(server: str) -> bool:
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit():
        raise Refused(f"source.bootstrap_servers: {server!r} is not host:port.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False

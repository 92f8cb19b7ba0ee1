"""A real topic under real ingest: made anew, cut by retention, widened, and adopted after its checkpoint was lost."""

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from pipeline.base.errors import Refused, Transient
from pipeline.data.ingest import adopt as adoption
from pipeline.data.ingest.adopt import Adopted
from pipeline.data.ingest.batch_checks import BatchChecks
from pipeline.data.ingest.bronze_writer import IngestJob
from pipeline.data.ingest.identity import Offsets
from pipeline.data.ingest.query import Ingest
from pipeline.data.ingest.sources import topic_observation
from pipeline.demo.broker import Broker
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.settings.source import Source
from pipeline.settings.tree import Settings, load
from pipeline.store import sources
from pipeline.store.database.engine import open_store

Place = tuple[int, int]


class Stage:
    """One environment on a topic of its own."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, partitions: int = 2) -> None:
        settings, self.paths = load(folder, {})
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        source = Source(kind="kafka", bootstrap_servers=broker.address, topic=self.topic)
        self.settings: Settings = replace(settings, source=source)
        self.engine: Engine = open_store(self.settings, self.paths)
        self._connection: dict[str, Any] = {"bootstrap.servers": broker.address, "log_level": 0}
        self.admin = AdminClient(self._connection)
        self._spark, self._broker = spark, broker
        ensure_topic(broker.address, self.topic, partitions)
        self.await_partitions(partitions)

    def send(self, count: int, *partitions: int) -> None:
        """Send `count` messages to each of the partitions."""
        producer = Producer({**self._connection, "acks": "all"})  # a new one knows the topic's present partitions
        for number in partitions:
            for _ in range(count):
                producer.produce(self.topic, b"no wrapper", partition=number)
        assert producer.flush(30) == 0

    def make_anew(self, partitions: int = 2) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result()
        while self.topic in self.admin.list_topics(timeout=10).topics:
            self.admin.poll(0.05)
        ensure_topic(self._broker.address, self.topic, partitions)
        self.await_partitions(partitions)

    def add_partitions(self, total: int) -> None:
        self.admin.create_partitions([NewPartitions(self.topic, total)])[self.topic].result()
        self.await_partitions(total)

    def await_partitions(self, total: int) -> None:
        """Return when the broker leads each partition; right after a change it says that it does not yet."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with suppress(Transient):
                seen = topic_observation.observe_topic(self.settings.source)
                if seen is not None and len(seen.earliest) == total:
                    return
            self.admin.poll(0.05)
        pytest.fail(f"{self.topic} has no {total} partitions")

    def cut(self, partition: int, before: int) -> None:
        """Remove all records before an offset, as retention does."""
        place = TopicPartition(self.topic, partition, before)
        self.admin.delete_records([place])[place].result()

    def query(self) -> Ingest:
        return Ingest(self._spark, self.settings, self.paths, self.engine, lambda _: None)

    def ingest(self) -> None:
        self.query().start(once=True).awaitTermination()

    def adopt(self, *, accept_loss: bool = False) -> Adopted:
        return adoption.adopt(self.settings, self.paths, self.engine, accept_loss=accept_loss)

    def lose_checkpoint(self) -> None:
        rmtree(self.paths.checkpoints / "ingest")

    def bronze(self) -> Counter[Place]:
        """Count the source positions in bronze."""
        rows: pa.Table = DeltaTable(self.paths.bronze).to_pyarrow_table(columns=["partition", "offset"])
        return Counter(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


@pytest.fixture
def stage(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(spark, broker, tmp_path / "env")
    yield made
    made.engine.dispose()


def once(**ranges: tuple[int, int]) -> Counter[Place]:
    """Return each offset of `p<partition>=(first, end)` once."""
    return Counter((int(name[1:]), at) for name, (first, end) in ranges.items() for at in range(first, end))


def gaps(stage: Stage) -> list[tuple[int | None, int, int | None, str]]:
    return [(gap.partition, gap.first, gap.last, gap.reason) for gap in sources.accepted_gaps(stage.engine)]


def test_a_broker_tells_id_partitions_and_ends(stage: Stage) -> None:
    """Ingest compares with the broker's answers: a new id of a recreated topic, and the end of each partition."""
    stage.send(3, 0)
    before = topic_observation.observe_topic(stage.settings.source)
    assert before is not None
    assert (before.earliest, before.latest) == ({0: 0, 1: 0}, {0: 3, 1: 0})
    stage.cut(0, 2)
    cut = topic_observation.observe_topic(stage.settings.source)
    assert cut is not None
    assert (before.id, {0: 2, 1: 0}) == (cut.id, cut.earliest)
    stage.make_anew(3)
    after = topic_observation.observe_topic(stage.settings.source)
    assert after is not None
    assert before.id != after.id
    assert after.latest == {0: 0, 1: 0, 2: 0}
    with pytest.raises(Refused, match=r"has no topic 'typo'\. Create it"):
        topic_observation.observe_topic(replace(stage.settings.source, topic="typo"))


@pytest.mark.proves("A24", "G15")
def test_a_topic_made_anew_is_refused_before_it_is_read(stage: Stage) -> None:
    """A24: a topic with another id is refused, also when it is longer already; accepted, it is read from its start."""
    stage.send(5, 0, 1)
    stage.ingest()
    stage.make_anew()
    stage.send(20, 0, 1)
    words = rf"topic '{stage.topic}' was deleted and recreated: .*partition 0 offsets from 5 on; partition 1"
    for attempt in (stage.ingest, stage.adopt):
        with pytest.raises(Refused, match=f"{words}.*accept-loss"):
            attempt()
    assert once(p0=(0, 5), p1=(0, 5)) == stage.bronze()
    stage.adopt(accept_loss=True)
    stage.ingest()
    assert once(p0=(0, 5), p1=(0, 5)) + once(p0=(0, 20), p1=(0, 20)) == stage.bronze()
    assert gaps(stage) == [(0, 5, None, "recreated"), (1, 5, None, "recreated")]
    stage.lose_checkpoint()
    assert stage.adopt().position == Offsets({0: 20, 1: 20})


@pytest.mark.proves("A25", "G16")
def test_what_retention_took_is_named_exactly(stage: Stage) -> None:
    """A25: unread records that are gone are named by partition and both ends; accepted, the gap is recorded."""
    stage.send(5, 0, 1)
    stage.ingest()
    stage.send(5, 0, 1)
    stage.cut(0, 8)
    for attempt in (stage.ingest, stage.adopt):
        with pytest.raises(Refused, match=r"retention has removed partition 0 offsets 5 to 7\. .*accept-loss"):
            attempt()
    assert once(p0=(0, 5), p1=(0, 5)) == stage.bronze()
    done = stage.adopt(accept_loss=True)
    assert done.position == Offsets({0: 8, 1: 5})
    assert gaps(stage) == [(0, 5, 7, "retention")]
    assert "accepted gap: " in adoption.describe(done)
    stage.ingest()
    assert once(p0=(0, 5), p1=(0, 10)) + once(p0=(8, 10)) == stage.bronze()


@pytest.mark.proves("A25", "G16")
def test_retention_during_a_batch_fails_it_and_is_named_at_the_next_start(stage: Stage) -> None:
    """A25: records that go while a batch waits to be read end the query; the next start names the range."""
    stage.send(5, 0, 1)
    stage.ingest()
    stage.send(5, 0, 1)
    ingest = stage.query()
    look = ingest._job

    def look_then_cut(batch_id: int, seq: int) -> IngestJob:
        job = look(batch_id, seq)
        stage.cut(1, 9)
        return job

    setattr(ingest, "_job", look_then_cut)  # noqa: B010 - mypy forbids to assign a method
    with pytest.raises(StreamingQueryException):
        ingest.start(once=True).awaitTermination()
    assert once(p0=(0, 5), p1=(0, 5)) == stage.bronze()
    with pytest.raises(Refused, match=r"retention has removed partition 1 offsets 5 to 8\."):
        stage.ingest()


@pytest.mark.proves("A26", "G17")
def test_added_partitions_are_read_from_their_beginning(stage: Stage) -> None:
    """A26: partitions that were added, before a start or before an adoption, lose nothing."""
    stage.send(5, 0, 1)
    stage.ingest()
    stage.add_partitions(4)
    stage.send(3, 0, 2)
    stage.ingest()
    assert once(p0=(0, 8), p1=(0, 5), p2=(0, 3)) == stage.bronze()
    known = sources.identity(stage.engine, 1)
    assert known is not None
    assert known.partitions == 4
    stage.add_partitions(5)
    stage.send(2, 3, 4)
    stage.lose_checkpoint()
    stage.adopt()
    stage.ingest()
    assert once(p0=(0, 8), p1=(0, 5), p2=(0, 3), p3=(0, 2), p4=(0, 2)) == stage.bronze()


@pytest.mark.proves("G11")
def test_a_lost_checkpoint_is_adopted_from_the_offsets_in_bronze(stage: Stage) -> None:
    """A9: each partition continues after its last row in bronze, also a partition that was quiet for long or always."""
    stage.send(4, 1)
    stage.ingest()
    for _ in range(3):
        stage.send(2, 0)
        stage.ingest()
    stage.lose_checkpoint()
    with pytest.raises(Refused, match=r"is gone: .*turnout ingest adopt"):
        stage.ingest()
    stage.send(3, 0, 1)
    assert stage.adopt().position == Offsets({0: 6, 1: 4})
    stage.ingest()
    assert once(p0=(0, 9), p1=(0, 7)) == stage.bronze()


def test_two_topics_of_one_name_are_not_told_apart_by_offsets(stage: Stage) -> None:
    """Where bronze has rows of a namesake at other brokers, adoption refuses to guess from offsets."""
    stage.send(2, 0)
    stage.ingest()
    address = stage.settings.source.bootstrap_servers
    elsewhere = replace(stage.settings.source, bootstrap_servers=f"{address},{address}")
    stage.settings = replace(stage.settings, source=elsewhere)
    with pytest.raises(Refused, match="has already read this source"):
        stage.ingest()
    assert stage.adopt().position == Offsets({0: 2, 1: 0})  # one topic by two names of its brokers
    with stage.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE ingest_identities SET source_id = 'another' WHERE generation = 1")
    stage.ingest()
    with pytest.raises(Refused, match=r"another topic of this name \(kafka topic"):
        stage.adopt()


def test_a_first_start_at_the_end_keeps_its_beginning(stage: Stage) -> None:
    """Records after a first start at `latest` are read, although the checkpoint was lost before any landed."""
    stage.settings = replace(stage.settings, source=replace(stage.settings.source, starting_offsets="latest"))
    stage.send(5, 0, 1)
    stage.ingest()
    stage.lose_checkpoint()
    stage.send(3, 0)
    stage.ingest()
    assert once(p0=(5, 8)) == stage.bronze()


def test_a_topic_that_cannot_be_asked_is_said_so(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Options without a counterpart do not stop ingest, but it says that nothing was checked."""
    options = {"ssl.truststore.location": "unused.jks"}  # a plain connection never opens it
    stage.settings = replace(stage.settings, source=replace(stage.settings.source, kafka_options=options))
    stage.send(2, 0)
    stage.ingest()
    assert once(p0=(0, 2)) == stage.bronze()
    assert "cannot be checked before it is read: no counterpart for ssl.truststore.location" in caplog.text
    with pytest.raises(Refused, match=r"The broker cannot be checked with these source\.kafka_options"):
        stage.adopt()


def query_under_which_the_topic_is_made_anew(stage: Stage) -> Ingest:
    """Return a query that has planned a batch, and not yet read it, when the topic is made anew."""
    ingest = stage.query()
    look = ingest._job

    def look_then_make_anew(batch_id: int, seq: int) -> IngestJob:
        job = look(batch_id, seq)
        stage.make_anew()
        stage.send(100, 0, 1)
        return job

    setattr(ingest, "_job", look_then_make_anew)  # noqa: B010 - mypy forbids to assign a method
    return ingest


@pytest.mark.proves("G15")
def test_a_topic_made_anew_within_a_trigger_lands_nothing(stage: Stage) -> None:
    """Law L1: a batch lands rows of the topic it was planned on: another id before its commit ends it unlanded."""
    stage.send(20, 0, 1)
    stage.ingest()
    stage.send(5, 0, 1)
    ingest = query_under_which_the_topic_is_made_anew(stage)
    with pytest.raises(StreamingQueryException, match=r"was deleted and recreated: .*partition 0 offsets from 20 on"):
        ingest.start(once=True).awaitTermination()
    assert once(p0=(0, 20), p1=(0, 20)) == stage.bronze()
    with pytest.raises(Refused, match=r"was deleted and recreated: .*partition 0 offsets from 20 on"):
        stage.ingest()
    stage.adopt(accept_loss=True)
    stage.ingest()
    assert once(p0=(0, 20), p1=(0, 20)) + once(p0=(0, 100), p1=(0, 100)) == stage.bronze()
    assert gaps(stage) == [(0, 20, None, "recreated"), (1, 20, None, "recreated")]


@pytest.mark.long
@pytest.mark.proves("G15")
def test_adoption_reads_no_row_of_the_new_topic_twice(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L1: rows of the new topic that an unchecked ingest has landed stay once, and what it left is a gap."""
    stage.send(20, 0, 1)
    stage.ingest()
    stage.send(5, 0, 1)
    ingest = query_under_which_the_topic_is_made_anew(stage)
    with monkeypatch.context() as patch:
        patch.setattr(BatchChecks, "require_same", lambda *_: None)
        ingest.start(once=True).awaitTermination()
    assert once(p0=(0, 25), p1=(0, 25)) == stage.bronze()
    with pytest.raises(Refused, match=r"Bronze has of the new one already: partition 0 offsets 20 to 24; partition 1"):
        stage.adopt()
    assert stage.adopt(accept_loss=True).position == Offsets({0: 25, 1: 25})
    stage.ingest()
    assert once(p0=(0, 100), p1=(0, 100)) == stage.bronze()
    assert gaps(stage)[2:] == [(0, 0, 19, "recreated"), (1, 0, 19, "recreated")]

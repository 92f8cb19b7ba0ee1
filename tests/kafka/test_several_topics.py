"""Several topics of one broker in one ingest: by a list and by a pattern, each with a position of its own."""

import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pipeline.base.errors import Refused
from pipeline.data.ingest.adopt import adopt
from pipeline.data.ingest.identity import Offsets, Positions
from pipeline.data.ingest.query import Ingest
from pipeline.data.ingest.sources.supported import open_source
from pipeline.data.verify import sources as verified
from pipeline.data.verify.balance import Balance, verify
from pipeline.demo.broker import Broker
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.settings.source import Source, topic_described
from pipeline.settings.tree import load
from pipeline.store import sources
from pipeline.store.database.engine import open_store


class Stage:
    """An environment on topics whose names have one beginning."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.settings, self.paths = load(folder, {})
        self.engine = open_store(self.settings, self.paths)
        self.name = f"s{uuid.uuid4().hex[:8]}"
        self._connection: dict[str, Any] = {"bootstrap.servers": broker.address, "log_level": 0}
        self.admin = AdminClient(self._connection)
        self._spark, self._address = spark, broker.address

    def read(self, **of: Any) -> None:
        """Let the environment read other topics."""
        self.settings = replace(self.settings, source=Source(kind="kafka", bootstrap_servers=self._address, **of))

    def topic(self, name: str) -> str:
        return f"{self.name}-{name}"

    def described(self, name: str) -> str:
        return topic_described(self.topic(name), self.settings.source)

    def make(self, *names: str) -> None:
        for name in names:
            ensure_topic(self._address, self.topic(name), 2)

    def send(self, count: int, *names: str) -> None:
        """Send `count` messages to both partitions of each topic."""
        producer = Producer({**self._connection, "acks": "all"})
        for name in names:
            for number in range(2 * count):
                producer.produce(self.topic(name), b"no wrapper", partition=number % 2)
        assert producer.flush(30) == 0

    def cut(self, name: str, before: int) -> None:
        place = TopicPartition(self.topic(name), 0, before)
        self.admin.delete_records([place])[place].result()

    def make_anew(self, name: str) -> None:
        topic = self.topic(name)
        self.admin.delete_topics([topic])[topic].result()
        while topic in self.admin.list_topics(timeout=10).topics:
            self.admin.poll(0.05)
        self.make(name)

    def query(self) -> Ingest:
        return Ingest(self._spark, self.settings, self.paths, self.engine, lambda _: None)

    def ingest(self) -> None:
        self.query().start(once=True).awaitTermination()

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.paths.checkpoints / "ingest")

    def verify(self) -> Balance:
        prober = open_source(self.settings.source, self.paths.landing).prober
        known = verified.observe(self.settings, self.paths, self.engine, prober)
        return verify(self.paths, self.settings.environment, known=known)

    def require(self, **counts: int) -> None:
        """Require these counts of each partition of each topic in bronze, each once, and that verify agrees."""
        rows = DeltaTable(self.paths.bronze).to_pyarrow_table(columns=["topic", "partition", "offset"]).to_pylist()
        expected = [
            (self.topic(name), part, at) for name, count in counts.items() for part in (0, 1) for at in range(count)
        ]
        assert Counter(expected) == Counter((row["topic"], row["partition"], row["offset"]) for row in rows)
        balance = self.verify()
        assert (balance.ok, balance.totals.source_duplicates) == (True, 0), balance.problems
        assert balance.lagging is not None
        assert (balance.lagging.records, balance.lagging.not_compared) == (0, ())


@pytest.fixture
def stage(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(spark, broker, tmp_path / "env")
    yield made
    made.engine.dispose()


@pytest.mark.long
@pytest.mark.proves("G4", "G11")
def test_another_set_of_topics_goes_on_behind_what_is_in_bronze(stage: Stage) -> None:
    """Law L1: one topic, then a list with it, then a pattern, then one again: each record lands once, by one writer."""
    stage.make("a", "b")
    stage.send(3, "a", "b")
    stage.read(topic=stage.topic("a"))
    stage.ingest()
    stage.require(a=3)
    old = stage.query()
    stage.send(2, "a")
    stage.read(topics=(stage.topic("a"), stage.topic("b")))
    stage.ingest()
    with pytest.raises(Refused, match="has closed ingest generation 1"):
        old.start(once=True)
    stage.require(a=5, b=3)
    stage.make("c")
    stage.send(2, "c")
    stage.read(topic_pattern=f"{stage.name}-[a-z]")
    stage.ingest()
    stage.read(topic=stage.topic("b"))
    stage.send(1, "a", "b", "c")
    stage.ingest()
    stage.require(a=5, b=4, c=2)


@pytest.mark.long
@pytest.mark.proves("G4", "G16")
def test_topics_that_come_and_what_each_has_lost_are_known_by_topic(stage: Stage) -> None:
    """Laws L1 and L5: a topic that appears is read from its beginning, and a gap names its topic and both ends."""
    stage.make("a", "b")
    stage.send(3, "a", "b")
    stage.read(topic_pattern=f"{stage.name}-.*")
    query = stage.query().start(once=False)
    try:
        query.processAllAvailable()
        stage.make("c")
        stage.send(2, "c")
        query.processAllAvailable()
    finally:
        query.stop()
    stage.require(a=3, b=3, c=2)
    stage.lose_checkpoint()
    with pytest.raises(Refused, match="Run `turnout ingest adopt`"):
        stage.ingest()
    adopted = adopt(stage.settings, stage.paths, stage.engine, accept_loss=False)
    assert adopted.position == Positions({
        stage.described(name): Offsets({0: count, 1: count}) for name, count in (("a", 3), ("b", 3), ("c", 2))
    })  # fmt: skip
    stage.send(2, "b", "c")
    stage.ingest()
    stage.require(a=3, b=5, c=4)
    stage.send(2, "a", "b")
    stage.cut("b", 6)
    with pytest.raises(Refused, match=rf"topic '{stage.topic('b')}' has lost unread records: .*partition 0 offset 5\."):
        stage.ingest()
    adopt(stage.settings, stage.paths, stage.engine, accept_loss=True)
    assert [(gap.source, gap.partition, gap.first, gap.last) for gap in sources.accepted_gaps(stage.engine)] == [
        (stage.described("b"), 0, 5, 5)
    ]
    stage.ingest()
    balance = stage.verify()
    assert balance.ok, balance.problems
    assert balance.totals.bronze_rows == 2 * (5 + 7 + 4) - 1


@pytest.mark.long
@pytest.mark.parametrize("how", ["list", "pattern"])
@pytest.mark.proves("G15")
def test_one_of_several_topics_made_anew_within_a_trigger_lands_nothing(stage: Stage, how: str) -> None:
    """Law L1: each topic of a list or a pattern is known by its id before a batch is committed; the others go on."""
    stage.make("a", "b")
    stage.send(20, "a", "b")
    names = (stage.topic("a"), stage.topic("b"))
    stage.read(**({"topics": names} if how == "list" else {"topic_pattern": f"{stage.name}-.*"}))
    stage.ingest()
    stage.send(5, "a", "b")
    ingest = stage.query()
    look = ingest._job

    def look_then_make_anew(batch_id: int, seq: int) -> Any:
        job = look(batch_id, seq)
        stage.make_anew("b")
        stage.send(100, "b")
        return job

    setattr(ingest, "_job", look_then_make_anew)  # noqa: B010 - mypy forbids to assign a method
    with pytest.raises(StreamingQueryException, match=rf"'{stage.topic('b')}' was deleted and recreated"):
        ingest.start(once=True).awaitTermination()
    stage.require(a=20, b=20)
    with pytest.raises(Refused, match=rf"'{stage.topic('b')}' was deleted and recreated"):
        stage.ingest()
    adopt(stage.settings, stage.paths, stage.engine, accept_loss=True)
    stage.ingest()
    rows = DeltaTable(stage.paths.bronze).to_pyarrow_table(columns=["topic"])["topic"].to_pylist()
    assert Counter(rows) == {stage.topic("a"): 50, stage.topic("b"): 240}


def test_the_backlog_is_that_of_all_topics(stage: Stage) -> None:
    """Law L5: the backlog is that of all topics together, with a topic that has just appeared."""
    stage.make("a", "b")
    stage.send(3, "a", "b")
    stage.read(topic_pattern=f"{stage.name}-.*")
    backlog = open_source(stage.settings.source, stage.paths.landing).backlog()
    try:
        begin = Positions({stage.described("a"): Offsets({0: 3, 1: 1}), stage.described("b"): Offsets({0: 0, 1: 3})})
        assert backlog.look(None, begin).rows == 5
        offset = {stage.topic("a"): {"0": 3, "1": 3}, stage.topic("b"): {"0": 1, "1": 3}}
        assert backlog.look(offset, None).rows == 2
        stage.make("c")
        stage.send(2, "c")
        assert backlog.look(offset, None).rows == 6
        assert backlog.look(offset, None).oldest_at is not None
    finally:
        backlog.close()

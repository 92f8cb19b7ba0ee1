"""A real broker's ends, and the times through which bronze is complete by them."""

import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from pipeline.data.ingest.sources.topic_backlog import TopicBacklog
from pipeline.data.ingest.through.recorder import ThroughRecorder
from pipeline.demo.broker import Broker
from pipeline.lake.delta.through import read_pairs
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.settings.source import Source
from tests.kafka.ends_contract import eventually, require_ends
from tests.tables.repair_world import good, make_world


def send(producer: Producer, topic: str, partition: int, records: int) -> None:
    for _ in range(records):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(30) == 0


def test_a_time_passes_when_the_planned_offsets_pass_all_ends(broker: Broker, tmp_path: Path) -> None:
    """L8: an open transaction and a new partition hold the time back; a quiet partition and a marker do not."""
    name = f"through-{uuid.uuid4().hex[:8]}"
    ensure_topic(broker.address, name, 2)
    source = Source(kind="kafka", bootstrap_servers=broker.address, topic=name)
    world = make_world(tmp_path)
    world.ingest(good(1))
    backlog = TopicBacklog(source)
    recorder = ThroughRecorder(world.settings, world.paths, world.engine, backlog, lambda: world.seq)

    def newest(*offsets: int) -> float:
        """Return the newest time after two heartbeats with bronze at these planned offsets."""
        for _ in range(2):
            place: dict[str, Any] = {name: {str(number): at for number, at in enumerate(offsets)}}
            recorder.look(place, None)
        return max((pair.at for pair in read_pairs(world.paths.through)), default=0.0)

    plain = Producer({"bootstrap.servers": broker.address, "acks": "all"})
    send(plain, name, 0, 3)
    eventually(backlog, {0: 3, 1: 0})
    assert newest(2, 0) == 0.0
    assert newest(3, 0) > 0.0, "the quiet partition passes at once"

    pending = Producer({"bootstrap.servers": broker.address, "transactional.id": name})
    pending.init_transactions(30)
    pending.begin_transaction()
    send(pending, name, 0, 1)
    eventually(backlog, {0: 4, 1: 0})
    began = time.time()
    assert newest(3, 0) < began, "the record behind the open transaction is acknowledged, and not landed"
    pending.abort_transaction(30)
    eventually(backlog, {0: 5, 1: 0})
    ended = time.time()
    assert newest(4, 0) < ended
    second = newest(5, 0)
    assert second > ended, "the planned offset has the marker, which no row has"

    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_partitions([NewPartitions(name, 3)])[name].result(30)
    eventually(backlog, {0: 5, 1: 0, 2: 0})
    send(Producer({"bootstrap.servers": broker.address, "acks": "all"}), name, 2, 1)
    eventually(backlog, {0: 5, 1: 0, 2: 1})
    began = time.time()
    assert newest(5, 0) < began, "nothing of the new partition has landed"
    assert newest(5, 0, 1) > began
    backlog.close()
    world.engine.dispose()


class RealTopic:
    """A topic of a real broker."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker, self._name, self._partitions = broker, name, 2
        ensure_topic(broker.address, name, 2)
        self._admin = AdminClient({"bootstrap.servers": broker.address})
        self._plain = Producer({"bootstrap.servers": broker.address, "acks": "all"})
        self._open: dict[int, Producer] = {}

    def send(self, partition: int, records: int = 1) -> None:
        send(self._plain, self._name, partition, records)

    def begin_transaction(self, partition: int, records: int = 1) -> None:
        producer = Producer({"bootstrap.servers": self._broker.address, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(30)
        producer.begin_transaction()
        send(producer, self._name, partition, records)
        self._open[partition] = producer

    def end_transaction(self, partition: int, *, commit: bool) -> None:
        producer = self._open.pop(partition)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    def add_partition(self) -> None:
        self._partitions += 1
        self._admin.create_partitions([NewPartitions(self._name, self._partitions)])[self._name].result(30)
        self._plain = Producer({"bootstrap.servers": self._broker.address, "acks": "all"})  # it sees the new partition

    def recreate(self) -> None:
        self._admin.delete_topics([self._name])[self._name].result(30)
        deadline = time.monotonic() + 30
        while self._name in self._admin.list_topics(timeout=10).topics:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ensure_topic(self._broker.address, self._name, 1)


def test_a_topic_ends_as_the_fake_says(broker: Broker) -> None:
    """L1: the ends of a broker's topic are those by which `wait` was tried a thousand times; another topic has none."""
    name = f"through-{uuid.uuid4().hex[:8]}"
    topic = RealTopic(broker, name)
    backlog = TopicBacklog(Source(kind="kafka", bootstrap_servers=broker.address, topic=name))
    require_ends(topic, backlog)
    backlog.close()

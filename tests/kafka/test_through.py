"""A real broker's ends, and the times through which bronze is complete by them."""

import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from pipeline.base.errors import Transient
from pipeline.data.ingest.sources.topic_backlog import TopicBacklog
from pipeline.data.ingest.through.recorder import ThroughRecorder
from pipeline.demo.broker import Broker
from pipeline.lake.delta.through import read_pairs
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.settings.source import Source
from tests.tables.repair_world import good, make_world


def eventually(backlog: TopicBacklog, ends: dict[int, int]) -> None:
    deadline = time.monotonic() + 30
    while list((backlog.ends() or {}).values()) != [ends]:
        assert time.monotonic() < deadline, backlog.ends()
        time.sleep(0.05)


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


def test_a_recreated_topic_ends_no_observation(broker: Broker) -> None:
    """L1: the ends of another topic of the same name are not those of the one that bronze has."""
    name = f"through-{uuid.uuid4().hex[:8]}"
    ensure_topic(broker.address, name, 1)
    backlog = TopicBacklog(Source(kind="kafka", bootstrap_servers=broker.address, topic=name))
    eventually(backlog, {0: 0})
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics([name])[name].result(30)
    deadline = time.monotonic() + 30
    while name in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ensure_topic(broker.address, name, 1)
    with pytest.raises(Transient, match=r"deleted and recreated|does not report"):
        backlog.ends()
    backlog.close()

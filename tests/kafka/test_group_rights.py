"""A broker whose ACLs give no right on consumer groups: what reads partitions by offset asks for none."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from pipeline.data.ingest.sources import topic_again
from pipeline.data.ingest.sources.topic_again import OffsetRange
from pipeline.data.verify import held
from pipeline.demo.broker import Broker
from pipeline.lake.kafka import records
from pipeline.lake.kafka.assigned import consumer_of
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.lake.kafka.records import RecordReader

GROUPS = ResourceType.GROUP, "turnout-", ResourcePatternType.PREFIXED, "User:ANONYMOUS", "*", AclOperation.ALL


@pytest.fixture
def denied(broker: Broker) -> Iterator[dict[str, Any]]:
    """The options of clients that have no right on groups."""
    options: dict[str, Any] = {"bootstrap.servers": broker.address, "log_level": 0}
    admin = AdminClient(options)
    for made in admin.create_acls([AclBinding(*GROUPS, AclPermissionType.DENY)]).values():
        made.result()
    yield options
    for gone in admin.delete_acls([AclBindingFilter(*GROUPS, AclPermissionType.DENY)]).values():
        gone.result()


def wait_for_denial(options: dict[str, Any]) -> None:
    """Return when a client that began now was refused: so was any that began before."""
    consumer = Consumer({**options, "group.id": "turnout-test"})
    deadline = time.monotonic() + 30
    while (message := consumer.poll(0.1)) is None:
        assert time.monotonic() < deadline, "no client is refused"
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()


@pytest.mark.long
def test_records_are_read_without_a_right_on_groups(
    denied: dict[str, Any], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L6: one impossible time costs its record, `verify --source` compares, also where ACLs give topics alone."""
    topic = f"denied-{uuid.uuid4().hex[:8]}"
    ensure_topic(broker.address, topic, 2)
    producer = Producer(denied)
    for number in range(6):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0

    def refused_consumer(*settings: Any, **more: Any) -> Consumer:
        made = consumer_of(*settings, **more)
        wait_for_denial(denied)
        return made

    for module in (topic_again, records):
        monkeypatch.setattr(module, "consumer_of", refused_consumer)
    ranges = [OffsetRange(topic, number, 0, 3) for number in (0, 1)]
    (rows,) = topic_again._read(iter(()), denied, "read_committed", ranges)
    assert rows.column("value").to_pylist() == [b"%d" % at for at in (0, 2, 4, 1, 3, 5)]
    reader = RecordReader(denied)
    assert [each and each.value() for each in reader.onward({(topic, 0): 1, (topic, 1): 2}).values()] == [b"2", b"5"]
    reader.close()
    consumer = refused_consumer(denied, "verify", "read_committed")
    (chunk,) = held._chunks(consumer, TopicPartition(topic, 0, 0), 3)
    assert chunk.column("raw").to_pylist() == [b"0", b"2", b"4"]
    consumer.close()

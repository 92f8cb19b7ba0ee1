"""A real broker tells what waits in a topic, and since when."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from pipeline.data.ingest.identity import Offsets
from pipeline.data.ingest.sources import topic_backlog
from pipeline.data.ingest.sources.topic_backlog import TopicBacklog
from pipeline.data.ingest.sources.topic_observation import observe_topic
from pipeline.demo.broker import Broker
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.settings.source import Source

FIRST_MS, SECOND_MS, ABORTED_MS = 1_700_000_000_000, 1_700_000_060_000, 1_700_000_090_000


@pytest.fixture
def topic(broker: Broker) -> Source:
    """A topic of two partitions with three old records each, of one a minute later, and an aborted transaction."""
    name = f"backlog-{uuid.uuid4().hex[:8]}"
    ensure_topic(broker.address, name, 2)
    plain = Producer({"bootstrap.servers": broker.address, "acks": "all"})
    for number in range(3):
        for partition, at in enumerate((FIRST_MS, SECOND_MS)):
            plain.produce(name, b"x", partition=partition, timestamp=at + number * 1_000)
    assert plain.flush(30) == 0
    aborted = Producer({"bootstrap.servers": broker.address, "transactional.id": name})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    aborted.produce(name, b"y", partition=0, timestamp=ABORTED_MS)
    assert aborted.flush(30) == 0
    aborted.abort_transaction(30)
    source = Source(kind="kafka", bootstrap_servers=broker.address, topic=name)
    deadline = time.monotonic() + 30
    while (seen := observe_topic(source)) is None or seen.readable is None or seen.readable[0] < 5:
        assert time.monotonic() < deadline, "the marker of the transaction is not written"
    return source


@pytest.fixture
def backlog(topic: Source) -> Iterator[TopicBacklog]:
    made = TopicBacklog(topic)
    yield made
    made.close()


def passed(topic: Source, *offsets: int) -> dict[str, Any]:
    return {topic.topic: {str(number): at for number, at in enumerate(offsets)}}


@pytest.mark.proves("G130")
def test_a_broker_tells_how_much_waits_and_since_when(topic: Source, backlog: TopicBacklog) -> None:
    """The oldest record of all partitions counts, by its own time; a partition with only markers has no backlog."""
    for place, rows, oldest_ms in (
        (passed(topic, 0, 0), 8, FIRST_MS),
        (passed(topic, 2, 0), 6, FIRST_MS + 2_000),
        (passed(topic, 5, 1), 2, SECOND_MS + 1_000),
        (passed(topic, 3, 2), 3, SECOND_MS + 2_000),
        (passed(topic, 5), 3, SECOND_MS),  # a partition that was added begins at its first record
        (passed(topic, 5, 3), 0, None),
        (passed(topic, 3, 3), 2, ABORTED_MS),  # until ingest has passed its marker
        (passed(topic, 4, 3), 0, None),
    ):
        found = backlog.look(place, None)
        assert (found.rows, found.oldest_at, found.reason) == (rows, oldest_ms and oldest_ms / 1000, None), place
    assert backlog.look(None, Offsets({0: 1, 1: 3})).oldest_at == FIRST_MS / 1000 + 1
    assert backlog.look(passed(topic, 5, 3), None).age(time.time()) == 0.0


def test_what_an_open_transaction_holds_up_waits(topic: Source, backlog: TopicBacklog) -> None:
    """A producer that hangs in a transaction stops its partition: what is behind it may not be read."""
    producer = Producer({"bootstrap.servers": topic.bootstrap_servers, "transactional.id": f"{topic.topic}-open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic.topic, b"z", partition=1, timestamp=SECOND_MS)
    assert producer.flush(30) == 0
    found = backlog.look(passed(topic, 5, 3), None)
    assert (found.rows, found.oldest_at) == (1, SECOND_MS / 1000)
    producer.abort_transaction(30)


def test_a_broker_that_cannot_be_asked_is_unknown(topic: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is no zero: neither from a broker that is away, nor with options only Spark's client has."""
    monkeypatch.setattr(topic_backlog, "_ANSWER_SECONDS", 1.0)
    away = TopicBacklog(replace(topic, bootstrap_servers="127.0.0.1:9"))
    jks = TopicBacklog(replace(topic, kafka_options={"kafka.ssl.truststore.location": "/trust.jks"}))
    for backlog, named in (
        (away, "the Kafka broker does not report the backlog"),
        (jks, "no counterpart for ssl.trust"),
    ):
        found = backlog.look(passed(topic, 0, 0), None)
        assert (found.rows, found.age(time.time())) == (None, None)
        assert named in str(found.reason)
    assert TopicBacklog(topic).look(None, None).reason is not None

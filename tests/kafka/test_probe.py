"""A real broker tells whether there are records between two offsets, for the comparison of bronze with its source."""

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pipeline.base.errors import Refused
from pipeline.cli.doctor import ask_topics
from pipeline.data.ingest import source_probe
from pipeline.data.ingest.sources import topic_probe
from pipeline.data.ingest.sources.kind import SampledRecord
from pipeline.data.ingest.sources.supported import open_source
from pipeline.data.ingest.sources.topic_probe import prober
from pipeline.data.ingest.sources.topic_sample import sample_topic
from pipeline.demo.broker import Broker
from pipeline.lake.kafka.producer import TopicProducer, ensure_topic
from pipeline.lake.storage.places import located
from pipeline.settings.source import Source
from pipeline.settings.tree import Settings


@pytest.fixture
def topic(broker: Broker) -> Source:
    """A topic with ten records, a transaction of two with its marker, and an aborted one, with its marker."""
    name = f"probe-{uuid.uuid4().hex[:8]}"
    ensure_topic(broker.address, name, 1)
    plain = Producer({"bootstrap.servers": broker.address, "acks": "all"})
    for _ in range(10):
        plain.produce(name, b"x", partition=0)
    assert plain.flush(30) == 0
    for commit in (True, False):
        producer = Producer({"bootstrap.servers": broker.address, "transactional.id": f"{name}-{commit}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for _ in range(2):
            producer.produce(name, b"y", partition=0)
        assert producer.flush(30) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    return Source(kind="kafka", bootstrap_servers=broker.address, topic=name)


@pytest.mark.proves("G160")
def test_a_broker_tells_what_bronze_lacks(topic: Source, broker: Broker) -> None:
    """Only committed records count; markers and aborted records do not; deleted offsets are unknown."""
    probe = prober(topic)
    assert probe is not None
    assert probe(0, 3, 5) is True
    assert probe(0, 10, 11) is True
    assert probe(0, 12, 12) is False, "the marker of the transaction"
    assert probe(0, 12, 15) is False, "markers and aborted records"
    assert probe(0, 50, 60) is None, "the topic has never had these"
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.delete_records([TopicPartition(topic.topic, 0, 6)]).values():
        done.result()
    assert probe(0, 3, 5) is None, "retention took them"
    assert probe(0, 3, 8) is True, "some of them are still there"


def test_a_broker_that_is_away_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is not an answer."""
    monkeypatch.setattr(topic_probe, "_SECONDS", 0.5)
    probe = prober(Source(kind="kafka", bootstrap_servers="127.0.0.1:9", topic="t"))
    assert probe is not None
    assert probe(0, 0, 1) is None


def test_the_newest_records_are_sampled_as_they_are(broker: Broker) -> None:
    """Issue 35: a probe sees value, key and headers of some records of each partition, and moves no group's offset."""
    name = f"sample-{uuid.uuid4().hex[:8]}"
    ensure_topic(broker.address, name, 2)
    producer = TopicProducer(broker.address, name)
    for number in range(20):
        producer.produce(b"\x00\x00\x00\x00\x07%d" % number, b"Ludo", {"game": b"Ludo"})
    producer.produce(None, b"Chess")
    assert producer.flush() == (21, 0)
    source = Source(kind="kafka", bootstrap_servers=broker.address, topic=name)
    everything = sample_topic(source, 100)
    assert len(everything) == 21
    assert SampledRecord(None, b"Chess", (), name) in everything
    assert SampledRecord(b"\x00\x00\x00\x00\x0719", b"Ludo", (("game", b"Ludo"),), name) in sample_topic(source, 6)
    assert len(sample_topic(source, 6)) <= 6
    report = source_probe.probe(open_source(source, located(Path("unused"))))
    assert report.fit is not None
    assert report.fit.source["routing"] == "header:game"
    with pytest.raises(Refused, match="has no topic"):
        sample_topic(replace(source, topic="typo"), 6)


@pytest.mark.proves("G279")
def test_doctor_asks_for_the_topic(topic: Source) -> None:
    """A broker that answers is not enough: doctor names a topic that is not there."""
    there, away = (ask_topics(Settings(source=each)) for each in (topic, replace(topic, topic="no-such-topic")))
    assert [(each.state, each.detail) for each in there] == [("ok", "described")]
    assert [each.state for each in away] == ["missing"]
    assert "has no topic 'no-such-topic'" in away[0].detail

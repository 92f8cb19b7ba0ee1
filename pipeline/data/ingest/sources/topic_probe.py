"""Asks a broker whether a topic has records between two offsets, for `turnout verify`. Never joins a consumer group."""

import time
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pipeline.data.ingest.sources.kind import Probe
from pipeline.lake.kafka.assigned import consumer_of, received
from pipeline.lake.kafka.connection import client_options, translate
from pipeline.settings.source import Source

_SECONDS: Final = 10.0  # for an answer about one range


def prober(source: Source) -> Probe | None:
    """Return a function that checks a partition for a committed record in a range of offsets; None without one.

    The function returns None where the broker does not answer or no longer has these offsets.
    """
    connection = translate(source.kafka_options)
    if connection.unreported:
        return None
    options = client_options(source.bootstrap_servers, connection)

    def probe(partition: int, first: int, last: int) -> bool | None:
        try:
            consumer = consumer_of(options, "check", "read_committed")
        except KafkaException:
            return None  # such as a missing certificate file
        try:
            return _has_record(consumer, TopicPartition(source.topic, partition, first), last)
        except KafkaException:
            return None
        finally:
            consumer.close()

    return probe


def _has_record(consumer: Consumer, place: TopicPartition, last: int) -> bool | None:
    earliest, end = consumer.get_watermark_offsets(place, timeout=_SECONDS)
    if end <= place.offset or last < earliest:
        return None
    begins_late = earliest > place.offset
    consumer.assign([TopicPartition(place.topic, place.partition, max(place.offset, earliest))])
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        messages = received(consumer, 0.5)
        if not messages:
            continue
        (message,) = messages
        error = message.error()
        if error is None:
            has_record = (message.offset() or 0) <= last
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client has no other name for it
            has_record = False
        else:
            return None
        return None if begins_late and not has_record else has_record
    return None

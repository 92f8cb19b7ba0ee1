"""Reads a few of a topic's newest records for `turnout source probe`. Joins no consumer group and commits nothing."""

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from pipeline.base.errors import Refused, Transient
from pipeline.data.ingest.sources.kind import SampledRecord
from pipeline.lake.kafka.admin import TopicFacts, describe_topic
from pipeline.lake.kafka.assigned import consumer_of, received
from pipeline.lake.kafka.connection import client_options, translate
from pipeline.settings.source import Source

_SECONDS: Final = 10.0  # for all partitions together


def sample_topic(source: Source, most: int) -> list[SampledRecord]:
    """Return up to `most` of the newest records, about as many of each partition.

    Raises:
        Refused: there is no such topic, or an option of security has no counterpart.
        Transient: the broker does not answer.
    """
    connection = translate(source.kafka_options)
    if connection.unreported:
        raise Refused(
            f"The topic cannot be read outside of Spark: no counterpart for {', '.join(connection.unreported)} "
            f"(docs/kafka.md, Security)."
        )
    options = client_options(source.bootstrap_servers, connection)
    try:
        facts = describe_topic(options, source.topic, committed=source.isolation_level == "read_committed")
        return _newest(options, source, facts, most)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise Refused(
                f"The broker at {source.bootstrap_servers} has no topic {source.topic!r}. "
                "Create it, or correct source.topic."
            ) from error
        raise Transient(
            f"The Kafka broker at {source.bootstrap_servers} does not give records of {source.topic!r}: {reason.str()}."
        ) from error


def _newest(options: Mapping[str, Any], source: Source, facts: TopicFacts, most: int) -> list[SampledRecord]:
    ends = facts.readable or facts.latest
    filled = {number: end for number, end in ends.items() if end > facts.earliest[number]}
    if not filled:
        return []
    each = -(-most // len(filled))
    places = [
        TopicPartition(source.topic, number, max(facts.earliest[number], end - each)) for number, end in filled.items()
    ]
    consumer = consumer_of(options, "probe", source.isolation_level, **{"auto.offset.reset": "earliest"})
    records: list[SampledRecord] = []
    try:
        consumer.assign(places)
        open_partitions = set(filled)
        until = time.monotonic() + _SECONDS
        while open_partitions and len(records) < most and time.monotonic() < until:
            messages = received(consumer, 0.2)
            if not messages:
                continue
            (message,) = messages
            error = message.error()
            if error is None:
                records.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client has no other name for it
                open_partitions.discard(message.partition() or 0)
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return records


def _record(message: Message) -> SampledRecord:
    headers: Any = message.headers() or []  # typed as what may be sent; what comes is (name, bytes or None)
    return SampledRecord(message.value(), message.key(), tuple(headers), message.topic() or "")

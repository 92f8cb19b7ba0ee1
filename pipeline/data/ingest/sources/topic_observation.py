"""Observes the source's topic before ingest starts.

Spark's options are the Java client's; the connection options are translated for the client used here. If that is
impossible, the topic is not checked, and a warning is logged.
"""

import logging
import re
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from pipeline.base.errors import Refused, Transient
from pipeline.data.ingest.identity import TopicObservation
from pipeline.lake.kafka.admin import describe_topics, topics_matching
from pipeline.lake.kafka.connection import client_options, translate
from pipeline.settings.source import Source

_log = logging.getLogger("turnout")


def observe_topic(source: Source) -> TopicObservation | None:
    """Ask the broker about the source's topic; None when the options do not allow it.

    Raises:
        Refused: there is no such topic.
        Transient: the broker does not answer, or not for all partitions.
    """
    seen = _observe(source, [source.topic], f"topic {source.topic!r}", "source.topic")
    return None if seen is None else seen[source.topic]


def observe_topics(source: Source) -> dict[str, TopicObservation] | None:
    """Ask the broker about all topics of the source's list or pattern; None when the options do not allow it.

    Raises:
        Refused: one of the listed topics is not there.
        Transient: the broker does not answer, or not for all partitions.
    """
    if source.topic_pattern:
        return _observe(source, None, f"the topics matching {source.topic_pattern!r}", "source.topic_pattern")
    return _observe(source, source.topics, f"one of the topics {', '.join(source.topics)}", "source.topics")


def topic_names(admin: AdminClient, source: Source) -> Sequence[str]:
    """Return the topics that a source reads now.

    Raises:
        KafkaException: the broker does not answer.
    """
    if source.topic_pattern:
        return topics_matching(admin, re.compile(source.topic_pattern, re.ASCII))
    return source.topics or [source.topic]


def _observe(
    source: Source, topics: Sequence[str] | None, what: str, setting: str
) -> dict[str, TopicObservation] | None:
    connection = translate(source.kafka_options)
    if connection.unreported:
        _log.warning(
            "the topic cannot be checked before it is read: no counterpart for %s (docs/kafka.md, Security)",
            ", ".join(connection.unreported),
        )
        return None
    options = client_options(source.bootstrap_servers, connection)
    committed = source.isolation_level == "read_committed"
    try:
        names = topic_names(AdminClient(options), source) if topics is None else topics
        facts = describe_topics(options, names, committed=committed)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise Refused(
                f"The broker at {source.bootstrap_servers} has no {what.removeprefix('one of the ')}. "
                f"Create it, or correct {setting}."
            ) from error
        raise Transient(
            f"The Kafka broker at {source.bootstrap_servers} does not describe {what}: {reason.str()}."
        ) from error
    return {
        topic: TopicObservation(topic, each.id, each.earliest, each.latest, each.readable, each.clock)
        for topic, each in facts.items()
    }

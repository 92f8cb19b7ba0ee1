"""Observes the source's topic before ingest starts.

Spark's options are the Java client's; the connection options are translated for the client used here. If that is
impossible, the topic is not checked, and a warning is logged.
"""

import logging

from confluent_kafka import KafkaError, KafkaException

from pipeline.errors import Refused, Transient
from pipeline.ingest.identity import TopicObservation
from pipeline.kafka.admin import describe_topic
from pipeline.kafka.connection import client_options, translate
from pipeline.source_settings import Source

_log = logging.getLogger("turnout")


def observe_topic(source: Source) -> TopicObservation | None:
    """Ask the broker about the source's topic; None when the options do not allow it.

    Raises:
        Refused: there is no such topic.
        Transient: the broker does not answer, or not for all partitions.
    """
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
        facts = describe_topic(options, source.topic, committed=committed)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise Refused(
                f"The broker at {source.bootstrap_servers} has no topic {source.topic!r}. "
                "Create it, or correct source.topic."
            ) from error
        raise Transient(
            f"The Kafka broker at {source.bootstrap_servers} does not describe topic {source.topic!r}: {reason.str()}."
        ) from error
    return TopicObservation(source.topic, facts.id, facts.earliest, facts.latest, facts.readable, facts.clock)

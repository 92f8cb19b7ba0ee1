"""Produces records to a topic, each once, and creates topics. For the demo, the bench and tests."""

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pipeline.base.errors import Refused, Transient, first_line
from pipeline.lake.kafka.connection import Connection, client_options, translate

RECORD_BYTES: Final = 2 * 1024 * 1024
"""Largest record of a producer and of a topic that turnout creates: a payload of 1 MiB fits in it with its wrapper."""

_METADATA_SECONDS: Final = 8.0
_DELIVERY_SECONDS: Final = 30.0  # how long one message may stay undelivered
_FLUSH_SECONDS: Final = _DELIVERY_SECONDS + 5.0

NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})
"""Settings of a producer for a broker without security."""

EXACTLY_ONCE: Final[Mapping[str, Any]] = MappingProxyType({
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",  # as Java producers do, so that a key has one partition for all producers
    "linger.ms": 20,
    "delivery.timeout.ms": int(_DELIVERY_SECONDS * 1000),
    "message.max.bytes": RECORD_BYTES,
})  # fmt: skip
"""Options of a producer whose records are in the topic once, in the order of their key."""


class TopicProducer:
    """Produces to one topic, acknowledged by all replicas. For one thread."""

    def __init__(self, bootstrap: str, topic: str, options: Mapping[str, str] = NO_OPTIONS) -> None:
        """Connect; `options` are those of Kafka's Java client, such as `source.kafka_options`.

        Raises:
            Refused: no broker answers within about 8 seconds, it has no such topic, or an option of security has no
                counterpart.
        """
        logger = LastError()
        self._topic, self._outcomes, self._produced = topic, _Outcomes(), 0
        self._producer = Producer({**connection_options(bootstrap, options, logger), **EXACTLY_ONCE})
        if topic not in known_topics(self._producer, bootstrap, logger):
            raise Refused(
                f"The topic {topic!r} does not exist at {bootstrap}. Create it first, or correct source.topic."
            )

    def produce(self, value: bytes | None, key: bytes | None, headers: Mapping[str, bytes] | None = None) -> None:
        """Hand one record over; waits while the local queue is full.

        Raises:
            Transient: the broker ended the producer's session for good; start again.
        """
        sent: list[tuple[str, str | bytes | None]] | None = None if headers is None else list(headers.items())
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._outcomes, headers=sent)
            except BufferError:  # the local queue is full: serve reports until there is room
                self._producer.poll(0.1)
            except KafkaException as error:
                raise Transient(f"The Kafka producer's session is over: {first_line(error)}") from error
            else:
                self._produced += 1
                return

    def poll(self) -> None:
        """Serve delivery reports."""
        self._producer.poll(0)

    def flush(self) -> tuple[int, int]:
        """Wait until each record is delivered or has failed, and return (delivered, failed).

        Failed are those not acknowledged in time: a few of them may yet be in the topic.
        """
        self._producer.flush(_FLUSH_SECONDS)
        return self._outcomes.delivered, self._produced - self._outcomes.delivered


def ensure_topic(bootstrap: str, topic: str, partitions: int, options: Mapping[str, str] = NO_OPTIONS) -> int:
    """Create a topic if there is none and return how many partitions it has, which an old one keeps.

    Raises:
        Refused: no broker answers within about 8 seconds, it rejects the topic, or a security option has no
            counterpart.
    """
    logger = LastError()
    admin = AdminClient(connection_options(bootstrap, options, logger))
    if topic in (known := known_topics(admin, bootstrap, logger)):
        return known[topic]
    wanted = NewTopic(topic, num_partitions=partitions, config={"max.message.bytes": str(RECORD_BYTES)})
    created = admin.create_topics([wanted], request_timeout=_METADATA_SECONDS)
    try:
        created[topic].result()
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise Refused(f"The topic {topic!r} cannot be created at {bootstrap}: {reason.str()}.") from error
    deadline = time.monotonic() + _METADATA_SECONDS
    while topic not in (
        known := known_topics(admin, bootstrap, logger)
    ):  # the broker's own view follows a little later
        if time.monotonic() > deadline:
            raise Refused(
                f"The topic {topic!r} was created at {bootstrap} but does not appear. Check the broker's log."
            )
        admin.poll(0.1)
    return known[topic]


class _Outcomes:
    """Counts delivery reports, which arrive in the thread that polls."""

    def __init__(self) -> None:
        self.delivered = 0

    def __call__(self, error: KafkaError | None, message: Message) -> None:  # noqa: ARG002 - the client's signature
        if error is None:
            self.delivered += 1


class LastError:
    """Takes the client's errors off stderr; keeps the last for our own message, and the one that ended it for good."""

    def __init__(self) -> None:
        self.last = "no answer"
        self.fatal: str | None = None

    def __call__(self, error: KafkaError) -> None:
        """Take an error of the client."""
        self.last = error.str()
        if error.fatal():
            self.fatal = self.last


def connection_options(servers: str, options: Mapping[str, str], errors: LastError) -> dict[str, Any]:
    """Return the options of a client of these brokers; `options` are those of Kafka's Java client.

    Raises:
        Refused: a security option has no counterpart.
    """
    return {
        "socket.connection.setup.timeout.ms": 5000,
        **client_options(servers, _translated(options)),
        "error_cb": errors,
    }


def _translated(options: Mapping[str, str]) -> Connection:
    """Translate the options of Kafka's Java client.

    Raises:
        Refused: a security option has no counterpart.
    """
    connection = translate(options)
    if connection.unreported:
        raise Refused(
            f"Kafka's producer here has no counterpart for {', '.join(connection.unreported)} "
            f"(docs/kafka.md, Security)."
        )
    return connection


def known_topics(client: Producer | AdminClient, bootstrap: str, errors: LastError) -> dict[str, int]:
    """Return the partitions of each topic.

    Raises:
        Refused: no broker answers within about 8 seconds.
    """
    try:
        known = client.list_topics(timeout=_METADATA_SECONDS).topics
    except KafkaException as error:
        client.poll(0)  # hands the reason over to `errors`
        raise Refused(
            f"No Kafka broker answers at {bootstrap}: {errors.last}. Start it, or correct source.bootstrap_servers."
        ) from error
    return {name: len(topic.partitions) for name, topic in known.items()}

"""What a Kafka broker reports on the source's topic: its id, partitions and offsets, and whose clock its times are of.

Read before ingest starts. Spark's options are the Java client's; the connection options are translated for the client
used here. If that is impossible, the topic is not checked, and a warning is logged.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from pipeline.errors import Refused, Transient
from pipeline.ingest.identity import TopicObservation
from pipeline.settings import Source

_log = logging.getLogger("turnout")
_ANSWER_SECONDS: Final = 10.0

CHECK_ONLY: Final = frozenset({
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location",
    "ssl.key.pem", "sasl.username", "sasl.password",
})  # fmt: skip
"""Options of the client used here only. They may be in `source.kafka_options`; Spark does not get them."""

_SAME: Final = CHECK_ONLY | {
    "security.protocol", "sasl.mechanism", "sasl.kerberos.service.name", "ssl.key.password", "client.id",
}  # fmt: skip
_RENAMED: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_NOT_NEEDED: Final = frozenset({  # they restrict a connection, or belong to an option that is checked by itself
    "ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.provider", "ssl.truststore.type",
    "ssl.truststore.password", "ssl.keystore.type", "ssl.keystore.password", "ssl.trustmanager.algorithm",
    "ssl.keymanager.algorithm", "ssl.secure.random.implementation",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Connection:
    """Options for the client used here, and the names of those without a counterpart."""

    options: Mapping[str, str]
    unreported: tuple[str, ...]


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
    known: dict[str, Any] = {
        "bootstrap.servers": source.bootstrap_servers,
        "log_level": 0,
        "error_cb": _reported_elsewhere,
    }
    try:
        return _describe({**known, **connection.options}, source)
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


def translate(options: Mapping[str, str]) -> Connection:
    """Translate Kafka's Java connection options for the client used here."""
    given = {name.removeprefix("kafka."): value for name, value in options.items()}
    translated = {name: value for name, value in given.items() if name in _SAME}
    translated |= {_RENAMED[name]: value for name, value in given.items() if name in _RENAMED}
    translated |= _stores(given) | _login(given.get("sasl.jaas.config", ""))
    if "ssl.endpoint.identification.algorithm" in given:
        translated["ssl.endpoint.identification.algorithm"] = given["ssl.endpoint.identification.algorithm"] or "none"
    unreported = [
        name for name in sorted(given) if name.startswith(("ssl.", "sasl.")) and not _covered(name, translated)
    ]
    return Connection(translated, tuple(unreported))


def _stores(given: Mapping[str, str]) -> dict[str, str]:
    """Return why key and trust stores cannot be used: the client reads PEM, and keys from PKCS12, but not JKS."""
    translated = {}
    trust, keys = given.get("ssl.truststore.location"), given.get("ssl.keystore.location")
    if trust and given.get("ssl.truststore.type") == "PEM":
        translated["ssl.ca.location"] = trust
    if keys and given.get("ssl.keystore.type") == "PEM":
        translated |= {"ssl.certificate.location": keys, "ssl.key.location": keys}
    if keys and given.get("ssl.keystore.type") == "PKCS12":
        translated |= {"ssl.keystore.location": keys, "ssl.keystore.password": given.get("ssl.keystore.password", "")}
    return translated


def _login(jaas: str) -> dict[str, str]:
    """Return the name and password of a JAAS entry that has them."""
    credentials = dict(re.findall(r'\b(username|password)="((?:[^"\\]|\\.)*)"', jaas))
    if credentials.keys() < {"username", "password"}:
        return {}
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", value) for name, value in credentials.items()}


def _covered(name: str, translated: Mapping[str, str]) -> bool:
    """Return whether an option is set in the other client's words, directly or by its counterpart."""
    counterparts = {
        "ssl.truststore.location": ("ssl.ca.location", "ssl.ca.pem"),
        "ssl.keystore.location": ("ssl.keystore.location", "ssl.certificate.location", "ssl.certificate.pem"),
        "sasl.jaas.config": ("sasl.password",),
    }
    wanted = counterparts.get(name, (_RENAMED.get(name, name),))
    return name in _NOT_NEEDED or any(each in translated for each in wanted)


def _describe(options: Mapping[str, Any], source: Source) -> TopicObservation:
    topic = source.topic
    admin = AdminClient(dict(options))  # by name: without one it would be collected before the answer
    description = admin.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_SECONDS)[topic].result()
    places = [TopicPartition(topic, part.id) for part in description.partitions]
    earliest = list_offsets(admin, places, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
    readable = None
    if source.isolation_level == "read_committed":  # read first: an end that is read later lies behind it
        readable = list_offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
    latest = list_offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
    return TopicObservation(topic, str(description.topic_id), earliest, latest, readable, _clock(admin, topic))


def list_offsets(
    admin: AdminClient, places: Sequence[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[int, int]:
    """Return one offset of each partition, fetched in one request to each broker."""
    answers = admin.list_offsets(
        dict.fromkeys(places, spec), isolation_level=isolation, request_timeout=_ANSWER_SECONDS
    )
    return {place.partition: answer.result().offset for place, answer in answers.items()}


def _clock(admin: AdminClient, topic: str) -> str | None:
    """Return whose time the topic's records have; None where its configuration is not readable."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        settings = admin.describe_configs([resource], request_timeout=_ANSWER_SECONDS)[resource].result()
    except KafkaException as error:
        _log.warning("the configuration of topic %s cannot be read: %s", topic, error.args[0].str())
        return None
    kind = settings["message.timestamp.type"].value if "message.timestamp.type" in settings else None
    return {"LogAppendTime": "broker", "CreateTime": "producer"}.get(str(kind))


def _reported_elsewhere(_: KafkaError) -> None:
    """Keep the client's errors off stderr: the request fails with the same reason."""

"""Options of a connection to Kafka: those of the Java client, which users write, in the words of the client used here.

Spark reads with the Java client; everything else here uses librdkafka's, whose security options have other names.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError

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


def client_options(servers: str, connection: Connection) -> dict[str, Any]:
    """Return the options of a client of these brokers that prints nothing: each request fails with its reason."""
    return {"bootstrap.servers": servers, "log_level": 0, "error_cb": _reported_elsewhere, **connection.options}


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


def _reported_elsewhere(_: KafkaError) -> None:
    """Keep the client's errors off stderr: the request fails with the same reason."""

"""Clients of Kafka take the options of the Java client, or refuse before they connect."""

from collections.abc import Callable, Mapping

import pytest

from pipeline.base.errors import Refused
from pipeline.lake.kafka.connection import client_options, translate
from pipeline.lake.kafka.producer import TopicProducer, ensure_topic

LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'


def make_topic(bootstrap: str, topic: str, options: Mapping[str, str]) -> None:
    ensure_topic(bootstrap, topic, 1, options)


@pytest.mark.parametrize("make", [TopicProducer, make_topic])
def test_a_producer_never_connects_with_less_security_than_its_options_say(make: Callable[..., object]) -> None:
    """An option without a counterpart is refused by its name; its value, which may be a secret, is not shown."""
    options = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/secret/trust.jks"}
    with pytest.raises(Refused, match=r"no counterpart for ssl\.truststore\.location") as refused:
        make("127.0.0.1:9", "laps", options)
    assert "secret" not in str(refused.value)


def test_a_client_gets_the_login_in_its_own_words() -> None:
    """Ingest, probe and producer connect with the same options as Spark's reader."""
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": LOGIN}
    options = client_options("a:9092,b:9092", translate(given))
    expected = {
        "bootstrap.servers": "a:9092,b:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u", "sasl.password": "p",
    }  # fmt: skip
    assert expected.items() <= options.items()
    assert options["log_level"] == 0, "the client prints nothing"

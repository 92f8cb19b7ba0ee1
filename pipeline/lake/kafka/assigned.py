"""Makes clients that read partitions of topics by offset, for everything that reads beside Spark.

They join no consumer group and commit nothing, so they need no right on a group: READ and DESCRIBE on the topic are
enough, as for Spark.
"""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Message


def consumer_of(options: Mapping[str, Any], name: str, isolation: str, **more: Any) -> Consumer:
    """Return a client that reports ends of partitions, and an offset that its broker lacks as an error.

    Its messages come by `received`. `name` ends the group id that the client must have. The
    client itself refuses options that it does not know.
    """
    return Consumer({
        **options, "group.id": f"turnout-{name}", "enable.auto.commit": False, "enable.partition.eof": True,
        "auto.offset.reset": "error", "isolation.level": isolation, **more,
    })  # fmt: skip


def received(consumer: Consumer, seconds: float, most: int = 1) -> list[Message]:
    """Return up to `most` records and errors of its partitions; none where nothing comes in this time.

    An error of no partition is one of the group, such as GROUP_AUTHORIZATION_FAILED where ACLs give no right on it.
    """
    return [message for message in consumer.consume(most, seconds) if message.topic() is not None]

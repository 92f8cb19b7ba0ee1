"""What a broker reports about a topic: its id, its partitions' offsets, and whose clock its times are of."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

_log = logging.getLogger("turnout")
_ANSWER_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as its broker describes it: by partition, the first offset and the one after the last."""

    id: str
    earliest: Mapping[int, int]
    latest: Mapping[int, int]
    readable: Mapping[int, int] | None  # where an open transaction blocks readers of committed records; None: not asked
    clock: str | None  # whose time records have by the topic's configuration: broker or producer; None: unknown


def describe_topic(options: Mapping[str, Any], topic: str, *, committed: bool) -> TopicFacts:
    """Ask the broker about a topic; `committed`, for a reader of committed records.

    Raises:
        KafkaException: there is no such topic, or the broker does not answer for all partitions.
    """
    admin = AdminClient(dict(options))  # by name: without one it would be collected before the answer
    description = admin.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_SECONDS)[topic].result()
    places = [TopicPartition(topic, part.id) for part in description.partitions]
    earliest = list_offsets(admin, places, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
    readable = None
    if committed:  # read first: an end that is read later lies behind it
        readable = list_offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
    latest = list_offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
    return TopicFacts(str(description.topic_id), earliest, latest, readable, _clock(admin, topic))


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

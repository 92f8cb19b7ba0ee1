"""What a broker reports about a topic: its id, its partitions' offsets, and whose clock its times are of."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

_log = logging.getLogger("turnout")
_ANSWER_SECONDS: Final = 10.0
_NO_ID: Final = str(Uuid(0, 0))  # of brokers before Kafka 2.8, and of some that are no Kafka

TopicPlace = tuple[str, int]
"""A topic and one of its partitions."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as its broker describes it: by partition, the first offset and the one after the last."""

    id: str | None  # None: the broker gives none
    earliest: Mapping[int, int]
    latest: Mapping[int, int]
    readable: Mapping[int, int] | None  # where an open transaction blocks readers of committed records; None: not asked
    clock: str | None  # whose time records have by the topic's configuration: broker or producer; None: unknown


def describe_topic(options: Mapping[str, Any], topic: str, *, committed: bool) -> TopicFacts:
    """Ask the broker about a topic; `committed`, for a reader of committed records.

    Raises:
        KafkaException: there is no such topic, or the broker does not answer for all partitions.
    """
    return describe_topics(options, [topic], committed=committed)[topic]


def describe_topics(options: Mapping[str, Any], topics: Sequence[str], *, committed: bool) -> dict[str, TopicFacts]:
    """Ask the broker about topics, in the same few requests for all of them.

    Raises:
        KafkaException: one of them is not there, or the broker does not answer for all partitions.
    """
    admin = AdminClient(dict(options))  # by name: without one it would be collected before the answer
    partitions = partitions_of(admin, topics)
    places = [TopicPartition(topic, number) for topic, (_, numbers) in partitions.items() for number in numbers]
    earliest = list_offsets(admin, places, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
    readable = None
    if committed:  # read first: an end that is read later lies behind it
        readable = list_offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
    latest = list_offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
    return {
        topic: TopicFacts(
            topic_id,
            _of(topic, earliest),
            _of(topic, latest),
            None if readable is None else _of(topic, readable),
            _clock(admin, topic),
        )
        for topic, (topic_id, _) in partitions.items()
    }


def partitions_of(
    admin: AdminClient, topics: Sequence[str], seconds: float = _ANSWER_SECONDS
) -> dict[str, tuple[str | None, list[int]]]:
    """Return id, None where the broker gives none, and partitions of each topic.

    Raises:
        KafkaException: one of them is not there, or the broker does not answer.
    """
    if not topics:
        return {}
    answers = admin.describe_topics(TopicCollection(list(topics)), request_timeout=seconds)
    found = {topic: answer.result() for topic, answer in answers.items()}
    return {
        topic: (None if str(each.topic_id) == _NO_ID else str(each.topic_id), [part.id for part in each.partitions])
        for topic, each in found.items()
    }


def topics_matching(admin: AdminClient, pattern: re.Pattern[str]) -> list[str]:
    """Return the topics whose whole name matches, without Kafka's internal ones, which Spark leaves out, too.

    Raises:
        KafkaException: the broker does not answer.
    """
    names = [name for name in admin.list_topics(timeout=_ANSWER_SECONDS).topics if pattern.fullmatch(name)]
    if not names:
        return []
    answers = admin.describe_topics(TopicCollection(names), request_timeout=_ANSWER_SECONDS)
    return sorted(name for name, answer in answers.items() if not answer.result().is_internal)


def list_offsets(
    admin: AdminClient, places: Sequence[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[TopicPlace, int]:
    """Return one offset of each partition, fetched in one request to each broker."""
    if not places:
        return {}
    answers = admin.list_offsets(
        dict.fromkeys(places, spec), isolation_level=isolation, request_timeout=_ANSWER_SECONDS
    )
    return {(place.topic, place.partition): answer.result().offset for place, answer in answers.items()}


def leader_epochs(admin: AdminClient, places: Sequence[TopicPartition]) -> dict[TopicPlace, int]:
    """Return the leader epoch of each partition, -1 where the broker gives none: each election begins another one."""
    if not places:
        return {}
    answers = admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()), request_timeout=_ANSWER_SECONDS)
    return {(place.topic, place.partition): answer.result().leader_epoch for place, answer in answers.items()}


def first_records(admin: AdminClient, places: Sequence[TopicPartition]) -> dict[TopicPlace, tuple[int, int]]:
    """Return offset and time (ms) of the first record of each partition that has one with a time."""
    if not places:
        return {}
    answers = admin.list_offsets(dict.fromkeys(places, OffsetSpec.for_timestamp(0)), request_timeout=_ANSWER_SECONDS)
    found = {(place.topic, place.partition): answer.result() for place, answer in answers.items()}
    return {place: (each.offset, each.timestamp) for place, each in found.items() if each.offset >= 0}


def _of(topic: str, offsets: Mapping[TopicPlace, int]) -> dict[int, int]:
    return {number: offset for (name, number), offset in offsets.items() if name == topic}


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

"""The backlog of a Kafka topic: the offsets after the last in bronze, and the time of the oldest record among them.

Keeps one client and one consumer. Never joins a consumer group; fetches a little of each partition.
"""

import time
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from math import inf
from typing import Any, Final

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from pipeline.base.errors import Transient
from pipeline.data.ingest.identity import Offsets, Position, Positions
from pipeline.data.ingest.sources.kind import Ends
from pipeline.data.ingest.sources.topic_observation import topic_names
from pipeline.data.ingest.sources.waiting import Waiting
from pipeline.lake.kafka.admin import TopicPlace, list_offsets, partitions_of
from pipeline.lake.kafka.assigned import consumer_of, received
from pipeline.lake.kafka.connection import Connection, client_options, translate
from pipeline.settings.source import Source, topic_described, topic_of

_ANSWER_SECONDS: Final = 5.0
_OLDEST_SECONDS: Final = 5.0  # for the oldest records of all partitions together
_SMALL_FETCH: Final = {
    "fetch.wait.max.ms": 100,
    "fetch.message.max.bytes": 65_536,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1_024,
    "fetch.queue.backoff.ms": 10,  # as in `records`
}


_MARKERS: Final = inf
_LOOKS_KEPT: Final = 1_000
_CLOCK_SLACK_SECONDS: Final = 10.0

Look = tuple[float, Mapping[Any, int]]
"""The time of a measurement, and the offset after the last record of each partition then."""


def arrived(looks: Sequence[Look], partition: Hashable, offset: int, stamped: float | None, now: float) -> float | None:
    """Return when a waiting record arrived: its own time, bounded by the measurements around it; None if unknown.

    Its time may be a producer's clock, right or wrong: it arrived after the last measurement without it, and before the
    first with it. Without a plausible time it counts as arrived as early as possible.
    """
    earliest, latest = None, now
    for at, ends in reversed(looks):
        if ends.get(partition, 0) <= offset:
            earliest = at
            break
        latest = at
    if stamped is None or stamped > now + _CLOCK_SLACK_SECONDS:
        return earliest
    return min(latest, stamped if earliest is None else max(earliest, stamped))


class TopicBacklog:
    """Asks the brokers of a source's topics."""

    def __init__(self, source: Source) -> None:
        """Prepare; asks nothing yet."""
        self._source = source
        self._admin: AdminClient | None = None
        self._consumer: Consumer | None = None
        self._ids: dict[str, str | None] = {}  # of each topic as first seen
        self._looks: deque[Look] = deque(maxlen=_LOOKS_KEPT)

    def close(self) -> None:
        """Close the connections."""
        if self._consumer is not None:
            self._consumer.close()

    def look(self, offset: Mapping[str, Any] | None, begin: Position | None) -> Waiting:
        """Return the backlog behind Spark's offset, or from the beginning without one."""
        passed = self._passed(offset, begin)
        if passed is None:
            return Waiting(None, None, "the start offsets are unknown before the first micro-batch")
        connection = translate(self._source.kafka_options)
        if connection.unreported:
            unreported = ", ".join(connection.unreported)
            return Waiting(None, None, f"no counterpart for {unreported} (docs/kafka.md, Security)")
        try:
            return self._look(passed, connection)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            return Waiting(None, None, f"the Kafka broker does not report the backlog: {reason.str()}")

    def ends(self) -> Ends | None:
        """Return the offset after the last one of each partition; records behind an open transaction count."""
        connection = translate(self._source.kafka_options)
        if connection.unreported:
            return None
        admin = self._asked(client_options(self._source.bootstrap_servers, connection))
        try:
            ids, ends = self._ids_and_ends(admin)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            raise Transient(f"The Kafka broker does not report where the source ends: {reason.str()}.") from error
        for topic, found in ids.items():
            if self._ids.setdefault(topic, found) != found:
                raise Transient(f"The Kafka topic {topic!r} was deleted and recreated.")
        by_topic = {topic: {number: end for (name, number), end in ends.items() if name == topic} for topic in ids}
        return {topic_described(topic, self._source): of for topic, of in by_topic.items()}

    def reached(self, offset: Mapping[str, Any] | None, begin: Position | None) -> Ends | None:
        """Return the next offset of each partition."""
        passed = self._passed(offset, begin)
        if passed is None:
            return None
        found: dict[str, dict[int, int]] = {}
        for (topic, number), at in passed.items():
            found.setdefault(topic_described(topic, self._source), {})[number] = at
        return found

    def _asked(self, options: Mapping[str, Any]) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(dict(options))
        return self._admin

    def _passed(self, offset: Mapping[str, Any] | None, begin: Position | None) -> dict[TopicPlace, int] | None:
        """Return the next offset by topic and partition; None before the first micro-batch where it is unknown."""
        if offset is not None:
            return {(topic, int(number)): int(at) for topic, after in offset.items() for number, at in after.items()}
        if isinstance(begin, Offsets):
            return {(self._source.topic, number): at for number, at in begin.next.items()}
        return _by_place(begin, self._source) if isinstance(begin, Positions) else None

    def _look(self, passed: Mapping[TopicPlace, int], connection: Connection) -> Waiting:
        options = client_options(self._source.bootstrap_servers, connection)
        ends = self._ends(self._asked(options))
        waiting = {number: passed.get(number, 0) for number, end in ends.items() if end > passed.get(number, 0)}
        rows = sum(ends[number] - at for number, at in waiting.items())
        if not waiting:
            self._looks.append((time.time(), ends))
            return Waiting(0, None)
        if self._consumer is None:
            more = {**_SMALL_FETCH, "auto.offset.reset": "earliest"}
            self._consumer = consumer_of(options, "backlog", "read_uncommitted", **more)
        places = [TopicPartition(*place, at) for place, at in waiting.items()]
        try:
            self._consumer.assign(places)
            times = self._times(self._consumer, len(places))
        finally:
            self._consumer.resume(places)  # an unassigned partition stays paused
            self._consumer.unassign()
        held = {number: at for number, at in waiting.items() if times.get(number) != _MARKERS}
        now = time.time()
        came = [arrived(self._looks, number, at, times.get(number), now) for number, at in held.items()]
        self._looks.append((now, ends))
        known = [at for at in came if at is not None]
        if len(known) < len(came):
            return Waiting(rows, None, f"the oldest record was not read within {_OLDEST_SECONDS:.0f} s, or has no time")
        return Waiting(rows, min(known)) if known else Waiting(0, None)

    def _ends(self, admin: AdminClient) -> dict[TopicPlace, int]:
        """Return the offset after the last one of each partition: records held up by an open transaction wait, too."""
        return self._ids_and_ends(admin)[1]

    def _ids_and_ends(self, admin: AdminClient) -> tuple[dict[str, str | None], dict[TopicPlace, int]]:
        """Return the id of each topic, and the offset after the last one of each partition."""
        topics = partitions_of(admin, topic_names(admin, self._source), _ANSWER_SECONDS)
        places = [TopicPartition(topic, number) for topic, (_, numbers) in topics.items() for number in numbers]
        ends = list_offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        return {topic: topic_id for topic, (topic_id, _) in topics.items()}, ends

    def _times(self, consumer: Consumer, partitions: int) -> dict[TopicPlace, float]:
        """Return the time of the first record of each assigned partition, or that it has only markers.

        A partition that has not answered in time is absent, and so is a record without a time.
        """
        found: dict[TopicPlace, float] = {}
        until = time.monotonic() + _OLDEST_SECONDS
        answered: set[TopicPlace] = set()
        while len(answered) < partitions and time.monotonic() < until:
            messages = received(consumer, 0.2)
            if not messages:
                continue
            (message,) = messages
            place = message.topic() or "", message.partition() or 0
            if place in answered:
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - it has no other name
                raise KafkaException(error)
            answered.add(place)
            consumer.pause([TopicPartition(*place)])
            kind, at = message.timestamp()
            if error is not None:
                found[place] = _MARKERS
            elif kind != TIMESTAMP_NOT_AVAILABLE:
                found[place] = at / 1000
        return found


def _by_place(begin: Positions, source: Source) -> dict[TopicPlace, int]:
    """Return the next offset by topic and partition, from positions by the description of each topic."""
    return {
        (topic, number): at
        for described, position in begin.of.items()
        if isinstance(position, Offsets) and (topic := topic_of(described, source)) is not None
        for number, at in position.next.items()
    }

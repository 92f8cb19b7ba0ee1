"""The backlog of a Kafka topic: the offsets after the last in bronze, and the time of the oldest record among them.

Keeps one client and one consumer. Never joins a consumer group; fetches a little of each partition.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from pipeline.ingest.identity import Offsets, Position
from pipeline.ingest.sources.waiting import Waiting
from pipeline.kafka.admin import list_offsets
from pipeline.kafka.connection import Connection, client_options, translate
from pipeline.source_settings import Source

_ANSWER_SECONDS: Final = 5.0
_OLDEST_SECONDS: Final = 5.0  # for the oldest records of all partitions together
_SMALL_FETCH: Final = {
    "fetch.wait.max.ms": 100,
    "fetch.message.max.bytes": 65_536,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1_024,
}


_MARKERS: Final = inf
_LOOKS_KEPT: Final = 1_000
_CLOCK_SLACK_SECONDS: Final = 10.0

Look = tuple[float, Mapping[int, int]]
"""The time of a measurement, and the offset after the last record of each partition then."""


def arrived(looks: Sequence[Look], partition: int, offset: int, stamped: float | None, now: float) -> float | None:
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
    """Asks the brokers of one topic."""

    def __init__(self, source: Source) -> None:
        """Prepare; asks nothing yet."""
        self._source = source
        self._admin: AdminClient | None = None
        self._consumer: Consumer | None = None
        self._looks: deque[Look] = deque(maxlen=_LOOKS_KEPT)

    def close(self) -> None:
        """Close the connections."""
        if self._consumer is not None:
            self._consumer.close()

    def look(self, offset: Mapping[str, Any] | None, begin: Position | None) -> Waiting:
        """Return the backlog behind Spark's offset, or from the beginning without one."""
        if offset is not None:
            passed = {int(number): int(at) for number, at in offset[self._source.topic].items()}
        elif isinstance(begin, Offsets):
            passed = dict(begin.next)
        else:
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

    def _look(self, passed: Mapping[int, int], connection: Connection) -> Waiting:
        options = client_options(self._source.bootstrap_servers, connection)
        if self._admin is None:
            self._admin = AdminClient(options)
        ends = self._ends(self._admin)
        waiting = {number: passed.get(number, 0) for number, end in ends.items() if end > passed.get(number, 0)}
        rows = sum(ends[number] - at for number, at in waiting.items())
        if not waiting:
            self._looks.append((time.time(), ends))
            return Waiting(0, None)
        if self._consumer is None:
            self._consumer = Consumer({
                **options, **_SMALL_FETCH, "group.id": "turnout-backlog", "enable.auto.commit": False,
                "enable.partition.eof": True, "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
            })  # fmt: skip
        places = [TopicPartition(self._source.topic, number, at) for number, at in waiting.items()]
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

    def _ends(self, admin: AdminClient) -> dict[int, int]:
        """Return the offset after the last one of each partition: records held up by an open transaction wait, too."""
        topic = self._source.topic
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_SECONDS)[topic].result()
        places = [TopicPartition(topic, part.id) for part in described.partitions]
        return list_offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def _times(self, consumer: Consumer, partitions: int) -> dict[int, float]:
        """Return the time of the first record of each assigned partition, or that it has only markers.

        A partition that has not answered in time is absent, and so is a record without a time.
        """
        found: dict[int, float] = {}
        until = time.monotonic() + _OLDEST_SECONDS
        answered: set[int] = set()
        while len(answered) < partitions and time.monotonic() < until:
            message = consumer.poll(0.2)
            number = None if message is None else message.partition()
            if message is None or number is None or number in answered:
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - it has no other name
                raise KafkaException(error)
            answered.add(number)
            consumer.pause([TopicPartition(self._source.topic, number)])
            kind, at = message.timestamp()
            if error is not None:
                found[number] = _MARKERS
            elif kind != TIMESTAMP_NOT_AVAILABLE:
                found[number] = at / 1000
        return found

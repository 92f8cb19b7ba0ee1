"""Reads single records of topics by their offsets. Joins no consumer group and commits nothing."""

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from pipeline.lake.kafka.admin import TopicPlace
from pipeline.lake.kafka.assigned import consumer_of, received

_SECONDS: Final = 10.0  # without any answer
# The client has sent the next fetch ahead, and a look elsewhere waits for it.
_SMALL_FETCH: Final = {
    "fetch.wait.max.ms": 10,
    "fetch.message.max.bytes": 65_536,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1_024,
    "fetch.queue.backoff.ms": 10,  # else it pauses for 1 s once its queue has a message, wherever the next look is
    "auto.offset.reset": "earliest",
}


class RecordReader:
    """Looks records up by a client of its own; for one thread."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Connect; records of open and aborted transactions are found, too: they are what an offset has.

        Raises:
            KafkaException: the options cannot be used.
        """
        self._consumer = consumer_of(options, "records", "read_uncommitted", **_SMALL_FETCH)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def onward(self, wanted: Mapping[TopicPlace, int]) -> dict[TopicPlace, Message | None]:
        """Return the first record at or after an offset of each partition; None where the broker has none there.

        Raises:
            KafkaException: a broker does not answer.
        """
        found: dict[TopicPlace, Message | None] = {}
        places = [TopicPartition(topic, number, offset) for (topic, number), offset in wanted.items()]
        if not places:
            return found
        try:
            self._consumer.assign(places)
            until = time.monotonic() + _SECONDS
            while len(found) < len(places):
                messages = received(self._consumer, 0.2)
                if messages:
                    until = time.monotonic() + _SECONDS
                elif time.monotonic() > until:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - it has no other name
                for message in messages:
                    self._take(message, wanted, found)
        finally:
            self._consumer.resume(places)  # an unassigned partition stays paused
            self._consumer.unassign()
        return found

    def _take(
        self, message: Message, wanted: Mapping[TopicPlace, int], found: dict[TopicPlace, Message | None]
    ) -> None:
        place = message.topic() or "", message.partition() or 0
        if place in found or place not in wanted:
            return
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - it has no other name
            raise KafkaException(error)
        # An offset that is not in the log leads to its first record, also one above its end.
        found[place] = message if error is None and (message.offset() or 0) >= wanted[place] else None
        self._consumer.pause([TopicPartition(*place)])

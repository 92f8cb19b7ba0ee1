"""Asks a broker what its topics are now, before each commit of a batch: ids and leader epochs, in two requests.

Also which record an offset has. Keeps its connection between two looks.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from pipeline.base.errors import Transient
from pipeline.data.ingest.evidence.marks import LastRecord, Mark, digest
from pipeline.lake.kafka.admin import first_records, leader_epochs, partitions_of
from pipeline.lake.kafka.connection import client_options, translate
from pipeline.lake.kafka.records import RecordReader
from pipeline.settings.source import Source, topic_of

_ANSWER_SECONDS: Final = 10.0
_LAST_MS: Final = 253_402_300_800_000  # the year 10000: bronze has no later time


def witness_of(source: Source) -> "TopicWitness | None":
    """Return what asks the brokers of a source's topics; None where its options do not allow it."""
    connection = translate(source.kafka_options)
    if connection.unreported:
        return None
    return TopicWitness(source, client_options(source.bootstrap_servers, connection))


class TopicWitness:
    """Asks the brokers of a source's topics."""

    def __init__(self, source: Source, options: Mapping[str, Any]) -> None:
        """Ask by a client with these options."""
        self._source, self._options, self._admin = source, options, AdminClient(dict(options))
        self._reader: RecordReader | None = None

    def look(self, described: Collection[str]) -> Mapping[str, Mark]:
        """Return what each topic is now; none of them where one is gone.

        Raises:
            Transient: the broker does not answer.
        """
        topics = {topic: each for each in described if (topic := topic_of(each, self._source)) is not None}
        try:
            found = partitions_of(self._admin, sorted(topics), _ANSWER_SECONDS)
            places = [TopicPartition(topic, number) for topic, (_, numbers) in found.items() for number in numbers]
            epochs = leader_epochs(self._admin, places)
            # A topic's id says it all; without one, what its first records are.
            first = first_records(self._admin, [each for each in places if found[each.topic][0] is None])
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return {}
            raise Transient(
                f"The Kafka broker at {self._source.bootstrap_servers} does not describe {', '.join(sorted(topics))}: "
                f"{reason.str()}."
            ) from error
        return {
            topics[topic]: Mark(
                topic_id,
                {number: epoch for (name, number), epoch in epochs.items() if name == topic},
                {number: at for (name, number), at in first.items() if name == topic},
            )
            for topic, (topic_id, _) in found.items()
        }

    def records(self, described: str, offsets: Mapping[int, int]) -> Mapping[int, LastRecord]:
        """Return the record at an offset of each partition of a topic; absent where the broker has none there.

        Raises:
            Transient: the broker does not answer.
        """
        found = self.onward(described, offsets)
        return {number: each for number, each in found.items() if each.offset == offsets[number]}

    def onward(self, described: str, offsets: Mapping[int, int]) -> Mapping[int, LastRecord]:
        """Return the first record at or after an offset of each partition of a topic; absent where there is none.

        Records of open and aborted transactions count. The connection stays open until `close`.

        Raises:
            Transient: the broker does not answer.
        """
        topic = topic_of(described, self._source)
        if topic is None:
            return {}
        try:
            if self._reader is None:
                self._reader = RecordReader(self._options)
            found = self._reader.onward({(topic, number): at for number, at in offsets.items()})
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            raise Transient(
                f"The Kafka broker at {self._source.bootstrap_servers} does not give records of {topic}: "
                f"{reason.str()}."
            ) from error
        return {number: _last(message) for (_, number), message in found.items() if message is not None}

    def close(self) -> None:
        """Close the connection that reads records."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _last(message: Message) -> LastRecord:
    kind, at = message.timestamp()
    known = kind != TIMESTAMP_NOT_AVAILABLE and abs(at) < _LAST_MS
    return LastRecord(message.offset() or 0, at if known else None, digest(message.key()), digest(message.value()))

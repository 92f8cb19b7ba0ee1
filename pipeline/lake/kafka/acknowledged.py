"""Produces batches to a topic and says of each whether all of it is in the log. For the edge.

Acknowledged means that each record's delivery report came without an error. Otherwise nothing is known: a record that
failed here may be in the topic all the same.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from pipeline.base.errors import Refused, first_line
from pipeline.lake.kafka.admin import partitions_of
from pipeline.lake.kafka.producer import EXACTLY_ONCE, RECORD_BYTES, LastError, connection_options, known_topics

_log: Final = logging.getLogger("turnout")
_QUEUE_RECORDS: Final = 100_000
_QUEUE_KILOBYTES: Final = 256 * 1024
_BATCH_BYTES: Final = 1_024  # around a record that is alone in its batch, generously
_LINGER_MS: Final = 5
_POLL_SECONDS: Final = 0.1
_ASK_SECONDS: Final = 8.0
_TOPIC_ID_SECONDS: Final = 1.0  # between two looks at the topic's id
_FULL: Final = KafkaError._QUEUE_FULL  # noqa: SLF001 -- the client's own constants have such names


class DeliveredOffsets(NamedTuple):
    """The lowest and the highest offset of a batch's records in one partition."""

    first: int
    last: int


class Delivered:
    """One batch on its way; the poll thread counts its reports and hands it over once, when the last has come."""

    __slots__ = ("_done", "_left", "_lock", "error", "offsets")

    def __init__(self, records: int, done: Callable[["Delivered"], None]) -> None:
        """Expect a report for each of these records."""
        self.error: KafkaError | None = None  # of one of the records that failed; None: all are in the log
        self.offsets: dict[int, DeliveredOffsets] = {}  # by partition
        self._left, self._done, self._lock = records, done, threading.Lock()

    @property
    def is_full(self) -> bool:
        """Whether a record found no room in the client's queue."""
        return self.error is not None and self.error.code() == _FULL

    @property
    def why(self) -> str | None:
        """Why not all records are known to be in the topic, None where they are."""
        return None if self.error is None else self.error.str()

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Take one delivery report."""
        partition, offset = message.partition(), message.offset()
        with self._lock:
            if error is not None:
                self.error = error
            elif partition is not None and offset is not None:
                known = self.offsets.get(partition)
                first, last = (offset, offset) if known is None else known
                self.offsets[partition] = DeliveredOffsets(min(first, offset), max(last, offset))
            self._left -= 1
            ended = self._left == 0
        if ended:
            self._done(self)

    def never_queued(self, records: int, error: KafkaError) -> None:
        """Count records for which no report comes."""
        with self._lock:
            self.error = error
            self._left -= records
            ended = records > 0 and self._left == 0
        if ended:
            self._done(self)


class AcknowledgedProducer:
    """An idempotent producer to one topic, with a thread that takes its reports; safe to use from any thread."""

    def __init__(self, bootstrap: str, topic: str, options: Mapping[str, str], message_timeout_seconds: float) -> None:
        """Connect; `options` are those of Kafka's Java client.

        Raises:
            Refused: no broker answers within about 8 seconds, it has no such topic, or an option has no counterpart.
        """
        self._topic, self._stop, self._errors = topic, threading.Event(), LastError()
        self._producer = Producer({
            **connection_options(bootstrap, options, self._errors),
            **EXACTLY_ONCE,
            "linger.ms": _LINGER_MS,
            "compression.type": "lz4",
            "queue.buffering.max.messages": _QUEUE_RECORDS,
            "queue.buffering.max.kbytes": _QUEUE_KILOBYTES,
            "delivery.timeout.ms": int(message_timeout_seconds * 1000),
        })  # fmt: skip
        if topic not in known_topics(self._producer, bootstrap, self._errors):
            raise Refused(f"The topic {topic!r} does not exist at {bootstrap}. Create it, or correct source.topic.")
        self.record_bytes = min(RECORD_BYTES, _limit_of(bootstrap, options, topic))
        """Largest record that the topic takes whatever it holds; a batch may be larger before it is compressed."""
        self.topic_id = ""
        """The topic's id by the newest look; empty where the broker gives none."""
        self._admin = AdminClient(connection_options(bootstrap, options, LastError()))
        self._look_at_topic()
        self._thread = threading.Thread(target=self._poll, name="kafka reports", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch_topic, name="kafka topic id", daemon=True).start()

    @property
    def fatal(self) -> str | None:
        """Why the client can produce no more, None while it can."""
        return self._errors.fatal

    def send(self, keys: Sequence[bytes], values: Sequence[bytes], done: Callable[[Delivered], None]) -> None:
        """Hand over a batch; `done` is called once, in any thread, when each record is delivered or has failed."""
        batch = Delivered(len(values), done)
        records: list[dict[str, Any]] = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
        try:
            queued = self._producer.produce_batch(self._topic, records, on_delivery=batch)
        except (BufferError, KafkaException) as error:
            known = error.args[0] if isinstance(error, KafkaException) else KafkaError(_FULL)
            batch.never_queued(len(records), known)
            return
        if queued < len(records):  # no report comes for these
            lost = [each["_error"] for each in records if "_error" in each]
            batch.never_queued(len(lost), lost[0])

    def close(self, seconds: float) -> int:
        """Wait for the reports of what was handed over, give up the rest, and return how many records that were."""
        left: int = self._producer.flush(seconds)
        if left:
            self._producer.purge()
            self._producer.flush(1.0)
        self._stop.set()
        self._thread.join()
        return left

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(_POLL_SECONDS)

    def _watch_topic(self) -> None:
        while not self._stop.wait(_TOPIC_ID_SECONDS):
            self._look_at_topic()

    def _look_at_topic(self) -> None:
        """Take the topic's id; while the broker does not answer, or has no such topic, the last one counts."""
        try:
            found, _ = partitions_of(self._admin, [self._topic], _ASK_SECONDS)[self._topic]
        except KafkaException as error:
            _log.debug("the id of the topic %s is not known: %s", self._topic, first_line(error))
        else:
            self.topic_id = found or ""


def _limit_of(bootstrap: str, options: Mapping[str, str], topic: str) -> int:
    """Return the largest record that a topic takes; `RECORD_BYTES` where the broker does not say."""
    admin = AdminClient(connection_options(bootstrap, options, LastError()))
    asked = ConfigResource(ResourceType.TOPIC, topic)
    try:
        found = admin.describe_configs([asked], request_timeout=_ASK_SECONDS)[asked].result()
        return int(found["max.message.bytes"].value) - _BATCH_BYTES
    except (KafkaException, KeyError, ValueError, TypeError) as error:
        _log.warning(
            "the largest record of the topic %s is not known (%s): %d bytes are assumed",
            topic, first_line(error), RECORD_BYTES,
        )  # fmt: skip
        return RECORD_BYTES

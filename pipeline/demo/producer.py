"""Carries events to a source: appends them to the Delta landing table, or produces them to a Kafka topic.

Called by the command line, the demo, the bench and tests with the batches of a simulator. A batch is taken only when
it is due and is then sent whole, so after a stop the simulator's counts are what was sent.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event as StopEvent
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from deltalake.exceptions import DeltaError
from tqdm import tqdm  # type: ignore[import-untyped]  # its types are another package

from pipeline.delta.opening import open_table
from pipeline.delta.table import CursorTable, write_file
from pipeline.demo.simulator import Event
from pipeline.errors import Refused, Transient
from pipeline.ingest.landing_log import LANDING

_CHECKPOINT_EVERY = 50  # landing commits; without checkpoints each opening of the table reads its whole log
_METADATA_SECONDS = 8.0
_DELIVERY_SECONDS = 30.0  # how long one message may stay undelivered
_FLUSH_SECONDS = _DELIVERY_SECONDS + 5.0


def write_landing(
    path: Path,
    batches: Iterator[Sequence[Event]],
    *,
    rate_per_second: float | None = None,
    total: int | None = None,
    stop: StopEvent | None = None,
) -> Counter[str]:
    """Append each batch to the landing table in one commit, creating the table if there is none.

    `rate_per_second` spaces the batches on a fixed schedule, None sends at once; `total` is only for the progress
    bar; `stop` ends it between two batches. Returns the events written, by kind.

    Raises:
        Refused: the path holds something else, or cannot be written.
    """
    written: Counter[str] = Counter()
    table = _landing_table(path)
    for batch in _due(batches, rate_per_second, total, stop or StopEvent()):
        keys, values = [event.key for event in batch], [event.value for event in batch]
        rows = pa.Table.from_arrays([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=LANDING)
        try:
            table.append([write_file(rows, path, [])])
        except (DeltaError, OSError) as error:
            raise Refused(
                f"The landing table {path} cannot be written: {_line(error)}. Check its disk and permissions."
            ) from error
        written.update(event.kind for event in batch)
    return written


def ensure_topic(bootstrap: str, topic: str, partitions: int) -> int:
    """Create a topic if there is none and return how many partitions it has, which an old one keeps.

    Raises:
        Refused: no broker answers within about 8 seconds, or it rejects the topic.
    """
    logger = _Quiet()
    admin = AdminClient(_connection(bootstrap, logger))
    if topic in (known := _topics(admin, bootstrap, logger)):
        return known[topic]
    created = admin.create_topics([NewTopic(topic, num_partitions=partitions)], request_timeout=_METADATA_SECONDS)
    try:
        created[topic].result()
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise Refused(f"The topic {topic!r} cannot be created at {bootstrap}: {reason.str()}.") from error
    deadline = time.monotonic() + _METADATA_SECONDS
    while topic not in (known := _topics(admin, bootstrap, logger)):  # the broker's own view follows a little later
        if time.monotonic() > deadline:
            raise Refused(
                f"The topic {topic!r} was created at {bootstrap} but does not appear. Check the broker's log."
            )
        admin.poll(0.1)
    return known[topic]


def write_kafka(
    bootstrap: str,
    topic: str,
    batches: Iterator[Sequence[Event]],
    *,
    rate_per_second: float | None = None,
    total: int | None = None,
    stop: StopEvent | None = None,
) -> tuple[int, int]:
    """Produce each event once, acknowledged by all replicas, and return (delivered, failed).

    Failed are those not acknowledged in time: a few of them may yet be in the topic. The options are those of
    `write_landing`.

    Raises:
        Refused: no broker answers within about 8 seconds, or it has no such topic.
        Transient: the broker ended the producer's session for good; start again.
    """
    logger = _Quiet()
    producer = Producer({**_connection(bootstrap, logger), **_EXACTLY_ONCE})
    if topic not in _topics(producer, bootstrap, logger):
        raise Refused(f"The topic {topic!r} does not exist at {bootstrap}. Create it first, or correct source.topic.")
    outcomes = _Outcomes()
    produced = 0
    for batch in _due(batches, rate_per_second, total, stop or StopEvent()):
        for event in batch:
            _produce(producer, topic, event, outcomes)
        produced += len(batch)
        producer.poll(0)
    producer.flush(_FLUSH_SECONDS)
    return outcomes.delivered, produced - outcomes.delivered


_EXACTLY_ONCE: Final = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",  # as Java producers do, so that a key has one partition for all producers
    "linger.ms": 20,
    "delivery.timeout.ms": int(_DELIVERY_SECONDS * 1000),
}


class _Outcomes:
    """Counts delivery reports, which arrive in the thread that polls."""

    def __init__(self) -> None:
        self.delivered = 0

    def __call__(self, error: KafkaError | None, message: Message) -> None:  # noqa: ARG002 - the client's signature
        if error is None:
            self.delivered += 1


class _Quiet:
    """Takes the client's errors off stderr and keeps the last for our own message."""

    def __init__(self) -> None:
        self.last = "no answer"

    def __call__(self, error: KafkaError) -> None:
        self.last = error.str()


def _connection(bootstrap: str, errors: _Quiet) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "error_cb": errors,
        "log_level": 0,
        "socket.connection.setup.timeout.ms": 5000,
    }


def _topics(client: Producer | AdminClient, bootstrap: str, errors: _Quiet) -> dict[str, int]:
    """Return the partitions of each topic."""
    try:
        known = client.list_topics(timeout=_METADATA_SECONDS).topics
    except KafkaException as error:
        client.poll(0)  # hands the reason over to `errors`
        raise Refused(
            f"No Kafka broker answers at {bootstrap}: {errors.last}. Start it, or correct source.bootstrap_servers."
        ) from error
    return {name: len(topic.partitions) for name, topic in known.items()}


def _produce(producer: Producer, topic: str, event: Event, outcomes: _Outcomes) -> None:
    while True:
        try:
            producer.produce(topic, event.value, event.key, on_delivery=outcomes)
        except BufferError:  # the local queue is full: serve reports until there is room
            producer.poll(0.1)
        except KafkaException as error:
            raise Transient(f"The Kafka producer's session is over: {_line(error)}") from error
        else:
            return


def _landing_table(path: Path) -> CursorTable:
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Not `write_deltalake`: each of its commits costs more with every file that is there already.
        table = CursorTable.create(path, LANDING, "producer", _CHECKPOINT_EVERY, description="wrappers as they came")
        names = [field.name for field in open_table(path).schema().fields]
    except (DeltaError, OSError) as error:
        raise Refused(f"The landing table {path} cannot be opened: {_line(error)}. Choose another folder.") from error
    if names != LANDING.names:
        raise Refused(
            f"{path} is a Delta table with the columns {', '.join(names)}, not a landing table. Choose another."
        )
    return table


def _due(
    batches: Iterator[Sequence[Event]], rate_per_second: float | None, total: int | None, stop: StopEvent
) -> Iterator[Sequence[Event]]:
    """Take each batch when it is due on a schedule that does not wait for slow sends (open loop)."""
    started, sent = time.monotonic(), 0
    with tqdm(total=total, unit="event", file=sys.stderr, disable=None, mininterval=0.5) as bar:  # None: terminals only
        while not stop.is_set():
            if rate_per_second is not None and stop.wait(max(0.0, started + sent / rate_per_second - time.monotonic())):
                return
            batch = next(batches, None)
            if batch is None:
                return
            yield batch
            sent += len(batch)
            bar.update(len(batch))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]

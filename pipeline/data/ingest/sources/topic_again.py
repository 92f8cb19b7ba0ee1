"""Reads the records of one batch again where Spark's reader cannot: a record's time overflows its 64-bit microseconds.

Spark converts the time before any code of ours runs, so one such record ends every batch that has it. Another client
reads the batch in one task, in the same order; the record comes with a time that says so.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from pyspark.sql import DataFrame, SparkSession

from pipeline.base.errors import Refused, Transient
from pipeline.data.ingest.sources.kind import HEADERS, IMPOSSIBLE_TIME, INPUT
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.kafka.assigned import consumer_of, received
from pipeline.lake.kafka.connection import client_options, translate
from pipeline.settings.source import Source

OVERFLOW: Final = "ArithmeticException: long overflow"
"""A text in Spark's failure if a record has such a time."""

_SILENCE_SECONDS: Final = 60.0
_CHUNK_BYTES: Final = 8 << 20
_CLOCKS: Final = {TIMESTAMP_CREATE_TIME: "producer", TIMESTAMP_LOG_APPEND_TIME: "broker"}
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
_MOST_MS: Final = 2**63 // 1000
_SCHEMA: Final = pa.schema(
    [pa.field("value", pa.binary()) if name == "value" else BRONZE.field(name) for name in INPUT]
)
_DDL: Final = (
    f"key binary, value binary, topic string, partition int, offset bigint, source_time timestamp, headers {HEADERS}, "
    f"source_clock string"
)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of a partition, without the last."""

    topic: str
    partition: int
    first: int
    end: int


def ranges(start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]) -> list[OffsetRange]:
    """Return what a batch has between two offsets of Spark's; a partition that is new begins at 0."""
    every = (
        OffsetRange(topic, int(number), int(start.get(topic, {}).get(number, 0)), int(at))
        for topic, after in sorted(end.items())
        for number, at in sorted(after.items(), key=lambda each: int(each[0]))
    )
    return [each for each in every if each.first < each.end]


def read_again(spark: SparkSession, source: Source, wanted: Sequence[OffsetRange]) -> DataFrame:
    """Return the records of these ranges with the columns of `INPUT`.

    Raises:
        Refused: the options have no counterpart for this client.
    """
    connection = translate(source.kafka_options)
    if connection.unreported:
        where = "; ".join(f"{each.topic} partition {each.partition}, {each.first} to {each.end - 1}" for each in wanted)
        raise Refused(
            f"A record has a time that Spark cannot hold, and turnout cannot read around it without a counterpart for "
            f"{', '.join(connection.unreported)} (docs/kafka.md, Security). It is one of: {where}."
        )
    options = client_options(source.bootstrap_servers, connection)
    task = partial(_read, options=options, isolation=source.isolation_level, wanted=tuple(wanted))
    return spark.range(0, 1, 1, 1).mapInArrow(task, _DDL)


def _read(
    _: Iterator[pa.RecordBatch], options: Mapping[str, Any], isolation: str, wanted: Sequence[OffsetRange]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of each range, bounded in bytes."""
    consumer = consumer_of(options, "again", isolation)
    try:
        rows: list[dict[str, Any]] = []
        size = 0
        for each in wanted:
            for message in _messages(consumer, each):
                rows.append(_row(message, each))
                size += 200 + sum(len(part or b"") for part in (message.key(), message.value()))
                if size > _CHUNK_BYTES:
                    yield pa.RecordBatch.from_pylist(rows, _SCHEMA)
                    rows, size = [], 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, _SCHEMA)
    finally:
        consumer.close()


def _messages(consumer: Consumer, wanted: OffsetRange) -> Iterator[Message]:
    """Yield the records of a range; offsets without a record are none.

    Raises:
        Transient: the broker does not answer, or no longer has the first offset.
    """
    where = f"{wanted.topic} partition {wanted.partition}"
    consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.first)])
    until = time.monotonic() + _SILENCE_SECONDS
    while time.monotonic() < until:
        for message in received(consumer, 0.2, 500):
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - it has no other name
                return
            if error is not None:
                raise Transient(f"{where}, offset {wanted.first}: {error.str()}") from KafkaException(error)
            if (message.offset() or 0) >= wanted.end:
                return
            until = time.monotonic() + _SILENCE_SECONDS
            yield message
            if (message.offset() or 0) == wanted.end - 1:
                return
    raise Transient(f"{where} gives no record within {_SILENCE_SECONDS:.0f} s")


def _row(message: Message, wanted: OffsetRange) -> dict[str, Any]:
    try:
        headers: Any = message.headers() or []
    except UnicodeDecodeError as error:  # Spark's client gives such text with U+FFFD
        raise Refused(
            f"{wanted.topic} partition {wanted.partition} offset {message.offset()}: a header's key is no text, in a "
            f"batch that Spark cannot read"
        ) from error
    kind, at = message.timestamp()
    clock = _CLOCKS.get(kind)
    micros = None if clock is None or not _YEAR_1_MS <= at < _YEAR_10000_MS else at * 1000
    if clock is not None and not -_MOST_MS <= at <= _MOST_MS:
        micros = IMPOSSIBLE_TIME
    return {
        "key": message.key(), "value": message.value(), "topic": wanted.topic, "partition": wanted.partition,
        "offset": message.offset(), "source_time": micros, "source_clock": clock,
        "headers": [{"key": key, "value": value} for key, value in headers],
    }  # fmt: skip

"""Compares bronze with the records that its brokers still hold: time, key and value of each, by partition and offset.

For `turnout verify --source`. Reads each partition once from its first record on, a bounded number at a time, by a
client of its own; shares no code with ingest.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from pipeline.data.verify import readings
from pipeline.data.verify.sources import PassedOffsets, Sources
from pipeline.lake.delta.scratch import Database
from pipeline.lake.kafka.assigned import consumer_of, received
from pipeline.lake.kafka.connection import client_options, translate
from pipeline.settings.source import Source, topic_described
from pipeline.settings.tree import Settings

_SILENCE_SECONDS: Final = 30.0
_CHUNK_ROWS: Final = 5_000
_CHUNK_BYTES: Final = 16 << 20
_MAX_NAMED: Final = 5
_COLUMNS: Final = frozenset({"topic", "partition", "offset", "seq", "source_time", "key", "raw"})
_CHUNK: Final = pa.schema([
    ("partition", pa.int32()), ("offset", pa.int64()), ("ms", pa.int64()), ("key", pa.binary()), ("raw", pa.binary()),
])  # fmt: skip

# Of an offset that bronze has twice, the row that was read last counts: the log was cut, or the topic made anew.
_READ_BRONZE: Final = """
CREATE OR REPLACE TABLE bronze_records AS
SELECT "partition", "offset", arg_max(
    {'seq': seq, 'ms': epoch_us(source_time) // 1000, 'key': md5("key"), 'value': md5(raw)}, seq) AS record
FROM files(?) AS f
WHERE topic = ? AND "partition" IS NOT NULL AND "offset" IS NOT NULL AND seq > ?
    AND NOT EXISTS (
        SELECT 1 FROM cuts WHERE cuts.topic = f.topic AND cuts."partition" = f."partition"
            AND f."offset" >= cuts.first AND f.seq <= cuts.since
    )
GROUP BY ALL
"""
_HELD: Final = """
CREATE OR REPLACE TABLE held_records
    ("partition" INTEGER, "offset" BIGINT, ms BIGINT, "key" VARCHAR, value VARCHAR)
"""
_TAKE: Final = 'INSERT INTO held_records SELECT "partition", "offset", ms, md5("key"), md5(raw) FROM chunk'
_OTHERS: Final = """
CREATE OR REPLACE TABLE others AS
SELECT b."partition", b."offset", record.seq AS seq FROM bronze_records AS b
JOIN held_records AS h ON h."partition" = b."partition" AND h."offset" = b."offset"
WHERE h.ms <> record.ms OR h."key" IS DISTINCT FROM record."key" OR h.value IS DISTINCT FROM record.value
"""
_GONE: Final = """
INSERT INTO others SELECT b."partition", b."offset", record.seq FROM bronze_records AS b
JOIN ends ON ends."partition" = b."partition" AND b."offset" >= ends.latest
"""
_LACKED: Final = """
CREATE OR REPLACE TABLE lacked AS
SELECT h."partition", h."offset" FROM held_records AS h
JOIN ends ON ends."partition" = h."partition" AND h."offset" >= ends.begun AND h."offset" < ends.passed
ANTI JOIN bronze_records AS b ON b."partition" = h."partition" AND b."offset" = h."offset"
WHERE NOT EXISTS (
    SELECT 1 FROM accepted WHERE accepted."partition" = h."partition"
        AND h."offset" BETWEEN accepted.first AND accepted.last
)
"""
_RANGES: Final = """
SELECT "partition", min("offset"), max("offset"), count(*) FROM {table} GROUP BY "partition"
ORDER BY "partition" LIMIT {most}
"""


@dataclass(frozen=True, slots=True)
class HeldRecords:
    """The comparison of bronze with what brokers still hold."""

    compared: int  # records that both have
    other: int  # offsets at which the broker has another record than bronze, or has cut its log off
    lacked: int  # records that ingest has passed, the broker holds and bronze lacks
    problems: tuple[str, ...]
    not_compared: tuple[str, ...]  # one sentence each
    by_file: bool = False  # a landing table is read, whose rows are compared by file alone

    @property
    def faults(self) -> int:
        """The number of records that differ or lack."""
        return self.other + self.lacked


def compare_held(database: Database, bronze: readings.TableSnapshot, settings: Settings, known: Sources) -> HeldRecords:
    """Compare the rows of each topic with its broker's; needs the table `cuts`."""
    found = HeldRecords(0, 0, 0, (), ())
    passed = known.passed if isinstance(known.passed, tuple) else (known.passed,)
    topics = {each.topic: each for each in passed if isinstance(each, PassedOffsets)}
    sources = sorted(settings.every_source.values(), key=lambda each: each.kind)
    for source in sources:
        if source.kind != "kafka":
            found = replace(found, by_file=True)
            continue
        connection = translate(source.kafka_options)
        if connection.unreported:
            lacks = ", ".join(connection.unreported)
            found = _add(found, not_compared=(f"No counterpart for {lacks} (docs/kafka.md, Security).",))
            continue
        options = client_options(source.bootstrap_servers, connection)
        for topic, offsets in topics.items():
            if not _is_of(offsets, source, known) or topic in known.mixed:
                continue
            try:
                one = _topic(database, bronze, known, offsets, options, source.isolation_level)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                one = HeldRecords(
                    0, 0, 0, (), (f"The broker of topic {topic!r} does not give its records: {reason.str()}.",)
                )
            found = _add(found, one.compared, one.other, one.lacked, one.problems, one.not_compared)
    if known.why_not is not None:
        found = _add(found, not_compared=(known.why_not,))
    return found


def _is_of(offsets: PassedOffsets, source: Source, known: Sources) -> bool:
    """Return whether a topic is read from this source: another may have a topic of this name at other brokers."""
    return offsets.described == topic_described(offsets.topic, source) and offsets.topic not in known.mixed


def _add(
    to: HeldRecords, compared: int = 0, other: int = 0, lacked: int = 0, problems: tuple[str, ...] = (),
    not_compared: tuple[str, ...] = (),
) -> HeldRecords:  # fmt: skip
    return HeldRecords(
        to.compared + compared, to.other + other, to.lacked + lacked, to.problems + problems,
        to.not_compared + not_compared, to.by_file,
    )  # fmt: skip


def _topic(
    database: Database,
    bronze: readings.TableSnapshot,
    known: Sources,
    offsets: PassedOffsets,
    options: Mapping[str, Any],
    isolation: str,
) -> HeldRecords:
    """Compare one topic; its rows under an earlier id are of another topic."""
    periods = [each for each in known.periods if each.topic == offsets.topic]
    newest = max(periods, key=lambda each: each.since_seq).identity
    since = min((each.since_seq for each in periods if each.identity == newest), default=0)
    readings.execute(database, _READ_BRONZE, bronze, bronze, offsets.topic, since, columns=_COLUMNS)
    database.execute(_HELD)
    consumer = consumer_of(options, "verify", isolation, **{"auto.offset.reset": "earliest"})
    # What an open transaction hides is not gone.
    looker = consumer_of(options, "verify", "read_uncommitted")
    try:
        ends = {}
        for number, end in sorted(offsets.next.items()):
            place = TopicPartition(offsets.topic, number)
            first, readable = consumer.get_watermark_offsets(place, timeout=_SILENCE_SECONDS)
            _, latest = looker.get_watermark_offsets(place, timeout=_SILENCE_SECONDS)
            ends[number] = latest, offsets.begun.get(number, 0), end
            for chunk in _chunks(consumer, TopicPartition(offsets.topic, number, first), readable):
                database.register("chunk", chunk)
                database.execute(_TAKE)
                database.unregister("chunk")
    finally:
        consumer.close()
        looker.close()
    _table(database, "ends", ("partition", "latest", "begun", "passed"), [(at, *each) for at, each in ends.items()])
    _table(database, "accepted", ("partition", "first", "last"), offsets.accepted)
    for sql in (_OTHERS, _GONE, _LACKED):
        database.execute(sql)
    ((compared,),) = database.execute(
        'SELECT count(*) FROM bronze_records JOIN held_records USING ("partition", "offset")'
    ).fetchall()
    problems, counts = [], []
    for table, words in (
        ("others", "bronze has {rows:,} record(s) that the broker has not, at offsets {first} to {last}"),
        ("lacked", "bronze lacks {rows:,} record(s) of the broker, at offsets {first} to {last}"),
    ):
        ((count,),) = database.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608 - one of two names
        counts.append(int(count))
        for number, low, high, rows in database.execute(_RANGES.format(table=table, most=_MAX_NAMED)).fetchall():
            text = words.format(rows=rows, first=low, last=high)
            problems.append(f"topic {offsets.topic!r}, partition {number}: {text}")
    return HeldRecords(int(compared), counts[0], counts[1], tuple(problems), ())


def _table(database: Database, name: str, columns: Sequence[str], rows: Sequence[Sequence[int]]) -> None:
    """Make a small table of numbers."""
    typed = ", ".join(f'"{column}" BIGINT' for column in columns)
    database.execute(f"CREATE OR REPLACE TABLE {name} ({typed})")
    if rows:
        marks = ", ".join("?" for _ in columns)
        database.executemany(f"INSERT INTO {name} VALUES ({marks})", [list(row) for row in rows])  # noqa: S608 - ours


def _chunks(consumer: Consumer, place: TopicPartition, end: int) -> Iterator[pa.Table]:
    """Yield the records of a partition up to an offset, some at a time.

    Raises:
        KafkaException: the broker does not answer.
    """
    if place.offset >= end:
        return
    consumer.assign([place])
    rows: list[tuple[int, int, int | None, bytes | None, bytes | None]] = []
    size, at_end = 0, False
    until = time.monotonic() + _SILENCE_SECONDS
    while not at_end:
        messages = received(consumer, 0.2, 1_000)
        if messages:
            until = time.monotonic() + _SILENCE_SECONDS
        elif time.monotonic() > until:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - it has no other name
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - likewise
                raise KafkaException(error)
            at_end = error is not None or (message.offset() or 0) >= end - 1
            if error is None and (message.offset() or 0) < end:
                rows.append(_row(message))
                size += sum(len(part or b"") for part in rows[-1][3:])
            if at_end:
                break
        if rows and (at_end or len(rows) >= _CHUNK_ROWS or size >= _CHUNK_BYTES):
            columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(_CHUNK.types)]
            yield pa.table(columns, schema=_CHUNK)
            rows, size = [], 0


def _row(message: Message) -> tuple[int, int, int | None, bytes | None, bytes | None]:
    kind, at = message.timestamp()
    known = None if kind == TIMESTAMP_NOT_AVAILABLE else at
    return message.partition() or 0, message.offset() or 0, known, message.key(), message.value()

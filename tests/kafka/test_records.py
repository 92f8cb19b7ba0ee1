"""Special topics under real ingest: transactions, headers, times of two clocks, compaction, old bronze."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pipeline.base.errors import Transient
from pipeline.base.names import game_key
from pipeline.data.ingest import bronze_writer, query
from pipeline.data.ingest.identity import Offsets
from pipeline.data.maintenance import run
from pipeline.data.repair.bronze_rows import BronzeRows
from pipeline.demo.broker import Broker
from pipeline.health.facts.fleet import read_fleet
from pipeline.lake.delta.bronze import BRONZE, FRAMED
from pipeline.lake.delta.data_files import DataFile, write_file
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Settings
from pipeline.store.games import Game
from tests.kafka.topic_world import Record, TopicWorld, topic_world

Make = Callable[..., TopicWorld]


NEW = frozenset({"headers", "source_clock", *FRAMED})
OLD = pa.schema([field for field in BRONZE if field.name not in NEW])


@pytest.fixture
def make(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[Make]:
    """Make worlds on topics of their own."""
    made: list[TopicWorld] = []

    def world(partitions: int = 2, config: Mapping[str, str] | None = None) -> TopicWorld:
        made.append(topic_world(spark, broker, tmp_path / f"env-{len(made)}", partitions, config))
        return made[-1]

    yield world
    for each in made:
        each.engine.dispose()


def configure(world: TopicWorld, option: str, value: str) -> None:
    admin = AdminClient(world.connection)
    entry = ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, world.topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()


def since(offset: int, records: list[Record]) -> list[Record]:
    return [record for record in records if record.offset >= offset]


@pytest.mark.proves("G3")
def test_only_what_was_committed_is_read(make: Make) -> None:
    """Law L1: aborted transactions are not in bronze, committed ones once; markers are no gaps, also for adoption."""
    world = make()
    events = world.events(100)
    plain, writer, waiting = world.producer(), world.producer("writer"), world.producer("waiting")
    world.send(plain, events[:10])
    for batch, commit in ((events[10:30], True), (events[30:50], False), (events[50:60], True)):
        writer.begin_transaction()
        world.send(writer, batch)
        (writer.commit_transaction if commit else writer.abort_transaction)(30.0)
    waiting.begin_transaction()
    world.send(waiting, events[60:70])
    world.send(plain, events[70:76])  # behind an open transaction, so not to be read yet
    world.ingest()
    assert len(world.reconcile()) == 40
    waiting.commit_transaction(30.0)
    world.ingest()
    assert len(world.reconcile()) == 56
    for _ in range(2):  # a micro-batch with nothing to read in it, and ingest started again after it
        writer.begin_transaction()
        world.send(writer, events[76:80])
        writer.abort_transaction(30.0)
        world.ingest()
    assert len(world.reconcile()) == 56
    rmtree(world.paths.checkpoints / "ingest")
    position = world.adopt().position
    assert isinstance(position, Offsets)
    assert {record.partition: record.offset + 1 for record in world.bronze()} == position.next
    world.send(plain, events[80:90])
    world.ingest()
    assert len(world.reconcile()) == 66
    world.split_all()


@pytest.mark.proves("G3")
def test_an_open_transaction_is_no_loss(make: Make) -> None:
    """Records read with `read_uncommitted` may lie behind an open transaction: ingest waits, and reports no gap."""
    world = make(partitions=1)
    events = world.events(40)
    writer = world.producer("writer")
    world.isolate("read_uncommitted")
    writer.begin_transaction()
    world.send(writer, events[:10], 1)
    world.ingest()
    world.ingest()  # the place it stands at is no gap for itself either
    assert len(world.bronze()) == 10
    world.isolate("read_committed")
    with pytest.raises(Transient, match=r"open transaction.*partition 0 offsets 0 to 9\. Wait"):
        world.ingest()
    writer.commit_transaction(30.0)
    world.send(world.producer(), events[10:20], 1)
    world.ingest()
    assert len(world.reconcile()) == 20
    world.split_all()


@pytest.mark.proves("G3")
def test_the_end_of_a_topic_is_before_an_open_transaction(make: Make) -> None:
    """A first start at `latest` leaves out what was committed by then, and nothing of a transaction that is open."""
    world = make(partitions=1)
    world.settings = replace(world.settings, source=replace(world.settings.source, starting_offsets="latest"))
    events = world.events(30)
    writer = world.producer("writer")
    world.send(world.producer(), events[:5], 1)
    writer.begin_transaction()
    world.send(writer, events[5:10], 1)
    world.ingest()
    writer.commit_transaction(30.0)
    world.ingest()
    assert [record for record in world.consumed() if record.offset >= 5] == world.bronze()
    assert len(world.bronze()) == 5


@pytest.mark.parametrize(("kind", "clock"), [("CreateTime", "producer"), ("LogAppendTime", "broker")])
@pytest.mark.proves("G2")
def test_headers_keys_and_clocks_are_kept(make: Make, kind: str, clock: str, caplog: pytest.LogCaptureFixture) -> None:
    """Law L1: each record keeps its key, headers in their order, time, and whose clock that is of."""
    caplog.set_level(logging.INFO, "turnout")
    config = {"message.timestamp.type": kind, "message.timestamp.after.max.ms": str(2**63 - 1)}
    world = make(partitions=1, config=config)
    events = world.events(8)
    producer = world.producer()
    long_ago = int((time.time() - 7200) * 1000)
    given: list[list[tuple[str, str | bytes | None]] | None] = [
        None,
        [],
        [("trace", b"\xff\xfe\x00"), ("trace", None), ("trace", b""), ("", b"x"), ("ü", "ü".encode())],
        [("only", None)],
    ]
    for number, event in enumerate(events):
        key = [None, b"", b"\xff", event.key][number % 4]
        headers = given[number // 2]
        at = long_ago + number if number < 7 else 2**50  # a producer whose clock is in the year 37648
        producer.produce(world.topic, event.value, key, partition=0, timestamp=at, headers=headers)
    assert producer.flush(30) == 0
    world.ingest()
    found = world.reconcile()
    assert [record.key for record in found[:3]] == [None, b"", b"\xff"]
    assert [record.headers for record in found[::2]] == [None, None, tuple(given[2] or ()), (("only", None),)]
    assert {record.clock for record in found} == {clock}
    assert (found[0].time_ms == long_ago, found[7].time_ms is None) == ((clock == "producer",) * 2)
    assert [dict(landed.clocks) for landed in world.landed] == [{clock: 8}]
    assert read_fleet(world.engine).source_clock == clock
    assert ("message.timestamp.type=CreateTime" in caplog.text) == (clock == "producer")
    world.split_all()


@pytest.mark.proves("G52")
def test_a_time_that_no_table_can_hold_costs_its_record(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws L5 and L6: such a record is refused with its bytes, also of a planned batch; all others land as ever."""
    world = make(config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    events = world.events(20)
    producer = world.producer()
    world.send(producer, events[:4])
    most = 2**63 // 1000
    for event, at in zip(events[4:9], (2**63 - 1, most + 1, most, -(2**62), -1 - most), strict=True):
        producer.produce(world.topic, event.value, event.key, partition=0, timestamp=at, headers=[("a", b"1")])
    world.send(producer, events[9:15])
    with monkeypatch.context() as patch:  # a batch that was planned, and failed, before there was a way around
        patch.setattr(query, "OVERFLOW", "no error has this text")
        with pytest.raises(StreamingQueryException, match="long overflow"):
            world.ingest()
    world.ingest()
    assert len(world.reconcile()) == 15
    assert (balance := world.verify()).ok
    assert dict(balance.by_reason) == {"impossible_time": 4}


@pytest.mark.proves("G3")
def test_a_compacted_topic_is_read_with_its_holes(make: Make) -> None:
    """Law L1: what compaction has left is in bronze once, a tombstone is refused with a reason of its own."""
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    world = make(partitions=1, config={**config, "min.compaction.lag.ms": "3600000"})  # not yet
    events = world.events(60)
    producer = world.producer()

    def send(first: int, last: int) -> None:
        for number, event in enumerate(events[first:last]):
            tombstone = number % 5 == 4
            producer.produce(world.topic, None if tombstone else event.value, b"%d" % (number % 7), partition=0)
        assert producer.flush(30) == 0

    send(0, 30)
    before = world.consumed()
    world.ingest()
    assert before == world.bronze()
    send(30, 58)
    configure(world, "min.compaction.lag.ms", "0")
    deadline = time.monotonic() + 60
    while len(there := since(30, world.consumed())) > 20:
        assert time.monotonic() < deadline, "the broker has not compacted"
        producer.produce(world.topic, events[58].value, b"roll", partition=0)  # so that the segment before is closed
        producer.flush(30)
    world.ingest()
    landed = since(30, world.bronze())
    assert before == [record for record in world.bronze() if record.offset < 30]
    assert set(since(30, world.consumed())) <= set(landed) <= set(there)  # the broker may go on meanwhile
    assert len(landed) == len(set(landed)) < 28
    tombstones = sum(record.value is None for record in world.bronze())
    assert tombstones > 6
    world.split_all()
    assert dict(world.verify().by_reason) == {"tombstone": tombstones}
    rmtree(world.paths.checkpoints / "ingest")
    world.adopt()
    world.ingest()
    assert landed == since(30, world.bronze())


def _land_as_before() -> Callable[[Iterator[pa.RecordBatch], bronze_writer.IngestJob], Iterator[pa.RecordBatch]]:
    """Return the ingest task as it was before bronze had these columns; a closure, so that the worker has it too."""
    new, write = NEW, write_file

    def land(batches: Iterator[pa.RecordBatch], job: bronze_writer.IngestJob) -> Iterator[pa.RecordBatch]:
        def write_old(table: pa.Table, *rest: Any) -> DataFile:
            return write(table.select([name for name in table.column_names if name not in new]), *rest)

        setattr(bronze_writer, "write_file", write_old)  # noqa: B010 - mypy forbids to assign another module's function
        try:
            yield from bronze_writer.land(batches, job)
        finally:
            setattr(bronze_writer, "write_file", write)  # noqa: B010 - likewise

    return land


@pytest.mark.proves("G2")
def test_bronze_from_before_headers_gets_them(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws L1, L7: old and new files of bronze are split, rebuilt, merged and verified alike, and headers stay."""
    world = make()
    events = world.events(60)
    producer = world.producer()
    with monkeypatch.context() as patch:
        patch.setattr(query, "BRONZE", OLD)
        patch.setattr(query, "land", _land_as_before())
        world.send(producer, events[:20], headers=[("lost", b"1")])
        world.ingest()
    assert DeltaTable(world.paths.bronze).to_pyarrow_table().column_names == OLD.names
    group = world.group("a")
    world.split(group)
    group.stop()
    for part in (events[20:40], events[40:60]):
        world.send(producer, part, headers=[("kept", b"1"), ("kept", None)])
        world.ingest()
    assert DeltaTable(world.paths.bronze).to_pyarrow_table().column_names == BRONZE.names
    kept = (("kept", b"1"), ("kept", None))
    expected = [
        record._replace(headers=None, clock=None) if record.headers == (("lost", b"1"),) else record
        for record in world.consumed()
    ]
    assert [kept, None] == [expected[-1].headers, expected[0].headers]
    assert expected == world.bronze()
    world.split_all()
    game = Game(game_key(events[0].game), events[0].game)
    rows = pa.concat_tables(BronzeRows(world.paths.bronze, world.settings.environment, game).between(0, 99))
    assert len(rows) == sum(event.game == game.name for event in events), "what a rebuild reads"
    merging = Maintenance(small_files=2, bronze_commits=2, bronze_age_minutes=0.0)
    settings = Settings(environment=world.settings.environment, maintenance=merging)
    done = run.one_round(settings, world.paths, time.time() + 1, thorough=True)
    assert [report.error for report in done.tables if report.error] == []
    assert len(DeltaTable(world.paths.bronze).file_uris()) == 1
    assert expected == world.bronze()
    assert world.verify().complete

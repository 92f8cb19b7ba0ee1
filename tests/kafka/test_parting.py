"""A topic whose log was cut and has grown again: its records are not those that bronze has at the same offsets."""

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pipeline.base.errors import Refused, Transient
from pipeline.data.ingest import adopt as adoption
from pipeline.data.ingest import parting
from pipeline.data.ingest.batch_checks import BatchChecks
from pipeline.data.ingest.evidence.kept import KeptMarks
from pipeline.data.ingest.evidence.marks import LastRecord, Mark
from pipeline.data.ingest.identity import Offsets
from pipeline.data.ingest.lineage import OwnRows
from pipeline.data.ingest.sources import topic_observation
from pipeline.data.ingest.sources.kind import Begin
from pipeline.data.ingest.sources.supported import configured_source
from pipeline.data.verify import sources as verified
from pipeline.data.verify.balance import verify
from pipeline.data.verify.held import HeldRecords
from pipeline.demo.broker import Broker
from pipeline.store import sources
from tests.kafka.topic_world import TopicWorld, topic_world

BEGUN_MS = int(time.time() * 1000)  # retention removes older records at any moment


@pytest.fixture
def world(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[TopicWorld]:
    made = topic_world(spark, broker, tmp_path / "env", 2)
    yield made
    made.engine.dispose()


def send(world: TopicWorld, partition: int, *texts: str) -> None:
    """Send records with times that follow from the text, so that one text is one record wherever it stands."""
    producer = world.producer()
    for text in texts:
        at = BEGUN_MS + sum(text.encode())
        producer.produce(world.topic, text.encode(), b"k", partition=partition, timestamp=at)
    assert producer.flush(30) == 0


def held(world: TopicWorld) -> HeldRecords:
    """Return what `turnout verify --source` finds."""
    known = verified.observe(world.settings, world.paths, world.engine)
    balance = verify(world.paths, world.settings.environment, known=known, brokers=world.settings)
    assert balance.held is not None
    assert balance.totals.source_duplicates == 0
    assert balance.ok == (balance.held.faults == 0)
    return balance.held


def texts(first: int, end: int, log: str) -> list[str]:
    return [f"{log}{number}" for number in range(first, end)]


def other_log(world: TopicWorld) -> str:
    """Give the topic an empty log, as if it were the same topic: its id in the control store is the new one."""
    admin = AdminClient(world.connection)
    admin.delete_topics([world.topic])[world.topic].result()
    while world.topic in admin.list_topics(timeout=10).topics:
        admin.poll(0.05)
    admin.create_topics([NewTopic(world.topic, 2)])[world.topic].result()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(Transient, Refused):
            seen = topic_observation.observe_topic(world.settings.source)
            if seen is not None and seen.id is not None:
                with world.engine.begin() as connection:
                    connection.exec_driver_sql("UPDATE ingest_identities SET source_id = ?", (seen.id,))
                return seen.id
        admin.poll(0.05)
    raise AssertionError("the topic is not there")


def forget_ids(world: TopicWorld, *, kept: bool) -> None:
    """Let the marks have no ids of topics; or remove them."""
    for file in (world.paths.ingest / "1").files():
        if file.name.startswith("marks-"):
            place = world.paths.ingest / "1" / file.name
            place.put(place.read().replace(b'"id": "', b'"id": null, "was": "')) if kept else place.delete()


def places(world: TopicWorld) -> Counter[tuple[int, int]]:
    return Counter((record.partition, record.offset) for record in world.bronze())


def values(world: TopicWorld) -> Counter[bytes | None]:
    return Counter(record.value for record in world.bronze())


@pytest.mark.parametrize("kept", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.proves("G16")
def test_a_log_that_was_cut_and_has_grown_is_refused(world: TopicWorld, kept: bool) -> None:
    """Law L1: the last record of bronze is the broker's, or the start names the offsets where they part."""
    send(world, 0, *texts(0, 10, "a"))
    send(world, 1, *texts(0, 4, "a"))
    world.ingest()
    send(world, 0, *texts(10, 12, "a"))
    world.ingest()
    new = other_log(world)
    send(world, 0, *texts(0, 6, "a"), *texts(6, 20, "b"))
    send(world, 1, *texts(0, 5, "a"))
    forget_ids(world, kept=kept)
    for attempt in (world.ingest, world.adopt):
        with pytest.raises(Refused, match=r"has lost records: instead of partition 0 offsets 6 to 11, .*accept-loss"):
            attempt()
    adopted = adoption.adopt(world.settings, world.paths, world.engine, accept_loss=True)
    assert adopted.position == Offsets({0: 6, 1: 4})
    gaps = [(gap.partition, gap.first, gap.last, gap.reason) for gap in sources.accepted_gaps(world.engine)]
    assert gaps == [(0, 6, 11, "truncated")]
    world.ingest()
    assert values(world) == Counter(
        text.encode() for text in [*texts(0, 12, "a"), *texts(6, 20, "b"), *texts(0, 5, "a")]
    )
    assert held(world).faults == 0
    assert new in {each.source_id for number in (1, 2) if (each := sources.identity(world.engine, number))}


@pytest.mark.parametrize("same", [pytest.param(0, marks=pytest.mark.long), 6])
@pytest.mark.proves("G160")
def test_verify_finds_what_was_read_on_in_another_log(
    world: TopicWorld, same: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L1: with ingest's own checks off, `verify --source` names rows of bronze that the broker does not have."""
    send(world, 0, *texts(0, 20, "a"))
    world.ingest()
    assert (found := held(world)).compared == 20
    assert found.faults == 0
    other_log(world)
    send(world, 0, *texts(0, same, "a"), *texts(same, 40, "b"))
    monkeypatch.setattr(parting, "judge", lambda *_: None)
    monkeypatch.setattr(BatchChecks, "require_same", lambda *_: None)
    world.ingest()
    assert places(world) == Counter((0, at) for at in range(40))
    found = held(world)
    assert (found.other, found.lacked) == (20 - same, 0)
    at = f"partition 0: bronze has {20 - same} record(s) that the broker has not, at offsets {same} to 19"
    assert found.problems == (f"topic '{world.topic}', {at}",)


@pytest.mark.long
@pytest.mark.proves("G16")
def test_a_log_that_was_cut_behind_an_adoption_is_refused(world: TopicWorld) -> None:
    """Law L1: a generation without rows keeps the last records of those before, also where one was cut before."""
    send(world, 0, *texts(0, 10, "a"))
    send(world, 1, *texts(0, 3, "a"))
    world.ingest()
    shutil.rmtree(str(world.paths.ingest / "1"))
    assert world.adopt().position == Offsets({0: 10, 1: 3})
    world.ingest()  # without new records
    other_log(world)
    send(world, 0, *texts(0, 6, "a"), *texts(6, 20, "b"))
    send(world, 1, *texts(0, 3, "a"))
    for attempt in (world.ingest, world.adopt):
        with pytest.raises(Refused, match=r"instead of partition 0 offsets 6 to 9, .*accept-loss"):
            attempt()
    for accept_loss in (True, False):  # the second one finds the same end, without a row of the first
        adopted = adoption.adopt(world.settings, world.paths, world.engine, accept_loss=accept_loss)
        assert adopted.position == Offsets({0: 6, 1: 3})
    other_log(world)  # cut again, below where the last adoption went on
    send(world, 0, *texts(0, 4, "a"), *texts(4, 20, "c"))
    send(world, 1, *texts(0, 3, "a"))
    with pytest.raises(Refused, match=r"instead of partition 0 offsets 4 to 5, .*accept-loss"):
        world.ingest()
    assert adoption.adopt(world.settings, world.paths, world.engine, accept_loss=True).position == Offsets({0: 4, 1: 3})
    world.ingest()
    log = [*texts(0, 10, "a"), *texts(4, 20, "c"), *texts(0, 3, "a")]
    assert values(world) == Counter(text.encode() for text in log)
    assert held(world).faults == 0


@pytest.mark.long
@pytest.mark.proves("G16")
def test_a_marker_in_the_place_of_the_last_record_hides_no_cut(world: TopicWorld) -> None:
    """Law L1: where the broker has no record at bronze's last offset, the newest before decides; markers are none."""
    send(world, 0, *texts(0, 10, "a"))
    world.ingest()
    other_log(world)
    send(world, 0, *texts(0, 6, "a"))
    producer = world.producer("x")
    for number in range(6, 12):  # offset 6 a record, 7 its marker, and so on: 9 is a marker
        producer.begin_transaction()
        producer.produce(world.topic, f"b{number}".encode(), b"k", partition=0)
        producer.commit_transaction(30)
    forget_ids(world, kept=True)
    with pytest.raises(Refused, match=r"has lost records: instead of partition 0 offsets 6 to 9, "):
        world.ingest()


@pytest.mark.long
@pytest.mark.parametrize("committed", [True, False])
def test_markers_and_aborted_records_are_no_difference(world: TopicWorld, committed: bool) -> None:
    """Law L1: no false alarm: the last record of bronze is gone, and what lies before it is what it was."""
    producer = world.producer("x")
    send(world, 0, *texts(0, 4, "a"))
    producer.begin_transaction()
    producer.produce(world.topic, b"x", b"k", partition=0)
    assert producer.flush(30) == 0
    (producer.commit_transaction if committed else producer.abort_transaction)(30)
    send(world, 0, *texts(6, 10, "a"))
    world.ingest()
    source, rows = configured_source(world.settings, world.paths), OwnRows(0)
    witness = source.witness()
    assert witness is not None
    last = LastRecord(5, None, None, "gone")  # the marker's offset, as if compaction had removed a record there
    with closing(witness):
        found = parting.differing(witness, source.description, {0: last}, world.paths.bronze, rows)
    assert found == {}
    shutil.rmtree(str(world.paths.ingest / "1"))
    world.adopt()
    world.ingest()
    assert held(world).faults == 0


@pytest.mark.proves("G16")
def test_records_that_a_batch_read_before_an_election_do_not_land_where_they_are_gone(
    world: TopicWorld,
) -> None:
    """Law L1: behind an election the batch's own last records are the broker's, or nothing of it lands."""
    send(world, 0, *texts(0, 5, "a"))
    source = configured_source(world.settings, world.paths)
    witness = source.witness()
    assert witness is not None
    name = source.description
    there, now = witness.records(name, {0: 4})[0], witness.look([name])[name]
    witness.close()
    kept = KeptMarks(world.paths.ingest / "1")
    before = Offsets({0: 2})
    last = [[world.topic, 0, *there.as_list()]]
    for epochs, other in (({0: -1}, "b"), ({0: -1}, None), (dict(now.epochs), "b")):
        kept.write(0, {name: Mark(now.id, epochs)})
        checks = BatchChecks(source, world.paths.bronze, kept, 0, Begin(before, None, resumes=True))
        checks.learn(None)
        reported = last if other is None else [[*last[0][:-1], other]]
        raised = pytest.raises(Transient, match="without records that this batch has read")
        with raised if other and epochs != now.epochs else nullcontext():
            checks.require_same(1, before, reported)


@pytest.mark.long
def test_a_last_record_that_retention_removed_is_no_difference(world: TopicWorld) -> None:
    """Law L1: a broker that no longer has bronze's last record says nothing about it."""
    send(world, 0, *texts(0, 10, "a"))
    world.ingest()
    other_log(world)
    send(world, 0, *texts(0, 15, "b"))
    admin = AdminClient(world.connection)
    place = TopicPartition(world.topic, 0, 10)
    admin.delete_records([place])[place].result()
    forget_ids(world, kept=False)
    world.ingest()
    assert places(world) == Counter((0, at) for at in range(15))


@pytest.mark.long
@pytest.mark.proves("G16")
def test_a_broker_that_is_put_back_from_an_older_copy(spark: SparkSession, tmp_path: Path) -> None:
    """Law L1: a real broker's older disk, grown again: found under a running batch by the epoch, and at a start."""
    folder, copy = tmp_path / "broker", tmp_path / "copy"
    first = Broker.start(folder)
    port = first.port
    world = topic_world(spark, first, tmp_path / "env", 1)
    send(world, 0, *texts(0, 60, "a"))
    first.stop()
    shutil.copytree(folder / "data", copy)
    running = [Broker.start(folder, port)]
    send(world, 0, *texts(60, 100, "a"))
    world.ingest()
    send(world, 0, *texts(100, 110, "a"))
    ingest = world.ingest_query()
    look = ingest._job

    def look_then_put_back(batch_id: int, seq: int) -> Any:
        job = look(batch_id, seq)
        running.pop().stop()
        shutil.rmtree(folder / "data")
        shutil.copytree(copy, folder / "data")
        Broker.start(folder, port).stop()  # so that there was an election more than on the other disk
        running.append(Broker.start(folder, port))
        send(world, 0, *texts(60, 140, "b"))
        return job

    setattr(ingest, "_job", look_then_put_back)  # noqa: B010 - mypy forbids to assign a method
    words = r"has lost records: instead of partition 0 offsets 60 to 99, "
    try:
        with pytest.raises(StreamingQueryException, match=words):
            ingest.start(once=True).awaitTermination()
        assert places(world) == Counter((0, at) for at in range(100))
        with pytest.raises(Refused, match=words):
            world.ingest()
        adoption.adopt(world.settings, world.paths, world.engine, accept_loss=True)
        world.ingest()
        assert values(world) == Counter(text.encode() for text in [*texts(0, 100, "a"), *texts(60, 140, "b")])
    finally:
        running.pop().stop()
        world.engine.dispose()

"""Events reach a source exactly as they were made: the landing table, and a topic of a real broker."""

import itertools
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable
from deltalake.schema import Schema

from pipeline.base.errors import Refused
from pipeline.demo import broker as broker_module
from pipeline.demo.broker import Broker
from pipeline.demo.producer import write_kafka, write_landing
from pipeline.demo.simulator import Event, SimulationPlan, Simulator, game_names
from pipeline.lake.kafka import producer as producer_module
from pipeline.lake.kafka.producer import ensure_topic
from pipeline.lake.storage.places import located

Message = tuple[bytes | None, bytes]


def simulator(plan: SimulationPlan) -> Simulator:
    versions = range(1, plan.versions + 1)
    return Simulator(
        plan, dict.fromkeys(itertools.product(game_names(plan.games, plan.seed, hostile=plan.hostile), versions), 7)
    )


def events(plan: SimulationPlan) -> list[Event]:
    return [event for batch in simulator(plan).batches(1000) for event in batch]


def consume(address: str, topic: str, partitions: int) -> list[list[Message]]:
    """Read each partition from its beginning to its present end."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "test", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[list[Message]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    deadline = time.monotonic() + 30
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"no end of partitions {set(range(partitions)) - ended}"
        for message in consumer.consume(1000, 0.5):
            number, error, value = message.partition(), message.error(), message.value()
            assert number is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(number)
            else:
                key = message.key()
                assert isinstance(value, bytes)
                assert key is None or isinstance(key, bytes)
                found[number].append((key, value))
    consumer.close()
    return found


def test_landing_holds_what_was_made(tmp_path: Path) -> None:
    """The landing table holds each key and value byte for byte, one commit a batch, and counts what it wrote."""
    plan = SimulationPlan(games=15, events=3000, bad_share=0.2, hostile=True)
    made = events(plan)

    counts = write_landing(located(tmp_path / "landing"), simulator(plan).batches(250))
    table = DeltaTable(tmp_path / "landing")
    rows = table.to_pyarrow_table()

    assert Counter(event.kind for event in made) == counts
    assert table.version() == 12
    assert rows.column_names == ["key", "value"]
    stored = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
    assert Counter((event.key, event.value) for event in made) == Counter(stored)


def test_landing_is_appended_to_and_checkpointed(tmp_path: Path) -> None:
    """A second producer goes on where the first ended, and a long log gets checkpoints so that opening stays cheap."""
    for _ in range(2):
        write_landing(located(tmp_path), simulator(SimulationPlan(events=60)).batches(2))

    assert DeltaTable(tmp_path).version() == 60
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 120
    checkpoints = list((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert len(checkpoints) in {1, 2}  # each 50 commits, from a number that follows from its folder's name


def test_landing_elsewhere_is_refused(tmp_path: Path) -> None:
    """A file or another table in the landing table's place is never written to, and the message names it."""
    file = tmp_path / "file"
    file.write_text("keep")
    other = tmp_path / "other"
    DeltaTable.create(other, Schema.from_arrow(pa.schema([("surprise", pa.int64())])))

    with pytest.raises(Refused, match="file cannot be opened"):
        write_landing(located(file), iter([]))
    with pytest.raises(Refused, match="columns surprise, not a landing table"):
        write_landing(located(other), iter([]))


def test_stop_ends_between_batches(tmp_path: Path) -> None:
    """After a stop everything taken from the simulator was written and nothing more was taken."""
    stop = threading.Event()
    source = simulator(SimulationPlan())

    def batches() -> Iterator[list[Event]]:
        for number, batch in enumerate(source.batches(10), 1):
            if number == 3:
                stop.set()
            yield batch

    counts = write_landing(located(tmp_path), batches(), stop=stop)

    assert counts == {"good": 30}
    assert source.counts_by_kind()["good"] == DeltaTable(tmp_path).to_pyarrow_table().num_rows == 30


def test_stop_interrupts_the_wait(tmp_path: Path) -> None:
    """A slow rate does not delay the end: the wait for the next batch is cut short."""
    stop = threading.Event()
    taken = threading.Event()
    source = simulator(SimulationPlan())

    def batches() -> Iterator[list[Event]]:
        for batch in source.batches(10):
            taken.set()
            yield batch

    def end() -> None:
        taken.wait(30)
        stop.set()

    stopper = threading.Thread(target=end)
    stopper.start()
    started = time.monotonic()
    counts = write_landing(located(tmp_path), batches(), rate_per_second=0.1, stop=stop)
    stopper.join()

    assert counts == {"good": 10}
    assert time.monotonic() - started < 30


def test_rate_is_a_schedule(tmp_path: Path) -> None:
    """The first batch goes at once and the others when they are due: 40 events at 50 a second take 0.6 seconds."""
    started = time.monotonic()
    write_landing(located(tmp_path), simulator(SimulationPlan(events=40)).batches(10), rate_per_second=50)

    assert time.monotonic() - started >= 0.6


def test_unreachable_broker_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a broker the producer says so within ten seconds, with the address and what to do."""
    assert producer_module._METADATA_SECONDS < 10
    monkeypatch.setattr(producer_module, "_METADATA_SECONDS", 0.5)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(Refused, match=f"^No Kafka broker answers at {address}: .* Start it, or correct"):
            write_kafka(address, "events", iter([]))

    assert time.monotonic() - started < 8


def test_topic_holds_each_event_once(broker: Broker) -> None:
    """Five thousand events arrive once each, byte for byte, and one game's stay in order in one partition."""
    plan = SimulationPlan(games=15, events=5000, bad_share=0.1, hostile=True)
    assert ensure_topic(broker.address, "once", 3) == 3

    assert write_kafka(broker.address, "once", simulator(plan).batches(500)) == (5000, 0)
    found = consume(broker.address, "once", 3)

    made = events(plan)
    assert Counter((event.key, event.value) for event in made) == Counter(itertools.chain(*found))
    for key in {event.key for event in made} - {None}:
        homes = [[value for name, value in messages if name == key] for messages in found]
        assert [event.value for event in made if event.key == key] == max(homes, key=len)


def test_topic_is_created_once(broker: Broker) -> None:
    """Ensuring a topic again keeps it as it is and tells its true number of partitions."""
    assert [ensure_topic(broker.address, "ensured", wanted) for wanted in (2, 5)] == [2, 2]


def test_missing_topic_is_refused(broker: Broker) -> None:
    """A topic that does not exist is not created by accident."""
    with pytest.raises(Refused, match="The topic 'typo' does not exist"):
        write_kafka(broker.address, "typo", iter([]))


@pytest.mark.long
def test_restart_keeps_messages(tmp_path: Path) -> None:
    """Acknowledged records survive a kill, at the same address; a clean stop ends the broker."""
    folder = tmp_path / "naïve, folder = 100%"
    with Broker.start(folder) as first:
        ensure_topic(first.address, "kept", 1)
        assert write_kafka(first.address, "kept", simulator(SimulationPlan(events=100)).batches(100)) == (100, 0)
        os.kill(first.pid, signal.SIGKILL)
    with Broker.start(folder, first.port) as second:
        assert first.address == second.address
        assert len(consume(second.address, "kept", 1)[0]) == 100
    assert not second.running


def test_taken_port_is_refused(broker: Broker, tmp_path: Path) -> None:
    """A port in use is named before anything is started."""
    with pytest.raises(Refused, match=f"^Port {broker.port} of 127.0.0.1 cannot be used: Address already in use"):
        Broker.start(tmp_path, broker.port)


def test_second_broker_on_a_folder_is_refused(broker: Broker) -> None:
    """Two brokers on one folder would damage its data, so the second one is refused while the first lives."""
    with pytest.raises(Refused, match="A broker already runs on"):
        Broker.start(broker.log.parent)

    assert broker.running


def test_broker_that_dies_tells_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that ends at its start is reported with the line of its log that says why."""
    monkeypatch.setattr(broker_module, "_PROPERTIES", broker_module._PROPERTIES + "log.retention.ms=soon\n")

    with pytest.raises(Refused, match=r"soon.*broker\.log"):
        Broker.start(tmp_path)

"""A topic of 200 partitions under real ingest."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest
from pyspark.sql import SparkSession

from pipeline.data.ingest.identity import Offsets
from pipeline.demo.broker import Broker
from tests.kafka.topic_world import topic_world

PARTITIONS = 200

pytestmark = pytest.mark.timeout(600)  # each partition costs Spark a consumer


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker.start(tmp_path / "broker") as running:
        yield running


@pytest.mark.proves("G3")
def test_two_hundred_partitions_are_read_once_each(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Law L1: each record of each partition is in bronze once, over restarts, aborted transactions and an adoption."""
    world = topic_world(spark, broker, tmp_path / "env", PARTITIONS)
    events = iter(world.events(8 * PARTITIONS, games=40))
    plain, writer = world.producer(), world.producer("writer")

    def send(count: int) -> None:
        world.send(plain, list(itertools.islice(events, count)), PARTITIONS)

    send(3 * PARTITIONS)
    writer.begin_transaction()
    world.send(writer, list(itertools.islice(events, PARTITIONS)), PARTITIONS)
    writer.abort_transaction(60.0)
    world.ingest()
    assert len(world.reconcile()) == 3 * PARTITIONS
    send(PARTITIONS)
    world.ingest()
    send(PARTITIONS // 2)  # half of them stay as they are
    rmtree(world.paths.checkpoints / "ingest")
    position = world.adopt().position
    assert isinstance(position, Offsets)
    assert set(range(PARTITIONS)) == position.next.keys()
    world.ingest()
    assert len(world.reconcile()) == 4 * PARTITIONS + PARTITIONS // 2
    world.split_all()

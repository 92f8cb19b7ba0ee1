"""An environment on a topic of a real broker, and what a plain consumer reads of that topic, to compare it with."""

import itertools
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from pipeline.base.errors import Transient
from pipeline.data.ingest import adopt as adoption
from pipeline.data.ingest.adopt import Adopted
from pipeline.data.ingest.sources import topic_observation
from pipeline.demo.broker import Broker
from pipeline.demo.simulate import register_samples
from pipeline.demo.simulator import Event, SimulationPlan, Simulator
from pipeline.settings.source import Source
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store
from tests.spark.conftest import World

_SECONDS = 30.0
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
_KINDS = {TIMESTAMP_LOG_APPEND_TIME: "broker"}

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record, as a consumer has it or as bronze has it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None
    clock: str | None
    time_ms: int | None  # None: after the year 9999


@dataclass
class TopicWorld(World):
    """An environment on a topic of its own."""

    address: str = ""

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.settings.source.topic

    @property
    def connection(self) -> dict[str, Any]:
        """The settings of every client."""
        return {"bootstrap.servers": self.address, "log_level": 0}

    def isolate(self, level: str) -> None:
        source = replace(self.settings.source, kafka_options={"isolation.level": level})
        self.settings = replace(self.settings, source=source)

    def events(self, count: int, seed: int = 7, games: int = 5) -> list[Event]:
        """Return `count` good events, whose schemas are registered by then."""
        plan = SimulationPlan(games=games, versions=2, events=count, seed=seed, hostile=True)
        simulator = Simulator(plan, register_samples(self.engine, plan))
        return list(itertools.chain(*simulator.batches(1_000)))

    def producer(self, transactional_id: str | None = None) -> Producer:
        options = {"acks": "all", "linger.ms": 5}
        if transactional_id is None:
            return Producer({**self.connection, **options})
        made = Producer({**self.connection, **options, "transactional.id": f"{self.topic}-{transactional_id}"})
        made.init_transactions(_SECONDS)
        return made

    def send(self, producer: Producer, events: Sequence[Event], partitions: int = 2, **more: Any) -> None:
        """Send events to the partitions by turns, and return when the broker has them."""
        for number, event in enumerate(events):
            producer.produce(self.topic, event.value, event.key, partition=number % partitions, **more)
        assert producer.flush(_SECONDS) == 0

    def adopt(self) -> Adopted:
        return adoption.adopt(self.settings, self.paths, self.engine, accept_loss=False)

    def consumed(self) -> list[Record]:
        """Return all a plain consumer of committed records reads, by another client than Spark's."""
        options = {"group.id": "test", "enable.partition.eof": True, "enable.auto.commit": False}
        consumer = Consumer({**self.connection, **options, "isolation.level": "read_committed"})
        seen = topic_observation.observe_topic(self.settings.source)
        assert seen is not None
        consumer.assign([TopicPartition(self.topic, number, 0) for number in seen.earliest])
        found: list[Record] = []
        ended: set[int] = set()
        deadline = time.monotonic() + _SECONDS
        while len(ended) < len(seen.earliest):
            assert time.monotonic() < deadline, f"no end of {seen.earliest.keys() - ended}"
            for message in consumer.consume(1_000, 0.2):
                error, number, offset = message.error(), message.partition(), message.offset()
                assert number is not None
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(number)
                    continue
                assert offset is not None
                kind, at = message.timestamp()
                headers: Any = message.headers()
                found.append(
                    Record(
                        number, offset, _bytes(message.key()), _bytes(message.value()),
                        None if headers is None else tuple(headers), _KINDS.get(kind, "producer"),
                        at if _YEAR_1_MS <= at < _YEAR_10000_MS else None,
                    )
                )  # fmt: skip
        consumer.close()
        return sorted(found)

    def bronze(self) -> list[Record]:
        """Return what bronze has, each row as the record it came from."""
        columns = ["partition", "offset", "key", "raw", "headers", "source_clock", "source_time"]
        rows = DeltaTable(self.paths.bronze).to_pyarrow_table(columns=columns).to_pylist()
        return sorted(
            Record(
                row["partition"], row["offset"], row["key"], row["raw"],
                None if row["headers"] is None else tuple((each["key"], each["value"]) for each in row["headers"]),
                row["source_clock"], row["source_time"] and round(row["source_time"].timestamp() * 1000),
            )
            for row in rows
        )  # fmt: skip

    def reconcile(self) -> list[Record]:
        """Require that bronze has exactly what can be consumed, record for record; return it."""
        expected = self.consumed()
        assert expected == self.bronze()
        return expected

    def split_all(self, group: str = "a") -> None:
        """Split bronze, and require that each row is in its table or in quarantine, once."""
        driver = self.group(group)
        self.split(driver)
        driver.stop()
        balance = self.verify()
        assert balance.complete, balance.problems


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def topic_world(
    spark: SparkSession, broker: Broker, folder: Path, partitions: int, config: Mapping[str, str] | None = None
) -> TopicWorld:
    """Make a topic and an environment that reads it."""
    settings, paths = load(folder, {})
    name = f"t-{uuid.uuid4().hex[:8]}"
    settings = replace(settings, source=Source(kind="kafka", bootstrap_servers=broker.address, topic=name))
    engine: Engine = open_store(settings, paths)
    world = TopicWorld(spark, settings, paths, engine, address=broker.address)
    admin = AdminClient(world.connection)
    admin.create_topics([NewTopic(name, partitions, config=dict(config or {}))])[name].result()
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        with suppress(Transient):  # the broker does not lead each partition yet
            seen = topic_observation.observe_topic(settings.source)
            if seen is not None and len(seen.earliest) == partitions:
                return world
        admin.poll(0.05)
    raise AssertionError(f"{name} has no {partitions} partitions")

"""A producer follows its events through a real pipeline: broker, edge, ingest and a group."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.demo.broker import Broker
from pipeline.demo.samples.supported import sample
from pipeline.edge.client import EdgeClient, EdgeEvent
from pipeline.edge.outcomes import EventLanded, EventRefused
from tests.kafka.edge_world import GAME, TOKEN, edge_before
from tests.kafka.topic_world import TopicWorld, topic_world

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

WITHIN_SECONDS = 10.0


@contextmanager
def pipeline(world: TopicWorld) -> Iterator[None]:
    """Run ingest and a group until the block ends."""
    ingest, group = world.ingest_query(), world.group("a")
    queries = [ingest.start(once=False), group.start(once=False)]
    try:
        yield
    finally:
        group.stop()
        for each in queries:
            each.stop()
        ingest.close()


def test_a_producer_sees_its_refused_event_within_10_seconds(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Each event has one outcome, and the end of the pipeline tells a refusal while a person still looks."""
    made = sample("protobuf", "puzzle", 3, 1)
    payloads = [made.encode(made.event(each, each, 1_700_000_000_000_000)) for each in range(20)]
    world = topic_world(spark, broker, tmp_path / "env", 2)
    with (
        edge_before(broker, tmp_path / "env", world.topic) as edge,
        EdgeClient(edge.address, TOKEN) as client,
        pipeline(world),
    ):
        following = client.follow()
        for number, payload in enumerate(payloads):
            client.send(EdgeEvent(GAME, 1, payload, event_id=f"good-{number}"))
        assert {following.wait(120) for _ in payloads} == {EventLanded(f"good-{each}", GAME) for each in range(20)}
        waited = []
        for number in range(3):  # the machine may be busy: once within the time is enough
            client.send(EdgeEvent(GAME, 99, payloads[0], event_id=f"bad-{number}")).result(30)
            began = time.monotonic()
            outcome = following.wait(60)
            waited.append(time.monotonic() - began)
            assert isinstance(outcome, EventRefused), outcome
            assert (outcome.event_id, outcome.reason, outcome.field) == (f"bad-{number}", "unknown_schema", "schema_id")
        assert min(waited) < WITHIN_SECONDS, waited
        assert (following.waiting, following.untracked) == (0, 0)

"""Ingest is killed between quarantine and bronze, and goes on with another source: no refused row is left over."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.data.ingest import query
from pipeline.data.ingest.adopt import adopt
from pipeline.data.ingest.bronze_writer import IngestJob
from pipeline.data.ingest.identity import TopicObservation
from pipeline.data.ingest.sources import topic_observation
from pipeline.data.verify.balance import verify
from pipeline.settings.source import Source
from tests.tables.ingest_world import Killed, Rows, World, arm, batch_of, killing, rows_of, start

TOPIC = Source(kind="kafka", topic="t", bootstrap_servers="a:1")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """An environment of which every name is unknown, so that each row is refused, and a broker."""
    monkeypatch.setattr(topic_observation, "observe_topic", lambda _: TopicObservation("t", "id", {0: 0}, {0: 5}))
    monkeypatch.setattr("pipeline.data.ingest.sources.topic.Topic.check", lambda _: None)
    monkeypatch.setattr("pipeline.data.ingest.sources.topic.Topic.witness", lambda _: None)  # there is no broker
    return World(tmp_path / "env")


def choose(world: World, source: Source) -> None:
    world.settings = replace(world.settings, source=source)


def landing_killed(world: World) -> None:
    """Land a batch of the landing table and die amid the next."""
    choose(world, Source())
    ingest = world.ingest()
    for batch_id in (0, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(query, "IngestJob", partial(IngestJob, slice_bytes=150))  # several seqs
            arm(ingest, "before bronze" if batch_id else "", patch)
            with pytest.raises(Killed) if batch_id else nullcontext():
                ingest._batch(rows_of(batch_id, backwards=False), batch_id)  # type: ignore[arg-type]


def land_topic(world: World) -> None:
    rows: Any = Rows([batch_of([("Chess", 1)] * 3, 0)])
    world.ingest()._batch(rows, 0)


def land_again(world: World) -> None:
    choose(world, Source())
    world.ingest()._batch(rows_of(1, backwards=True), 1)  # type: ignore[arg-type]


def require_exact(world: World, rows: int) -> None:
    balance = verify(world.paths, world.settings.environment)
    assert balance.complete, balance.problems
    assert (balance.totals.bronze_rows, balance.totals.quarantined, balance.totals.quarantine_copies) == (rows, rows, 0)


@pytest.mark.proves("G22")
def test_a_start_with_another_source_gives_up_what_was_half_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L5: the rows of the open attempt are in quarantine only once their own source has landed them."""
    landing_killed(world)
    choose(world, TOPIC)
    with monkeypatch.context() as patch:
        # After all that a start does before Spark reads.
        patch.setattr("pipeline.data.ingest.sources.topic.Topic.read", killing())
        with pytest.raises(Killed):
            world.ingest().start(once=True)
    require_exact(world, 12)
    land_topic(world)
    require_exact(world, 15)
    land_again(world)
    require_exact(world, 27)


@pytest.mark.proves("G22")
def test_an_adoption_of_another_source_gives_up_what_was_half_done(world: World) -> None:
    """Law L5: the seq that closes a generation is none of an attempt that somebody else began."""
    choose(world, TOPIC)
    start(world, world.ingest())
    land_topic(world)
    landing_killed(world)
    choose(world, TOPIC)
    adopt(world.settings, world.paths, world.engine, accept_loss=False)
    require_exact(world, 15)
    land_again(world)
    require_exact(world, 27)

"""A source is known again under another name: a moved environment, or a topic at another address of its broker."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.errors import Refused
from pipeline.ingest import topic
from pipeline.ingest.adopt import adopt
from pipeline.ingest.checkpoint import Landed
from pipeline.ingest.identity import Offsets, TopicSeen
from pipeline.ingest.query import Ingest
from pipeline.ingest.source_checks import Begin, verify_source
from pipeline.settings import Source
from pipeline.store import sources
from pipeline.verify import sources as verified
from tests.tables.test_ingest_batches import Rows, World
from tests.tables.test_ingest_slices import batch_of


def start(world: World, ingest: Ingest) -> Begin:
    """Check the source as `Ingest.start` does before it begins to read."""
    landed = Landed(ingest._bronze.transaction_version(ingest._batch_app), ingest._quarantine.cursor)
    number, query = ingest._generation, ingest._checkpoint / "query"
    return verify_source(world.settings, world.paths, world.engine, number, ingest._bronze, query, landed)


def landing_world(env: Path) -> World:
    """Make an environment whose ingest has landed the one commit of its landing table."""
    world = World(env)
    ingest = world.ingest()
    rows = {"key": pa.nulls(3, pa.binary()), "value": pa.array([b"x"] * 3)}
    write_deltalake(world.paths.landing, pa.table(rows), mode="append")
    name = DeltaTable(world.paths.landing).file_uris()[0].rsplit("/", 1)[-1]
    start(world, ingest)
    landed: Any = Rows([batch_of([("Chess", 40)] * 3, 0, [name] * 3)])
    ingest._batch(landed, 0)
    return world


@pytest.mark.parametrize("named_by_path", [False, True])
@pytest.mark.proves("G12")
def test_an_environment_that_was_moved_goes_on_with_its_generation(tmp_path: Path, named_by_path: bool) -> None:
    """Law L1: the place of the folder is no part of the source, also where an earlier version recorded it as one."""
    world = landing_world(tmp_path / "env")
    if named_by_path:
        sources.rename(world.engine, "landing table", f"landing table {world.paths.landing}")
    world.engine.dispose()
    shutil.move(tmp_path / "env", tmp_path / "moved")
    moved = World(tmp_path / "moved")
    assert moved.ingest()._generation == 1
    assert [text for _, text, _ in sources.generations(moved.engine)] == ["landing table"]


@pytest.mark.proves("G12")
def test_of_several_paths_this_one_counts_then_the_tables_id(tmp_path: Path) -> None:
    """Law L1: an environment that was moved by an earlier version has several generations; the one in use goes on."""
    world = landing_world(tmp_path / "env")
    engine, landing = world.engine, world.paths.landing
    known = sources.identity(engine, 1)
    assert known is not None
    sources.rename(engine, "landing table", "landing table /before")
    assert sources.replace_generation(engine, "landing table /before", 1, known, []) == 2
    assert sources.open_generation(engine, "landing table /other") == 3
    assert world.ingest()._generation == 2
    assert min(sources.generations(engine))[1] == "landing table (until generation 1 was replaced)"
    sources.rename(engine, "landing table", "landing table /before")
    sources.rename(engine, "landing table /other", f"landing table {landing}")
    assert world.ingest()._generation == 3


@pytest.mark.proves("G12")
def test_one_table_under_two_names_is_compared(tmp_path: Path) -> None:
    """Verify sees rows that a move has doubled: the table's id is the source, not the name."""
    world = landing_world(tmp_path / "env")
    known = sources.identity(world.engine, 1)
    assert known is not None
    assert sources.open_generation(world.engine, "landing table /moved") == 2
    assert {""} == verified.observe(world.settings, world.paths, world.engine).mixed
    sources.record_identity(world.engine, replace(known, generation=2))
    assert not verified.observe(world.settings, world.paths, world.engine).mixed


@pytest.mark.proves("G12")
def test_a_topic_at_another_address_is_refused_until_it_is_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L1: a source that was read under another name does not begin again; adopted, it goes on behind bronze."""
    monkeypatch.setattr(topic, "observe_topic", lambda _: TopicSeen("t", "id", {0: 0}, {0: 5}))
    monkeypatch.setattr("pipeline.ingest.source._check_kafka", lambda _: None)
    world = World(tmp_path / "env")
    world.settings = replace(world.settings, source=Source(kind="kafka", topic="t", bootstrap_servers="a:1"))
    ingest = world.ingest()
    start(world, ingest)
    landed: Any = Rows([batch_of([("Chess", 1)] * 3, 0)])
    ingest._batch(landed, 0)
    world.settings = replace(world.settings, source=replace(world.settings.source, bootstrap_servers="b:1"))
    with pytest.raises(Refused, match="Ingest generation 1 has read this source already, as 'kafka topic t at a:1'"):
        start(world, world.ingest())
    assert adopt(world.settings, world.paths, world.engine, accept_loss=False).position == Offsets({0: 3})
    assert start(world, world.ingest()).position == Offsets({0: 3})
    assert not verified.observe(world.settings, world.paths, world.engine).mixed

"""A source is known again under another name: a moved environment, or a topic at another address of its broker."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.base.errors import Refused
from pipeline.data import log_tail
from pipeline.data.ingest import checkpoint, parting
from pipeline.data.ingest.adopt import adopt
from pipeline.data.ingest.evidence.kept import KeptMarks
from pipeline.data.ingest.evidence.marks import Mark
from pipeline.data.ingest.identity import Commits, Offsets, TopicObservation
from pipeline.data.ingest.sources import topic_observation
from pipeline.data.ingest.sources.landing_witness import LandingWitness
from pipeline.data.verify import sources as verified
from pipeline.settings.source import Source
from pipeline.store import sources
from tests.tables.ingest_world import Rows, World, batch_of, landing_world, start


@pytest.mark.proves("G12")
def test_an_environment_that_was_moved_goes_on_with_its_generation(tmp_path: Path) -> None:
    """Law L1: the place of the folder is no part of the source."""
    world = landing_world(tmp_path / "env")
    world.engine.dispose()
    shutil.move(tmp_path / "env", tmp_path / "moved")
    moved = World(tmp_path / "moved")
    assert moved.ingest()._generation == 1
    assert [text for _, text, _ in sources.generations(moved.engine)] == ["landing table"]


def test_one_topic_under_two_names_is_compared(tmp_path: Path) -> None:
    """Verify sees records that were read twice from two addresses: the topic's id is the source, not the address."""
    world = World(tmp_path / "env")
    for number, address in enumerate(("a:1", "b:1"), 1):
        assert sources.open_generation(world.engine, f"kafka topic t at {address}") == number
        sources.record_identity(world.engine, sources.Identity(number, None, None, "bronze", 0, None))
    assert {"t"} == verified.observe(world.settings, world.paths, world.engine).mixed
    for number in (1, 2):
        sources.record_identity(world.engine, sources.Identity(number, "id", 1, "bronze", 0, None))
    assert not verified.observe(world.settings, world.paths, world.engine).mixed


@pytest.mark.proves("G12")
def test_a_topic_at_another_address_is_refused_until_it_is_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L1: a source that was read under another name does not begin again; adopted, it goes on behind bronze."""
    monkeypatch.setattr(topic_observation, "observe_topic", lambda _: TopicObservation("t", "id", {0: 0}, {0: 5}))
    monkeypatch.setattr("pipeline.data.ingest.sources.topic.Topic.check", lambda _: None)
    monkeypatch.setattr("pipeline.data.ingest.sources.topic.Topic.witness", lambda _: None)  # there is no broker
    world = World(tmp_path / "env")
    world.settings = replace(world.settings, source=Source(kind="kafka", topic="t", bootstrap_servers="a:1"))
    ingest = world.ingest()
    start(world, ingest)
    landed: Any = Rows([batch_of([("Chess", 1)] * 3, 0)])
    ingest._batch(landed, 0)
    world.settings = replace(world.settings, source=replace(world.settings.source, bootstrap_servers="b:1"))
    with pytest.raises(Refused, match="Ingest generation 1 has already read this source as 'kafka topic t at a:1'"):
        start(world, world.ingest())
    assert adopt(world.settings, world.paths, world.engine, accept_loss=False).position == Offsets({0: 3})
    assert start(world, world.ingest()).position == Offsets({0: 3})
    assert not verified.observe(world.settings, world.paths, world.engine).mixed


def _append(landing: Path, text: bytes) -> None:
    rows = {"key": pa.nulls(3, pa.binary()), "value": pa.array([text] * 3)}
    write_deltalake(landing, pa.table(rows), mode="append")


def _with_an_older_landing_table(tmp_path: Path) -> tuple[World, Any, Path]:
    """Read two commits of a table, of which `older` keeps a copy from between; return world, ingest, table."""
    world = World(tmp_path / "env")
    ingest = world.ingest()
    landing = Path(world.paths.landing)
    _append(landing, b"x")
    start(world, ingest)
    shutil.copytree(landing, tmp_path / "older")
    _append(landing, b"y")
    names = [uri.rsplit("/", 1)[-1] for uri in DeltaTable(landing).file_uris()]
    for number, name in enumerate(reversed(names)):
        landed: Any = Rows([batch_of([("Chess", 40)] * 3, 0, [name] * 3)])
        ingest._batch(landed, number)
    return world, ingest, landing


@pytest.mark.proves("G16")
def test_an_older_copy_of_the_landing_table_that_has_grown_is_refused(tmp_path: Path) -> None:
    """Law L1: the last commit that was read is the table's, or the start says so; adoption goes on where both agree."""
    world, ingest, landing = _with_an_older_landing_table(tmp_path)
    known = LandingWitness(world.paths.landing).records("", {parting.COMMIT: 2})
    KeptMarks(ingest._checkpoint).write(1, {"landing table": Mark(last=known)})
    query = ingest._checkpoint / "query"
    checkpoint.begin_behind(query, log_tail.offset(str(DeltaTable(landing).metadata().id), 3))
    for folder in ("offsets", "commits"):
        (query / folder / "1").put((query / folder / "0").read())
    start(world, ingest)
    shutil.rmtree(landing)
    shutil.copytree(tmp_path / "older", landing)
    _append(landing, b"z")
    _append(landing, b"z")
    with pytest.raises(Refused, match=r"older copy that has grown again: its commit 2 is not .*turnout ingest adopt`"):
        start(world, ingest)
    assert adopt(world.settings, world.paths, world.engine, accept_loss=False).position == Commits(2)


@pytest.mark.proves("G16")
def test_an_older_copy_behind_an_adoption_is_refused(tmp_path: Path) -> None:
    """Law L1: an adoption keeps the last commit that was read; adopted again, ingest goes on where both agree."""
    world, _, landing = _with_an_older_landing_table(tmp_path)
    shutil.rmtree(str(world.paths.ingest / "1"))
    assert adopt(world.settings, world.paths, world.engine, accept_loss=False).position == Commits(3)
    assert start(world, world.ingest()).position == Commits(3)
    shutil.rmtree(landing)
    shutil.copytree(tmp_path / "older", landing)
    _append(landing, b"z")
    _append(landing, b"z")
    with pytest.raises(Refused, match=r"older copy that has grown again: its commit 2 is not .*turnout ingest adopt`"):
        start(world, world.ingest())
    assert adopt(world.settings, world.paths, world.engine, accept_loss=False).position == Commits(2)
    assert start(world, world.ingest()).position == Commits(2)

"""The backlog of a real landing table, as ingest measures it while it runs."""

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.writer import write_deltalake
from sqlalchemy import Engine

from pipeline.data.ingest.backlog import BacklogWatch, BronzePosition, backlog_watched
from pipeline.data.ingest.identity import Commits
from pipeline.data.ingest.sources import landing_backlog
from pipeline.data.ingest.sources.landing_backlog import LandingBacklog
from pipeline.data.ingest.sources.supported import configured_source
from pipeline.lake.delta.log import commit_file
from pipeline.lake.storage.places import located
from pipeline.settings.source import Source
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.database.engine import open_store
from pipeline.store.reports import backlog_in
from pipeline.store.rows import SourceReading

BEGIN = Commits(0)


def land(landing: Path, rows: int) -> float:
    """Append one commit; return when it was written, in Unix seconds."""
    values = pa.array([b"x"] * rows, pa.binary())
    write_deltalake(landing, pa.table({"key": values, "value": values}), mode="append")
    newest = DeltaTable(landing).version()
    return Path(commit_file(located(landing), newest)).stat().st_mtime


def offset(version: int, index: int = -1, *, snapshot: bool = False) -> dict[str, Any]:
    """Return Spark's offset behind what is before this commit, and of it up to this file."""
    return {"reservoirVersion": version, "index": index, "isStartingVersion": snapshot}


def test_what_waits_is_all_behind_the_place_of_bronze(tmp_path: Path) -> None:
    """Rows and age are of the commits that are not in bronze, whether read before or anew, and 0 where none is."""
    times = [land(tmp_path, rows) for rows in (5, 7, 11)]
    known = LandingBacklog(located(tmp_path))
    for place, rows, oldest in (
        (None, 23, times[0]), (offset(1), 18, times[1]), (offset(1, 0), 11, times[2]), (offset(2), 11, times[2]),
        (offset(3), 0, None), (offset(0, 0), 18, times[1]),
    ):  # fmt: skip
        for backlog in (known, LandingBacklog(located(tmp_path))):
            found = backlog.look(place, BEGIN)
            assert (found.rows, found.oldest_at, found.reason) == (rows, oldest, None), place
    assert known.look(offset(3), BEGIN).age(time.time()) == 0.0
    last = land(tmp_path, 2)
    assert (known.look(offset(3), BEGIN).rows, known.look(offset(3), BEGIN).oldest_at) == (2, last)


def test_what_cannot_be_told_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first read of a table as it is, a log that was cut off, and a count that is not done yet have no number."""
    times = [land(tmp_path, 1) for _ in range(3)]
    for place, begin in ((None, Commits(None)), (offset(1, snapshot=True), BEGIN)):
        found = LandingBacklog(located(tmp_path)).look(place, begin)
        assert (found.rows, found.age(time.time())) == (None, None)
    with monkeypatch.context() as patch:
        patch.setattr(landing_backlog, "_MAX_COMMITS", 2)
        backlog = LandingBacklog(located(tmp_path))
        found = backlog.look(None, BEGIN)
        assert (found.rows, found.oldest_at) == (None, times[0])
        assert backlog.look(None, BEGIN).rows == 3, "the next look goes on"
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    found = LandingBacklog(located(tmp_path)).look(None, BEGIN)
    assert (found.rows, found.age(time.time())) == (None, None)
    assert found.reason == "the landing table's log has commit 2, and none before it"
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    found = LandingBacklog(located(tmp_path)).look(offset(1), BEGIN)
    assert (found.rows, found.age(time.time())) == (None, None)
    assert found.reason == "the landing table's log no longer has commit 0"


def test_files_that_bronze_has_of_the_first_commit_do_not_wait(tmp_path: Path) -> None:
    """After an adoption reading begins within a commit."""
    land(tmp_path, 5)
    land(tmp_path, 7)
    (name,) = [Path(each).name for each in DeltaTable(tmp_path, 0).file_uris()]
    assert LandingBacklog(located(tmp_path)).look(None, Commits(0, frozenset({name}))).rows == 7


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Settings, Paths, Engine]]:
    settings, paths = load(tmp_path, {})
    settings = replace(settings, metrics=replace(settings.metrics, heartbeat_seconds=0.5))
    engine = open_store(settings, paths)
    yield settings, paths, engine
    engine.dispose()


def measured(engine: Engine) -> SourceReading | None:
    with engine.connect() as connection:
        return backlog_in(connection)


def test_the_store_has_the_newest_measurement_and_its_highest_age(world: tuple[Settings, Paths, Engine]) -> None:
    """A batch that ends takes most of a backlog at once: the highest age of the last minute is kept.

    That of rows which waited for the start is not: it is over once they are read.
    """
    settings, paths, engine = world
    place: BronzePosition | None = None
    watch = BacklogWatch(settings, paths, engine, lambda: place)
    added = land(Path(paths.landing), 5)
    assert not watch.measure()
    assert measured(engine) is None, "how far bronze is is not known yet"
    place = BronzePosition(None, BEGIN)
    assert watch.measure()
    found = measured(engine)
    assert found is not None
    assert (found.rows, found.limit_seconds, found.reason, found.peak_seconds) == (5, 60.0, None, None)
    assert 0 <= (found.age_seconds or -1.0) <= time.time() - added
    place = BronzePosition(offset(1), BEGIN)
    watch.measure()
    later = measured(engine)
    assert later is not None
    assert (later.rows, later.age_seconds, later.peak_seconds) == (0, 0.0, 0.0)
    land(Path(paths.landing), 7)
    watch.measure()
    behind = measured(engine)
    assert behind is not None
    assert behind.rows == 7
    place = BronzePosition(offset(2), BEGIN)
    watch.measure()
    level = measured(engine)
    assert level is not None
    assert (level.rows, level.age_seconds, level.peak_seconds) == (0, 0.0, behind.age_seconds)
    Path(paths.landing / "_delta_log" / f"{2:020}.json").write_text("no JSON")
    watch.measure()
    spoilt = measured(engine)
    assert spoilt is not None
    assert (spoilt.rows, spoilt.age_seconds) == (None, None)
    assert "is damaged" in str(spoilt.reason)


@pytest.mark.proves("G130")
def test_a_backlog_is_seen_while_a_batch_runs(world: tuple[Settings, Paths, Engine]) -> None:
    """The measurement waits for no micro-batch: what arrives while one runs is counted before it ends."""
    settings, paths, engine = world
    land(Path(paths.landing), 5)
    seen = threading.Event()
    with backlog_watched(settings, paths, engine, lambda: BronzePosition(None, BEGIN)):  # a place that does not move
        land(Path(paths.landing), 7)
        for _ in range(200):
            found = measured(engine)
            if found is not None and found.rows == 12:
                seen.set()
                break
            seen.wait(0.05)
    assert seen.is_set()


def test_the_age_of_what_waits_holds_whatever_the_producers_clock_says(tmp_path: Path) -> None:
    """Files of a long job, or of a machine whose clock is wrong, make no source late, and hide nothing that waits."""
    land(tmp_path, 1)
    backlog = LandingBacklog(located(tmp_path))
    backlog.look(offset(1), BEGIN)
    for ahead in (-1200.0, 3600.0):
        before = time.time()
        version = DeltaTable(tmp_path).version() + 1
        land(tmp_path, 2)
        file = commit_file(located(tmp_path), version)
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["modificationTime"] = int((before + ahead) * 1000)
        Path(file).write_text("\n".join(json.dumps(action) for action in actions))
        os.utime(file, (before + ahead, before + ahead))  # as where the file system has that clock
        found = backlog.look(offset(version), BEGIN)
        assert found.rows == 2
        assert found.oldest_at is not None
        assert before - 5.0 <= found.oldest_at <= time.time()
        assert (found.age(before + 1800.0) or 0.0) > 1790.0, "it waits on"
        assert backlog.look(offset(version + 1), BEGIN).rows == 0


def test_each_of_several_sources_has_a_backlog_of_its_own(tmp_path: Path) -> None:
    """Rows count together, and the oldest of all counts; with one unknown the sum is unknown, and says why."""
    settings, paths = load(tmp_path / "env", {})
    tables = {name: tmp_path / name for name in ("a", "b")}
    times = [land(tables["a"], 5), land(tables["b"], 7)]
    named = {name: Source(path=str(path)) for name, path in tables.items()}
    several = configured_source(replace(settings, sources=named), paths)
    backlog = several.backlog()
    found = backlog.look(None, several.beginning)
    assert (found.rows, found.oldest_at, found.reason) == (12, min(times), None)
    assert {name: (each.rows, each.oldest_at) for name, each in found.of.items()} == {
        "a": (5, times[0]), "b": (7, times[1]),
    }  # fmt: skip
    place = {"sources": [offset(1), offset(0)]}
    assert {name: each.rows for name, each in backlog.look(place, several.beginning).of.items()} == {"a": 0, "b": 7}
    unknown = backlog.look({"sources": [offset(1), offset(0, snapshot=True)]}, several.beginning)
    assert (unknown.rows, unknown.oldest_at, unknown.of["a"].rows) == (None, None, 0)
    assert str(unknown.reason).startswith("b: the snapshot of the landing table")
    backlog.close()

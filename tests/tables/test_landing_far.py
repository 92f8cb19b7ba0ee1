"""A landing table in a bucket with many commits that ingest has not read: requests wait for each other rarely."""

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.data.ingest.identity import Commits
from pipeline.data.ingest.sources.landing_backlog import LandingBacklog
from pipeline.data.ingest.sources.landing_log import LANDING, observe_landing
from pipeline.data.ingest.sources.landing_source import LandingReader
from pipeline.data.log_tail import offset
from pipeline.lake.delta.log import publish_commit
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from tests.storage.slow import SlowStorage, slow_storage

COMMITS = 200
MOST = COMMITS // 4
"""Requests that may wait for each other, of one for the commit and one for its file or its time."""


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Location:
    """A landing table with a file in each of its commits."""
    folder = tmp_path_factory.mktemp("landing")
    write_deltalake(folder, LANDING.empty_table())
    for version in range(1, COMMITS + 1):
        (folder / f"{version}.parquet").touch()
        add = {"path": f"{version}.parquet", "size": 1, "modificationTime": 1, "dataChange": True}
        add |= {"partitionValues": {}, "stats": '{"numRecords": 1}'}
        assert publish_commit(located(folder), version, [{"commitInfo": {"operation": "WRITE"}}, {"add": add}])
    return located(folder)


def observe(landing: Location) -> int:
    seen = observe_landing(landing, Commits(1))
    assert (seen.missing, seen.changed) == ({}, {})
    return seen.last


def measure(landing: Location) -> int:
    return LandingBacklog(landing).look(offset("id", 0), Commits(0)).rows or 0


def read(landing: Location) -> int:
    source = LandingReader(landing, offset("id", 1), COMMITS, 1_000_000, 0.0)
    files, _ = source.read(source.initialOffset())
    return len(list(files))


def read_to_the_end(landing: Location) -> int:
    source = LandingReader(landing, offset("id", 1), COMMITS, 1, 0.0)
    source.prepareForTriggerAvailableNow()
    files, end = source.read(source.initialOffset())
    assert len(list(files)) == 1
    assert end["reservoirVersion"] == 2
    assert source._last is not None
    return source._last


def read_again(landing: Location) -> int:
    source = LandingReader(landing, offset("id", 1), COMMITS, 1_000_000, 0.0)
    return len(list(source.readBetweenOffsets(offset("id", 1), offset("id", COMMITS + 1))))


@pytest.mark.parametrize("act", [observe, measure, read, read_to_the_end, read_again])
def test_many_requests_for_unread_commits_run_at_once(
    landing: Location, monkeypatch: pytest.MonkeyPatch, act: Callable[[Location], int]
) -> None:
    """A start after a night takes seconds: many requests for commits, files and times run at once."""
    storage: SlowStorage = slow_storage(monkeypatch)
    assert act(landing) == COMMITS
    assert len(storage.asked) < 2 * COMMITS + 100
    assert storage.one_after_another() <= MOST


def test_a_missing_file_is_named_as_ever(landing: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come in the order of the commits: the first missing file of each is named."""
    slow_storage(monkeypatch)
    table = DeltaTable(str(landing))
    gone = [Path(str(landing / f"{version}.parquet")) for version in (7, 150)]
    for each in gone:
        each.rename(tmp_path / each.name)
    try:
        assert observe_landing(landing, Commits(1)).missing == {7: "7.parquet", 150: "150.parquet"}
    finally:
        for each in gone:
            (tmp_path / each.name).rename(each)
    assert table.version() == COMMITS

"""Maintenance of closed days and of their ledger: fewer files, the same rows, hashes and closings."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.data.books import ledger
from pipeline.data.books.hashing import rehashed
from pipeline.lake.delta.log import log_folder
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.rewrite import table_files
from pipeline.lake.delta.table import TableConflict
from pipeline.lake.storage.location import Location
from pipeline.settings.maintenance import Maintenance
from tests.tables.books_world import BEGIN, DAY, BooksWorld, make_books, row
from tests.tables.maintenance_world import maintain
from tests.tables.repair_world import CHESS, World, make_world
from tests.tables.silver_world import hooked

_EAGER = Maintenance(small_files=2, log_retention_hours=24, log_megabytes=1)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("upkeep"))


@pytest.fixture
def world(tmp_path: Path, empty: World) -> Iterator[BooksWorld]:
    made = make_books(tmp_path, silver=False, base=empty)  # these rounds go too far ahead for a silver table
    yield made
    made.engine.dispose()


def close_days(world: BooksWorld, *numbers: int) -> None:
    for number in numbers:
        world.ingest(row(number * DAY + 5.0), row(number * DAY + 6.0), row(1.0))
        world.split()
        world.complete(number * DAY + 120.0)
        world.close()
        world.promise()


def upkeep(world: BooksWorld, after: float = 0.0) -> None:
    maintain(world.paths, after=after, settings=replace(world.settings, maintenance=_EAGER))


def files(folder: Location) -> tuple[int, int]:
    """Return how many files a table has, and how many its folder."""
    return len(table_files(open_table(folder))), sum(each.name.endswith(".parquet") for each in folder.files())


def test_merged_days_are_the_same_days(world: BooksWorld) -> None:
    """Maintenance changes files, never a closed day: not its rows, its hashes, its entries, or later closings."""
    close_days(world, *range(6))
    world.reopen(BEGIN * 1_000_000, 650.0)
    world.complete(700.0)
    world.close()
    world.promise()
    before = ledger.read(world.paths.books, CHESS.key)
    assert len(before) == 7
    upkeep(world)
    for folder in (world.paths.books, world.paths.closed(CHESS.key)):
        assert files(folder) == (1, 8)
        commit = (log_folder(folder) / f"{open_table(folder).version():020}.json").read().decode()
        assert '"dataChange":true' not in commit.replace(" ", "")
    assert ledger.read(world.paths.books, CHESS.key) == before
    world.check()
    close_days(world, 8)
    upkeep(world, after=10 * 24 * 3600.0)
    upkeep(world, after=20 * 24 * 3600.0)
    assert files(world.paths.books) == files(world.paths.closed(CHESS.key)) == (1, 1)
    world.check()
    closings = ledger.read(world.paths.books, CHESS.key)
    assert closings[:7] == before
    assert [rehashed(world.paths.closed(CHESS.key), each) for each in closings] == [each.hash for each in closings]


def test_a_day_is_finished_after_maintenance_of_its_table(world: BooksWorld) -> None:
    """The log of closed days keeps each record, so a closing that was killed long ago still gets its ledger row."""
    close_days(world, 0, 1)

    def die(point: str) -> None:
        if point == "before_write_data_file" and len(table_files(open_table(world.paths.closed(CHESS.key)))) > 2:
            raise TableConflict("stop")

    with hooked(die), pytest.raises(TableConflict):
        close_days(world, 3)
    for days in range(1, 40, 13):
        upkeep(world, after=days * 24 * 3600.0)
    assert [each.state for each in world.books().look(CHESS).days] == ["closed", "closed", "closing"]
    assert [each.number for each in world.books().settle(CHESS)] == [1, 2, 3]
    world.promise()
    world.check()

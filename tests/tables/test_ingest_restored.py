"""Bronze rolled back by `RESTORE TABLE`: its log keeps the transactions, and the rows are gone."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipeline.base.errors import Refused
from pipeline.base.names import bronze_app_id
from pipeline.data.ingest.restored import require_newest
from pipeline.lake.delta.table import CursorTable
from pipeline.store.processes.drivers import record_commit
from tests.tables.repair_world import World, good, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Bronze with three commits, the last one split into the game's table."""
    made = make_world(tmp_path)
    for number in (1, 2, 3):
        made.ingest(good(number))
    made.split()
    return made


def bronze_of(world: World) -> CursorTable:
    table = CursorTable.open(world.paths.bronze, bronze_app_id(world.environment))
    assert table is not None
    return table


def require(world: World) -> None:
    require_newest(world.paths, world.environment, world.engine, bronze_of(world))


@pytest.mark.proves("G25")
def test_a_bronze_that_was_taken_back_is_refused_until_it_is_taken_forth(world: World) -> None:
    """Law L1: bronze's log is not enough where the rows of its last seqs were rolled back."""
    require(world)
    version = bronze_of(world).version
    DeltaTable(world.paths.bronze).restore(version - 1)
    assert bronze_of(world).cursor == 3
    sentence = rf"RESTORE.*version {version + 1}.*up to seq 2.*the table of chess_.*TO VERSION AS OF {version}\b"
    with pytest.raises(Refused, match=sentence):
        require(world)
    DeltaTable(world.paths.bronze).restore(version)
    require(world)


def test_what_ingest_has_reported_is_compared_too(world: World) -> None:
    """Law L1: also where no game's table has read the rows that were rolled back."""
    world.ingest(good(4))
    require(world)
    record_commit(world.engine, 4, 1, 0, None)
    DeltaTable(world.paths.bronze).restore(bronze_of(world).version - 1)
    with pytest.raises(Refused, match="ingest has reported seq 4"):
        require(world)


def test_rows_that_a_hand_deleted_stop_their_stream_and_not_ingest(world: World) -> None:
    """Law L6: a deletion is a gap of the games it is about, and ingest goes on for all."""
    DeltaTable(world.paths.bronze).delete("seq = 3")
    require(world)


def test_a_commit_without_rows_is_not_missed(world: World) -> None:
    """Law L1: an adoption takes a seq without rows; an earlier restore whose rows came back does not count."""
    version = bronze_of(world).version
    DeltaTable(world.paths.bronze).restore(version - 1)
    DeltaTable(world.paths.bronze).restore(version)
    bronze_of(world).commit([], 3, 4)
    require(world)


def test_a_restore_from_before_the_missing_rows_is_not_why_they_are_gone(world: World) -> None:
    """Law L6: a restore that mended bronze, as documented, says nothing of rows that came later and were deleted."""
    version = bronze_of(world).version
    DeltaTable(world.paths.bronze).delete("seq = 2")
    DeltaTable(world.paths.bronze).restore(version)
    require(world)
    world.ingest(good(4))
    world.split()
    world.ingest(good(5))
    record_commit(world.engine, 5, 1, 0, None)
    DeltaTable(world.paths.bronze).delete("seq = 5")
    require(world)


def test_rows_that_were_brought_back_and_then_deleted_are_a_gap(world: World) -> None:
    """Law L6: the last restore that could have removed the rows counts, not an undone one."""
    version = bronze_of(world).version
    DeltaTable(world.paths.bronze).restore(version - 1)
    DeltaTable(world.paths.bronze).restore(version)
    DeltaTable(world.paths.bronze).delete("seq = 3")
    require(world)

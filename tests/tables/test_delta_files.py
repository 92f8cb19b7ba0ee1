"""Data files that delta-rs rewrote, as it does when it deletes some of their rows, are read like our own."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipeline.data.ingest import bronze_progress
from pipeline.data.ingest.source_checks import forget_refused
from pipeline.data.maintenance.run import one_round
from pipeline.data.repair.dedupe import dedupe
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.data.verify.balance import verify
from pipeline.data.verify.values import Wanted
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.store.games import generations
from tests.tables.repair_world import CHESS, SECOND, World, broken, early, good, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Quarantine has one file, of which delta-rs took the rows of seq 9: bronze does not have it."""
    made = make_world(tmp_path)
    made.ingest(broken(), good(1), early(2))
    made.ingest(early(3), good(4))
    given_up = {"game_key": CHESS.key, "game": CHESS.name, "seq": 9, "pos": 0, "reason": "malformed_payload"}
    refused = [
        {"game_key": CHESS.key, "game": CHESS.name, "seq": seq, "pos": pos, "reason": reason}
        for seq, pos, reason in ((1, 0, "malformed_payload"), (1, 2, "unknown_schema"), (2, 0, "unknown_schema"))
    ]
    made.quarantine([*refused, given_up])
    made.split()
    forget_refused(made.paths.quarantine, 9, 9)
    assert made.refused() == [(1, 0), (1, 2), (2, 0)]
    made.register(message=SECOND)
    return made


@pytest.mark.proves("G139")
def test_a_game_is_rebuilt_beside_refused_rows_that_delta_rs_rewrote(world: World) -> None:
    """Law L5: what lands by the rebuild leaves quarantine."""
    done = rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, CHESS)
    assert (done.rows, done.refused, done.removed) == (4, 1, 2)
    assert (world.refused(), world.verify().ok) == ([(1, 0)], True)


@pytest.mark.proves("G139")
def test_refused_rows_that_delta_rs_rewrote_are_replayed(world: World) -> None:
    """Law L5: what lands by the replay leaves quarantine."""
    (done,) = replay_all(
        world.paths, world.environment, world.registry.snapshot, world.known(), Selection(), dry_run=False
    )
    assert (done.error, done.done.landed, done.done.removed) == (None, 2, 2)
    assert (world.refused(), world.verify().ok) == ([(1, 0)], True)


@pytest.mark.proves("G139")
def test_a_thorough_round_looks_through_refused_rows_that_delta_rs_rewrote(world: World) -> None:
    """Law L5: maintenance removes landed rows from quarantine, and cleans up behind itself."""
    world.quarantine([{"game_key": CHESS.key, "game": CHESS.name, "seq": 1, "pos": 1, "reason": "malformed_payload"}])
    done = one_round(world.settings, world.paths, time.time(), thorough=True)
    assert [table.error for table in done.tables if table.error] == []
    assert world.refused() == [(1, 0), (1, 2), (2, 0)]


@pytest.mark.proves("G139")
def test_how_far_bronze_has_a_topic_is_read_where_delta_rs_rewrote_it(tmp_path: Path) -> None:
    """Law L1: a hand may have deleted rows of bronze by delta-rs."""
    bronze = CursorTable.create(located(tmp_path / "bronze"), BRONZE, "app")
    rows = [
        {"game_key": "chess", "seq": 1, "pos": pos, "topic": "events", "partition": 0, "offset": pos, "raw": b""}
        for pos in range(3)
    ]
    table = pa.Table.from_pylist(rows, schema=BRONZE)
    bronze.commit([write_file(table, bronze.path, ["seq", "game_key"])], None, 1)
    DeltaTable(bronze.path).delete("pos = 0")
    assert bronze_progress.last_offsets(bronze.path, "events", 0, {0}) == {0: 2}


@pytest.fixture
def texts(tmp_path: Path) -> World:
    """Chess's table has a column of texts, and delta-rs rewrote its one file without its first row."""
    made = make_world(tmp_path)
    made.register(message=SECOND)
    made.ingest(early(1), early(2), early(3))
    made.split()
    DeltaTable(made.paths.table(CHESS.key)).delete("_pos = 0")
    return made


@pytest.mark.proves("G139")
def test_values_are_compared_where_delta_rs_rewrote_them(texts: World) -> None:
    """Law L5: verify names the row that a hand deleted, and compares the others."""
    wanted = Wanted(texts.registry.snapshot())
    found = verify(texts.paths, texts.environment, generations(texts.engine), wanted=wanted)
    assert found.totals.lost == 1
    assert found.values is not None
    assert (found.values.mismatches, found.values.rows) == (0, 2)


@pytest.mark.proves("G139")
def test_second_copies_leave_a_table_that_delta_rs_rewrote(texts: World) -> None:
    """Law L5: a removal takes what is doubled and nothing else."""
    folder = texts.paths.table(CHESS.key)
    table = CursorTable.open(folder, "somebody")
    assert table is not None
    table.append([write_file(DeltaTable(folder).to_pyarrow_table().slice(1), folder, ["_seq"])])
    assert texts.rows() == [(1, 1), (1, 2), (1, 2)]
    done = dedupe(texts.paths, texts.environment, texts.registry.snapshot, CHESS)
    assert (done.removed, texts.rows()) == (1, [(1, 1), (1, 2)])

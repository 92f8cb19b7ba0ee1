from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.writer import write_deltalake

from pipeline.delta_table import Conflict, CursorTable, write_file
from pipeline.pins import pin

SCHEMA = pa.schema([("_seq", pa.int64()), ("name", pa.string())])
APP = "turnout/test/game/1"


def _rows(*seqs: int) -> pa.Table:
    return pa.table({"_seq": list(seqs), "name": [f"row {seq}" for seq in seqs]}, schema=SCHEMA)


def _read(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table().column("_seq").to_pylist())


def test_rows_and_cursor_are_one_commit(tmp_path: Path) -> None:
    """Law L3: whoever sees the rows sees the cursor, and a reopened table knows where it stands."""
    table = CursorTable.create(tmp_path / "t", SCHEMA, APP)
    assert table.cursor is None
    table.commit([write_file(_rows(1, 2), tmp_path / "t", ["_seq"])], None, 2)
    again = CursorTable.open(tmp_path / "t", APP)
    assert again is not None
    assert again.cursor == 2
    assert _read(tmp_path / "t") == [1, 2]


def test_the_second_of_two_owners_adds_nothing(tmp_path: Path) -> None:
    """Law L4: a commit is a compare-and-set, also against an owner who looked at the same moment."""
    table = CursorTable.create(tmp_path / "t", SCHEMA, APP)
    zombie = CursorTable.open(tmp_path / "t", APP)
    assert zombie is not None
    table.commit([write_file(_rows(1), tmp_path / "t")], None, 1)
    with pytest.raises(Conflict):
        zombie.commit([write_file(_rows(1), tmp_path / "t")], None, 1)
    assert zombie.cursor == 1
    with pytest.raises(Conflict):
        zombie.commit([write_file(_rows(2), tmp_path / "t")], 0, 2)
    assert _read(tmp_path / "t") == [1]


def test_other_writers_of_the_table_do_not_disturb_a_commit(tmp_path: Path) -> None:
    """Compaction or another application id is rebased, not a conflict."""
    table = CursorTable.create(tmp_path / "t", SCHEMA, APP)
    table.commit([write_file(_rows(1), tmp_path / "t")], None, 1)
    other = CommitProperties(app_transactions=[Transaction("somebody else", 7)])
    write_deltalake(tmp_path / "t", _rows(50), mode="append", commit_properties=other)
    table.commit([write_file(_rows(2), tmp_path / "t")], 1, 2)
    assert _read(tmp_path / "t") == [1, 2, 50]


def test_new_columns_and_members_are_added_before_the_rows_that_have_them(tmp_path: Path) -> None:
    """A file with a column its table lacks would be accepted and the column lost, so the column comes first."""
    old = pa.schema([("_seq", pa.int64()), ("s", pa.struct([("a", pa.int32())]))])
    new = pa.schema(
        [("_seq", pa.int64()), ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])), ("c", pa.int64())]
    )
    table = CursorTable.create(tmp_path / "t", old, APP)
    rows = pa.table({"_seq": [1], "s": [{"a": 1, "b": "x"}], "c": [9]}, schema=new)
    assert table.add_missing_columns(new)
    assert not table.add_missing_columns(new)
    assert not table.add_missing_columns(old)
    table.commit([write_file(rows, tmp_path / "t")], None, 1)
    assert rows.to_pylist() == DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()


def test_many_commits_stay_readable(tmp_path: Path) -> None:
    """Checkpoints are written on the way, and every commit is still there."""
    table = CursorTable.create(tmp_path / "t", SCHEMA, APP, checkpoint_interval=5)
    for seq in range(1, 23):
        table.commit([write_file(_rows(seq), tmp_path / "t", ["_seq"])], seq - 1 or None, seq)
    assert _read(tmp_path / "t") == list(range(1, 23))
    assert 4 <= len(list((tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet"))) <= 5


def test_a_pin_outlives_what_was_proposed_later(tmp_path: Path) -> None:
    """Law L5: a replayed batch is classified with the schema set of its first attempt."""
    assert pin(tmp_path / "pins", 3, lambda: 7) == 7
    assert pin(tmp_path / "pins", 3, lambda: 8) == 7
    assert pin(tmp_path / "pins", 4, lambda: 8) == 8
    assert sorted(file.name for file in (tmp_path / "pins").iterdir()) == ["3", "4"]

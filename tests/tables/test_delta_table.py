import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.schema import Schema
from deltalake.writer import write_deltalake

from pipeline.base import durable_file
from pipeline.data.pins import pin
from pipeline.lake.delta import table as delta_table
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.log import is_plain, publish_commit, read_commit
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.storage.places import located

SCHEMA = pa.schema([("_seq", pa.int64()), ("name", pa.string())])
APP = "turnout/test/game/1"


@pytest.fixture(params=["plain", "delta-rs"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """An empty table, once of the oldest protocol and once of one that only delta-rs may commit to."""
    folder = tmp_path / "t"
    if request.param == "delta-rs":
        DeltaTable.create(folder, Schema.from_arrow(SCHEMA), configuration={"delta.enableChangeDataFeed": "true"})
    assert (request.param == "plain") == is_plain(CursorTable.create(located(folder), SCHEMA, APP)._table)
    return folder


def _rows(*seqs: int) -> pa.Table:
    return pa.table({"_seq": list(seqs), "name": [f"row {seq}" for seq in seqs]}, schema=SCHEMA)


def _read(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table().column("_seq").to_pylist())


@pytest.mark.proves("G30")
def test_rows_and_cursor_are_one_commit(path: Path) -> None:
    """Law L3: rows and cursor become visible together, and a reopened table knows its cursor."""
    table = CursorTable.create(located(path), SCHEMA, APP)
    assert table.cursor is None
    table.commit([write_file(_rows(1, 2), located(path), ["_seq"])], None, 2)
    again = CursorTable.open(located(path), APP)
    assert again is not None
    assert again.cursor == 2
    assert _read(path) == [1, 2]


@pytest.mark.proves("G31")
def test_the_second_of_two_owners_adds_nothing(path: Path) -> None:
    """Law L4: a commit is a compare-and-set, also against an owner who looked at the same moment."""
    table = CursorTable.create(located(path), SCHEMA, APP)
    zombie = CursorTable.open(located(path), APP)
    assert zombie is not None
    table.commit([write_file(_rows(1), located(path))], None, 1)
    with pytest.raises(TableConflict):
        zombie.commit([write_file(_rows(1), located(path))], None, 1)
    assert zombie.cursor == 1
    with pytest.raises(TableConflict):
        zombie.commit([write_file(_rows(2), located(path))], 0, 2)
    assert _read(path) == [1]


@pytest.mark.proves("G39")
def test_other_writers_of_the_table_do_not_disturb_a_commit(path: Path) -> None:
    """Compaction or another application id is rebased, not a conflict."""
    table = CursorTable.create(located(path), SCHEMA, APP)
    table.commit([write_file(_rows(1), located(path))], None, 1)
    other = CommitProperties(app_transactions=[Transaction("somebody else", 7)])
    write_deltalake(path, _rows(50), mode="append", commit_properties=other)
    table.commit([write_file(_rows(2), located(path))], 1, 2)
    assert _read(path) == [1, 2, 50]


def test_new_columns_and_members_are_added_before_the_rows_that_have_them(tmp_path: Path) -> None:
    """A file with a column its table lacks would be accepted and the column lost, so the column comes first."""
    old = pa.schema([("_seq", pa.int64()), ("s", pa.struct([("a", pa.int32())]))])
    new = pa.schema(
        [("_seq", pa.int64()), ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])), ("c", pa.int64())]
    )
    table = CursorTable.create(located(tmp_path / "t"), old, APP)
    rows = pa.table({"_seq": [1], "s": [{"a": 1, "b": "x"}], "c": [9]}, schema=new)
    assert table.add_missing_columns(new)
    assert not table.add_missing_columns(new)
    assert not table.add_missing_columns(old)
    table.commit([write_file(rows, located(tmp_path / "t"))], None, 1)
    assert rows.to_pylist() == DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()


def test_many_commits_stay_readable(path: Path) -> None:
    """Checkpoints are written on the way, and every commit is still there."""
    table = CursorTable.create(located(path), SCHEMA, APP, checkpoint_interval=5)
    for seq in range(1, 23):
        table.commit([write_file(_rows(seq), located(path), ["_seq"])], seq - 1 or None, seq)
    assert _read(path) == list(range(1, 23))
    assert 4 <= len(list((path / "_delta_log").glob("*.checkpoint.parquet"))) <= 5


@pytest.mark.proves("G70")
def test_a_pin_outlives_what_was_proposed_later(tmp_path: Path) -> None:
    """Law L5: a replayed batch is classified with the schema set of its first attempt."""
    assert pin(located(tmp_path / "pins"), 3, lambda: 7) == 7
    assert pin(located(tmp_path / "pins"), 3, lambda: 8) == 7
    assert pin(located(tmp_path / "pins"), 4, lambda: 8) == 8
    assert sorted(file.name for file in (tmp_path / "pins").iterdir()) == ["3", "4"]


def test_a_log_file_is_written_once(tmp_path: Path) -> None:
    """The whole of Delta's concurrency control: a version that exists is never replaced, and leaves no draft."""
    (tmp_path / "_delta_log").mkdir()
    assert publish_commit(located(tmp_path), 0, [{"first": 1}])
    assert not publish_commit(located(tmp_path), 0, [{"second": 2}])
    assert read_commit(located(tmp_path), 0) == [{"first": 1}]
    assert [file.name for file in (tmp_path / "_delta_log").iterdir()] == ["00000000000000000000.json"]


@pytest.mark.proves("G31")
@pytest.mark.parametrize("commits", [1, 2, 3, 4])
def test_a_commit_follows_the_one_that_its_writer_saw(path: Path, commits: int) -> None:
    """Law L4: in a log made again a version's number says nothing: rows that it lacks would count as applied."""
    again = path.with_name("again")
    DeltaTable.create(again, Schema.from_arrow(SCHEMA), configuration=DeltaTable(path).metadata().configuration)
    table = CursorTable.create(located(path), SCHEMA, APP, guarded=True)
    for number in range(1, 4):
        table.commit([write_file(_rows(number), located(path))], table.cursor, number)
    other = CursorTable.create(located(again), SCHEMA, "turnout/test/game/repair")
    for number in range(1, commits + 1):
        other.commit([write_file(_rows(10 * number), located(again))], other.cursor, number)
    shutil.rmtree(path)
    again.rename(path)
    with pytest.raises((TableConflict, DeltaError)):  # delta-rs misses the version that it has read
        table.commit([write_file(_rows(4), located(path))], 3, 4)
    assert _read(path) == [10 * number for number in range(1, commits + 1)]
    table.refresh()
    assert table.cursor is None


def test_columns_another_owner_added_meanwhile_are_kept(tmp_path: Path) -> None:
    """A commit that finds a schema change before it goes after it, and nothing of either is lost."""
    table = CursorTable.create(located(tmp_path / "t"), SCHEMA, APP)
    other = CursorTable.create(located(tmp_path / "t"), SCHEMA, "somebody else")
    wider = pa.schema([*SCHEMA, pa.field("more", pa.int64())])
    other.add_missing_columns(wider)
    other.commit([write_file(_rows(7).append_column("more", pa.array([7])), located(tmp_path / "t"))], None, 1)
    table.commit([write_file(_rows(1), located(tmp_path / "t"))], None, 1)
    assert not table.add_missing_columns(wider)
    rows = DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("_seq").to_pylist()
    assert [(row["_seq"], row["more"]) for row in rows] == [(1, None), (7, 7)]


def test_columns_that_were_looked_at_are_looked_at_again_once_others_changed_them(tmp_path: Path) -> None:
    """Law L9: a table that suited rows at the last commit and lost a column since gets it before the next rows."""
    path = tmp_path / "t"
    wider = pa.schema([*SCHEMA, ("level", pa.int64())])
    table = CursorTable.create(located(path), wider, APP)
    assert not table.add_missing_columns(wider)
    empty = SCHEMA.empty_table()
    write_deltalake(path, empty, mode="overwrite", schema_mode="overwrite")
    assert not table.add_missing_columns(wider)  # not read yet
    table.refresh()
    assert table.add_missing_columns(wider)
    assert not table.add_missing_columns(wider)
    assert DeltaTable(path).schema().to_arrow().names == [*SCHEMA.names, "level"]


def test_a_stale_view_is_renewed_before_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that slept past log cleanup must not write a version that was cleaned away."""
    table = CursorTable.create(located(tmp_path / "t"), SCHEMA, APP)
    other = CursorTable.create(located(tmp_path / "t"), SCHEMA, "somebody else")
    for seq in range(1, 4):
        other.commit([write_file(_rows(seq), located(tmp_path / "t"))], seq - 1 or None, seq)
    DeltaTable(tmp_path / "t").create_checkpoint()
    for version in range(3):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    monkeypatch.setattr(delta_table, "_TRUSTED_SECONDS", -1.0)
    table.commit([write_file(_rows(9), located(tmp_path / "t"))], None, 9)
    assert table.version == 4
    assert _read(tmp_path / "t") == [1, 2, 3, 9]


SEPARATORS = "Caf\u0085e \u2028 Par\u2029is \x1c\x0b"
"""Characters at which `str.splitlines` ends a line; the last two are escaped in JSON, the others are not."""


@pytest.mark.proves("G28")
def test_a_commit_with_line_separators_in_its_statistics_is_read(path: Path) -> None:
    """Lines of the log end at a line feed only: what is between stands in names and statistics as it is."""
    table = CursorTable.create(located(path), SCHEMA, APP)
    other = CursorTable.create(located(path), SCHEMA, f"another {SEPARATORS}")
    rows = pa.table({"_seq": [1], "name": [SEPARATORS]}, schema=SCHEMA)
    other.commit([write_file(rows, located(path), ["_seq", "name"])], None, 1, note={"note": SEPARATORS})
    log = path / "_delta_log" / f"{other.version:020}.json"
    raw = [json.loads(line) for line in log.read_bytes().split(b"\n") if line]
    log.write_text("\n".join(json.dumps(action, ensure_ascii=False) for action in raw), "utf-8")  # as Spark writes it
    assert raw == read_commit(located(path), other.version)
    table.commit([write_file(_rows(2), located(path), ["_seq"])], None, 2)
    assert table.transaction_version(f"another {SEPARATORS}") == 1
    assert _read(path) == [1, 2]


@pytest.mark.proves("G38")
def test_a_commit_whose_reply_was_lost_is_no_lost_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L3: where storage wrote a commit and says that its version is taken, its writer reads it back as its own."""
    table = CursorTable.create(located(tmp_path), SCHEMA, APP)
    real = durable_file.create

    def lossy(target: Path, content: bytes, **given: Any) -> bool:
        return real(target, content, **given) and False

    monkeypatch.setattr(durable_file, "create", lossy)
    table.commit([write_file(_rows(1), located(tmp_path))], None, 1)
    assert (table.cursor, DeltaTable(tmp_path).version()) == (1, 1)
    monkeypatch.undo()
    zombie = CursorTable.open(located(tmp_path), APP)
    assert zombie is not None
    table.commit([write_file(_rows(2), located(tmp_path))], 1, 2)
    with pytest.raises(TableConflict):
        zombie.commit([write_file(_rows(2), located(tmp_path))], 1, 2)
    assert _read(tmp_path) == [1, 2]

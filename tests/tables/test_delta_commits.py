"""Commits through delta-rs: files replaced at once, and a lost reply is no lost race."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from pipeline.lake.delta.commits import exchange, overwrite
from pipeline.lake.delta.data_files import DataFile, write_file
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located

SCHEMA = pa.schema([("_seq", pa.int64())])
APP = "turnout/test/game/1"


@pytest.fixture
def table(tmp_path: Path) -> Location:
    """A table with the rows 1 and 2 in one file each."""
    folder = located(tmp_path / "t")
    made = CursorTable.create(folder, SCHEMA, APP)
    for seq in (1, 2):
        made.commit([_file(folder, seq)], made.cursor, seq)
    return folder


def _file(folder: Location, *seqs: int) -> DataFile:
    return write_file(pa.table({"_seq": list(seqs)}, schema=SCHEMA), folder, ["_seq"])


def _rows(folder: Location) -> list[int]:
    return sorted(DeltaTable(str(folder)).to_pyarrow_table().column("_seq").to_pylist())


def _overwrite(folder: Location, opened: DeltaTable) -> None:
    overwrite(folder, opened, [_file(folder, 3, 4)], SCHEMA, {"next": 7}, "a new generation")


def _exchange(folder: Location, opened: DeltaTable) -> None:
    actions = pa.table(opened.get_add_actions(flatten=True))
    sizes = dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))
    exchange(folder, opened, sizes, [_file(folder, 3, 4)], {"next": 7}, "without some rows")


Commit = Callable[[Location, DeltaTable], None]


@pytest.mark.parametrize("commit", [_overwrite, _exchange])
@pytest.mark.proves("G38")
def test_a_repair_whose_reply_was_lost_is_done_once(
    table: Location, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L3: where the log has the commit by its id, a failure that delta-rs reports was only of the reply."""
    real = DeltaTable.create_write_transaction

    def lossy(opened: DeltaTable, *arguments: Any, **options: Any) -> None:
        real(opened, *arguments, **options)
        raise CommitFailedError("version 3 exists already")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lossy)
    commit(table, open_table(table))
    found = open_table(table)
    assert (_rows(table), found.version(), found.transaction_version("next")) == ([3, 4], 3, 7)


@pytest.mark.parametrize("commit", [_overwrite, _exchange])
@pytest.mark.proves("G38")
def test_a_repair_behind_another_commit_fails(table: Location, commit: Commit) -> None:
    """Law L4: the commit follows the version that was read, or nothing of it is in the table."""
    opened, other = open_table(table), CursorTable.open(table, APP)
    assert other is not None
    other.commit([_file(table, 5)], 2, 5)
    with pytest.raises(CommitFailedError):
        commit(table, opened)
    assert _rows(table) == [1, 2, 5]

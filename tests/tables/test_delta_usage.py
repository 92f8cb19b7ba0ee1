"""Rows of a table by schema: exact from the log where it tells, least where files were left out, and never a guess."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipeline.base.errors import Refused
from pipeline.lake.delta import usage
from pipeline.lake.delta.usage import SchemaRows
from pipeline.lake.storage.places import located
from tests.tables.usage_world import AT, commit


def counted(folder: Path) -> usage.Usage:
    return usage.usage(DeltaTable(folder), located(folder), "The table of chess")


def test_files_of_one_schema_are_counted_without_reading_them(tmp_path: Path) -> None:
    """A table whose files have one schema each is counted from its log: exact, also where its files are gone."""
    commit(tmp_path, 1, (7, 0), (7, 5))
    commit(tmp_path, 2, (8, 10), (8, None))
    commit(tmp_path, 3, (7, 20))
    table = DeltaTable(tmp_path)
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    found = usage.usage(table, located(tmp_path), "The table of chess")
    assert found.schemas == {7: SchemaRows(3, AT, AT + 20), 8: SchemaRows(2, AT + 10, AT + 10)}
    assert found.is_complete


def test_a_file_of_several_schemas_is_read(tmp_path: Path) -> None:
    """Where a file has rows of two schemas it is read; rows without a schema's id are of no version."""
    commit(tmp_path, 1, (7, 0), (8, 1), (8, 2), (None, 3))
    commit(tmp_path, 2, (8, 9))
    found = counted(tmp_path)
    assert found.schemas == {7: SchemaRows(1, AT, AT), 8: SchemaRows(3, AT + 1, AT + 9)}
    assert found.is_complete


def test_few_files_are_read_and_the_others_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files have several schemas, only the newest few are read, and the others are counted as left."""
    monkeypatch.setattr(usage, "MOST_FILES_NEAR", 2)
    for seq in range(1, 6):
        commit(tmp_path, seq, (7, seq), (8, seq))
    found = counted(tmp_path)
    assert found.schemas == {7: SchemaRows(2, AT + 4, AT + 5), 8: SchemaRows(2, AT + 4, AT + 5)}
    assert (found.files_left, found.is_complete) == (3, False)


def test_files_that_were_read_stand_for_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate gives each schema its share of the rows that were not read; a complete count has no estimate."""
    commit(tmp_path, 1, (7, 1), (7, 1))
    for seq in range(2, 7):
        commit(tmp_path, seq, (7, seq), (8, seq), (8, seq))
    assert [counted(tmp_path).rows_of(each) for each in ({7}, {8}, {7, 8}, {9})] == [7, 10, 17, 0]
    monkeypatch.setattr(usage, "MOST_FILES_NEAR", 1)
    assert [counted(tmp_path).rows_of(each) for each in ({7}, {8}, {7, 8}, {9})] == [7, 10, 17, 0]
    monkeypatch.setattr(usage, "MOST_FILES_NEAR", 0)
    assert [counted(tmp_path).rows_of(each) for each in ({7}, {8})] == [2, 0], "nothing was read to guess from"


def test_a_damaged_file_is_a_reason(tmp_path: Path) -> None:
    """A file that has to be read and cannot be is a refusal that names the table, not a smaller number."""
    commit(tmp_path, 1, (7, 0), (8, 1))
    (file,) = tmp_path.glob("*.parquet")
    file.write_bytes(b"PAR1 no longer")
    with pytest.raises(Refused, match="The table of chess cannot be read"):
        counted(tmp_path)

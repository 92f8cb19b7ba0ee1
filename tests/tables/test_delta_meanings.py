"""The commit of the first rows that need a schema id notes its meaning."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.schema import Schema

from pipeline.lake.delta.checkpoint import write_checkpoint
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.log import commit_file, is_plain, read_commit
from pipeline.lake.delta.meanings import PROPERTY, OtherMeaning, with_meanings
from pipeline.lake.delta.metadata import newest_metadata, set_properties
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from tests.checkout import ROOT

APP = "turnout/test/game/1"
COLUMNS = pa.schema([("_seq", pa.int64())])


def meaning(**marks: str) -> pa.Schema:
    return with_meanings(COLUMNS, {int(name.removeprefix("id")): mark for name, mark in marks.items()})


def opened(path: Path) -> CursorTable:
    found = CursorTable.open(located(path), APP, guarded=True, chained=True)
    assert found is not None
    return found


def land(table: CursorTable, seq: int, target: pa.Schema) -> None:
    table.commit([write_file(pa.table({"_seq": [seq]}), table.path)], table.cursor, seq, target=target)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table as another writer has left it: with a property, and a schema that turnout spells otherwise."""
    folder = tmp_path / "t"
    land(CursorTable.create(located(folder), meaning(id1="a"), APP, description="a game"), 1, meaning(id1="a"))
    first = commit_file(located(folder), 0)
    text = first.read_text().replace('\\"metadata\\":{}', '\\"metadata\\":{\\"comment\\":\\"größe\\"}')
    first.put(
        text.replace('"configuration":{', '"configuration":{"delta.logRetentionDuration":"interval 9 days",').encode()
    )
    assert DeltaTable(folder).schema().fields[0].metadata == {"comment": "größe"}
    return folder


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_the_commit_of_the_rows_notes_the_meaning_and_keeps_all_else(path: Path, has_checkpoint: bool) -> None:
    """Law L3: rows, cursor and the meaning of their schema ids are one commit; other metadata stays as it was."""
    table = opened(path)
    before = metadata(path, 0)
    if has_checkpoint:
        write_checkpoint(table.path, 1)
        for version in (0, 1):
            commit_file(table.path, version).delete()
        table = opened(path)
    land(table, 2, meaning(id1="a", id2="b"))
    actions = read_commit(table.path, 2) or []
    assert [next(iter(each)) for each in actions] == ["commitInfo", "metaData", "txn", "add"]
    after = metadata(path, 2)
    assert after["configuration"] == {**before["configuration"], PROPERTY: "1=a 2=b"}
    assert {**after, "configuration": None} == {**before, "configuration": None}
    assert opened(path).cursor == 2
    land(table, 3, meaning(id1="a"))
    assert [next(iter(each)) for each in read_commit(table.path, 3) or []] == ["commitInfo", "txn", "add"]
    table.require_own()
    write_checkpoint(table.path, 3)
    assert DeltaTable(path).metadata().configuration[PROPERTY] == "1=a 2=b"
    assert newest_metadata(table.path, 3) == after


def test_two_drivers_note_their_meanings_at_once(path: Path) -> None:
    """Law L4: the second looks again, and the table notes the meanings of both."""
    one, other = opened(path), CursorTable.open(located(path), "turnout/test/game/repair")
    assert other is not None
    land(one, 2, meaning(id2="b"))
    other.commit([], None, 1, target=meaning(id3="c"))
    assert DeltaTable(path).metadata().configuration[PROPERTY] == "1=a 2=b 3=c"
    with pytest.raises(OtherMeaning):
        land(one, 3, meaning(id3="d"))
    assert DeltaTable(path).version() == 3, "nothing was added"


def test_a_table_that_is_not_plain_notes_its_meanings_before_its_rows(tmp_path: Path) -> None:
    """There delta-rs writes what our own entries would leave out."""
    features = {"delta.enableChangeDataFeed": "true", PROPERTY: "1=a"}
    made = DeltaTable.create(
        tmp_path, Schema.from_arrow(COLUMNS), configuration=features, raise_if_key_not_exists=False
    )
    assert not is_plain(made)
    land(opened(tmp_path), 1, meaning(id2="b"))
    assert opened(tmp_path).cursor == 1
    assert DeltaTable(tmp_path).metadata().configuration == {**features, PROPERTY: "1=a 2=b"}


def test_a_property_is_set_behind_other_writers(path: Path) -> None:
    """A property of a plain table is an entry of ours, after which a driver goes on."""
    table = opened(path)
    before = metadata(path, 0)
    set_properties(table.path, {"delta.setTransactionRetentionDuration": "interval 36500 days"}, "transactions kept")
    after = metadata(path, 2)
    assert after["configuration"].pop("delta.setTransactionRetentionDuration") == "interval 36500 days"
    assert after == before
    land(table, 2, meaning(id1="a"))
    assert opened(path).cursor == 2


def test_no_call_of_delta_rs_that_holds_the_interpreter_is_left() -> None:
    """Leases of a process lapse while one of its threads holds the interpreter's lock until a bucket has answered.

    Of all calls of delta-rs 1.6.6 that turnout made only these held it. One is left, for tables that are not plain.
    """
    held = re.compile(r"\.(set_table_properties|history|is_deltatable)\(")
    calls = sorted(
        f"{file.relative_to(ROOT)}: {found[1]}"
        for room in ("pipeline", "listeners")
        for file in (ROOT / room).rglob("*.py")
        for found in held.finditer(file.read_text())
    )
    assert calls == [
        "pipeline/lake/delta/metadata.py: set_table_properties",
        "pipeline/lake/delta/table.py: set_table_properties",
    ]


def metadata(path: Path, version: int) -> dict[str, Any]:
    actions = read_commit(located(path), version) or []
    found: dict[str, Any] = next(each["metaData"] for each in actions if "metaData" in each)
    return found

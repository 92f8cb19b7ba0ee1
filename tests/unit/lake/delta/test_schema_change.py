import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from pipeline.base import failpoints
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from tests.checkout import ROOT

APP = "turnout/test/game/1"
NARROW = pa.struct([("x", pa.int64())])
WIDE = pa.struct([("x", pa.int64()), ("x__v2", pa.string())])


def columns(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("s", kind), ("many", pa.list_(pa.field("element", kind))), ("by", pa.map_(pa.string(), kind))])


@pytest.mark.parametrize("at", [1, 2])
def test_a_change_of_columns_cut_short_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Law L5: stopped before or after columns were added, a table has its old rows, and takes the new ones later."""
    path, faults = tmp_path / "t", tmp_path / "faults"
    faults.mkdir()
    (faults / "armed").write_text(f"in_schema_change raise {at}\n", "utf-8")
    monkeypatch.setenv(failpoints.ENVIRON, str(faults))
    table = CursorTable.create(located(path), columns(NARROW), APP)
    old = {"s": {"x": 1}, "many": [{"x": 1}], "by": [("k", {"x": 1})]}
    table.commit([write_file(pa.Table.from_pylist([old], columns(NARROW)), located(path))], None, 1)
    with pytest.raises(failpoints.Injected):
        table.add_missing_columns(columns(WIDE))
    assert DeltaTable(path).to_pyarrow_table().num_rows == 1
    again = CursorTable.open(located(path), APP)
    assert again is not None
    assert again.add_missing_columns(columns(WIDE)) == (at == 1)
    new = {
        "s": {"x": None, "x__v2": "a"},
        "many": [{"x": None, "x__v2": "b"}],
        "by": [("k", {"x": None, "x__v2": "c"})],
    }
    again.commit([write_file(pa.Table.from_pylist([new], columns(WIDE)), located(path))], 1, 2)
    rows = sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: row["s"]["x"] is None)
    assert rows[1] == new
    assert rows[0]["many"] == [{"x": 1, "x__v2": None}]


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.proves("G76")
def test_a_killed_change_of_columns_leaves_a_whole_table(tmp_path: Path, at: int) -> None:
    """Law L5: the same under SIGKILL: the log has the whole change or none of it, and the next owner goes on."""
    path, faults = tmp_path / "t", tmp_path / "faults"
    faults.mkdir()
    (faults / "armed").write_text(f"in_schema_change crash {at}\n", "utf-8")
    table = CursorTable.create(located(path), pa.schema([("a", pa.int64())]), APP)
    table.commit([write_file(pa.table({"a": [1]}), located(path))], None, 1)
    script = (
        "import sys, pyarrow as pa;"
        "from pipeline.lake.storage.places import located; from pipeline.lake.delta.table import CursorTable;"
        "table = CursorTable.open(located(sys.argv[1]), 'turnout/test/game/1');"
        "table.add_missing_columns(pa.schema([('a', pa.int64()), ('b', pa.string())]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env={failpoints.ENVIRON: str(faults), "PATH": "/usr/bin:/bin"},
        cwd=ROOT,
        start_new_session=True,
        check=False,
    )
    assert done.returncode == -9
    names = [field.name for field in DeltaTable(path).schema().fields]
    assert names == (["a"] if at == 1 else ["a", "b"])
    heir = CursorTable.open(located(path), APP)
    assert heir is not None
    assert heir.add_missing_columns(pa.schema([("a", pa.int64()), ("b", pa.string())])) == (at == 1)
    assert DeltaTable(path).to_pyarrow_table().to_pylist() == [{"a": 1, "b": None}]


def meanwhile(monkeypatch: pytest.MonkeyPatch, path: Path, *names: str) -> list[str]:
    """Let another writer add one of these columns each time columns are about to be added; return what is left."""
    left = list(names)

    def on_hit(point: str) -> None:
        if point == "before_add_columns" and left:
            DeltaTable(path).alter.add_columns([Field(left.pop(0), PrimitiveType("long"))])

    monkeypatch.setattr(failpoints, "on_hit", on_hit)
    return left


@pytest.mark.parametrize("others", [["b"], ["c"], ["c", "b"], ["c", "d", "e"]])
def test_two_writers_may_add_columns_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[str]
) -> None:
    """Law L6: whoever is second looks again and goes on, whether the columns are the same or others."""
    path = tmp_path / "t"
    table = CursorTable.create(located(path), pa.schema([("a", pa.int64())]), APP)
    left = meanwhile(monkeypatch, path, *others)
    target = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    assert table.add_missing_columns(target) == ("b" not in others)
    assert left == []
    table.commit([write_file(pa.table({"a": [1], "b": [2]}), located(path))], None, 1)
    (row,) = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert row == {"a": 1, "b": 2, **dict.fromkeys(set(others) - {"b"})}


def test_who_is_always_second_gives_up_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L6: adding columns ends with an error that is tried again later, and adds no rows without them."""
    path = tmp_path / "t"
    table = CursorTable.create(located(path), pa.schema([("a", pa.int64())]), APP)
    left = meanwhile(monkeypatch, path, *(f"c{number}" for number in range(100)))
    with pytest.raises(CommitFailedError, match="Metadata changed"):
        table.add_missing_columns(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    assert len(left) == 85

"""A panic of delta-rs over one table is that table's damage, and nobody else's (law L6)."""

import ast
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import PyFileSystem
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, stream_app_id
from pipeline.data.maintenance import run
from pipeline.data.verify.balance import verify
from pipeline.health.facts.placing import placing
from pipeline.lake.delta import opening
from pipeline.lake.delta.checkpoint import write_checkpoint
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.opening import open_table, rows_of
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths, Settings, load
from pipeline.store.database.engine import open_store
from pipeline.store.games import record_seen, register_group
from tests.checkout import ROOT
from tests.game_streams import roster_of
from tests.tables.maintenance_world import CHESS, GO, SETTINGS, game_table
from tests.tables.verify_world import World, append_table


class PanicException(BaseException):
    """As pyo3 makes it: known by its name, no Exception."""


@pytest.fixture
def _panics_over_chess(monkeypatch: pytest.MonkeyPatch) -> None:
    class Panicking(DeltaTable):
        def __init__(self, table_uri: str | Path, version: int | None = None, **options: Any) -> None:
            if Path(table_uri).name == CHESS:
                raise PanicException("called `Option::unwrap()` on a `None` value")
            super().__init__(table_uri, version, **options)

    monkeypatch.setattr(opening, "DeltaTable", Panicking)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    store = open_store(*load(tmp_path, {}))
    yield store
    store.dispose()


def test_only_one_place_opens_tables() -> None:
    """Opening a table elsewhere lets a panic through; `listeners` is below this package, and opens its own."""
    opened = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for room in ("pipeline", "grants", "app")
        for file in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "DeltaTable"
    ]
    assert [place.partition(":")[0] for place in opened] == ["pipeline/lake/delta/opening.py"]


def test_rows_are_scanned_by_arrows_own_file_system(tmp_path: Path) -> None:
    """No thread of Arrow reads a table through Python, which ends by a crash where the scan is not read to its end."""
    write_deltalake(tmp_path / "t é%", pa.table({"a": [1, 2]}))
    rows = rows_of(located(tmp_path / "t é%"))
    assert (rows.to_table().to_pydict(), isinstance(rows.filesystem, PyFileSystem)) == ({"a": [1, 2]}, False)
    scanned = [
        str(file.relative_to(ROOT))
        for room in ("pipeline", "grants", "app")
        for file in (ROOT / room).rglob("*.py")
        if ".to_pyarrow_" in file.read_text("utf-8")
    ]
    assert scanned == ["pipeline/lake/delta/opening.py"]


def test_what_else_ends_an_open_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That there is no table, and Ctrl-C, are no damage."""
    with pytest.raises(TableNotFoundError):
        open_table(located(tmp_path))

    def interrupted(*_: object, **_options: object) -> DeltaTable:
        raise KeyboardInterrupt

    monkeypatch.setattr(opening, "DeltaTable", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_table(located(tmp_path))


def test_damage_of_any_page_of_a_checkpoint_is_seen_where_its_table_is_opened(tmp_path: Path) -> None:
    """Law L6: delta-rs reads the pages of transactions only when asked for one; nobody may meet their damage later."""
    app_id = stream_app_id("local", GameKey(CHESS), 1)
    table = CursorTable.create(located(tmp_path / "t"), pa.schema([("_seq", pa.int64())]), app_id)
    table.commit([], None, 1)
    write_checkpoint(table.path, table.version)
    (checkpoint,) = Path(table.path / "_delta_log").glob("*.checkpoint.parquet")
    whole = checkpoint.read_bytes()
    hidden = 0
    for at in range(0, len(whole), 5):
        checkpoint.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            opened = open_table(table.path)
        except DeltaError:
            continue
        opened.transaction_version(app_id)
        opened.file_uris()
        hidden += 1
    assert hidden, "some bytes are of no consequence"


def test_commits_go_on_over_a_page_of_a_checkpoint_that_only_we_read(tmp_path: Path) -> None:
    """Law L6: a commit is done whatever the checkpoint after it is made from; delta-rs makes that one then."""
    app_id = stream_app_id("local", GameKey(CHESS), 1)
    table = CursorTable.create(
        located(tmp_path / "t"), pa.schema([("_seq", pa.int64())]), app_id, checkpoint_interval=3
    )
    for seq in range(1, 5):
        table.commit([write_file(pa.table({"_seq": [seq]}), table.path, ["_seq"])], table.cursor, seq)
    checkpoint = max(Path(table.path / "_delta_log").glob("*.checkpoint.parquet"))
    whole = checkpoint.read_bytes()
    for at in range(len(whole)):
        checkpoint.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with contextlib.suppress(DeltaError):
            open_table(table.path)
            try:
                pq.read_table(checkpoint)
            except (OSError, pa.ArrowException):
                break
    else:
        pytest.fail("delta-rs reads each page that we read")
    for seq in range(5, 10):
        table.commit([write_file(pa.table({"_seq": [seq]}), table.path, ["_seq"])], table.cursor, seq)
    assert max(Path(table.path / "_delta_log").glob("*.checkpoint.parquet")) > checkpoint
    assert sorted(open_table(table.path).to_pyarrow_table().column("_seq").to_pylist()) == list(range(1, 10))


@pytest.mark.usefixtures("_panics_over_chess")
def test_a_driver_opens_the_other_tables(engine: Engine, tmp_path: Path) -> None:
    """Law L6: the one game is unreadable with its reason; the driver lives and has the others."""
    paths = Paths(tmp_path)
    app_id = stream_app_id("local", GameKey(GO), 1)
    CursorTable.create(paths.table(GameKey(GO)), pa.schema([("_seq", pa.int64())]), app_id)
    register_group(engine, "a", placing())
    record_seen(engine, {CHESS: "Chess", GO: "Go"}, 9, placing())
    streams = roster_of(Settings(), paths, engine).streams
    assert (streams[CHESS].unreadable, streams[GO].unreadable) == (True, False)


@pytest.mark.usefixtures("_panics_over_chess")
def test_maintenance_tends_the_other_tables(tmp_path: Path) -> None:
    """Law L6: the one table's error is in the report, the next one's files are merged."""
    paths = Paths(tmp_path)
    Path(paths.table(CHESS) / "_delta_log").mkdir(parents=True)
    Path(paths.table(CHESS) / "_delta_log" / f"{0:020}.json").write_text("{}\n")
    game_table(Path(paths.table(GO)), 5)
    done = run.one_round(SETTINGS, paths, time.time(), thorough=True)
    errors = {report.table: report.error for report in done.tables}
    assert "delta-rs panicked" in str(errors[f"tables/{CHESS}"])
    assert errors[f"tables/{GO}"] is None


@pytest.mark.usefixtures("_panics_over_chess")
def test_verify_names_the_table(tmp_path: Path) -> None:
    """A table that cannot be read is named in one sentence with what to do."""
    paths = World().write(tmp_path)
    append_table(paths, CHESS, [], None)
    with pytest.raises(Refused, match=f"tables/{CHESS} cannot be opened: delta-rs panicked"):
        verify(paths, "local")

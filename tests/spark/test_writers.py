"""One contract for both writers of game tables (law L10)."""

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame

from pipeline.base.errors import Refused, Transient
from pipeline.base.failpoints import Injected
from pipeline.base.names import bronze_app_id, game_key, stream_app_id
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.data.maintenance import run
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.data.streams.bronze_to_game import GameTables
from pipeline.data.streams.stream import stream_of
from pipeline.data.streams.writing.spark_writer import SparkTable
from pipeline.data.streams.writing.writers import writer_for
from pipeline.lake.delta import table as delta_table
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import DataFile, write_file
from pipeline.lake.delta.log import commits_after, is_plain
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.storage.places import located
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Demux
from pipeline.store.games import Assignment, Game, known_games
from tests.spark.late_world import LATE, register_late

GAME = "chess"
KEY = game_key(GAME)
COLUMNS = pa.schema([("_seq", pa.int64()), ("name", pa.string()), ("at", pa.struct([("x", pa.float64())]))])
WIDER = pa.schema(
    [*list(COLUMNS)[:2], ("at", pa.struct([("x", pa.float64()), ("y", pa.float64())])), ("level", pa.int64())]
)
Kind = Literal["direct", "spark"]
both = pytest.mark.parametrize("kind", ["direct", "spark"])


class Owner:
    """A driver that believes to own the game."""

    def __init__(self, world: Any, kind: Kind, name: str = "a") -> None:
        self.staging = world.paths.checkpoints / "demux" / name / "staging"
        self.holds: Callable[[], bool] = _yes
        demux = Demux(writer=kind, checkpoint_interval=3)
        self.writer = writer_for(demux, world.paths, world.spark, self.staging, lambda _key: self.holds())
        assignment = Assignment(KEY, GAME, epoch=1, generation=1, last_seq=0)
        CursorTable.create(world.paths.bronze, BRONZE, bronze_app_id("local"))
        self.stream = stream_of(assignment, GameTables("local", self.writer, world.paths))
        self.stream.open()

    def write(self, rows: list[dict[str, Any]], columns: pa.Schema = COLUMNS) -> DataFile:
        """Write a file as a task does."""
        return write_file(pa.Table.from_pylist(rows, columns), self.writer.folder / KEY, ["_seq"])

    def commit(self, cursor: int, *seqs: int, columns: pa.Schema = COLUMNS) -> None:
        files = [self.write([event(seq, columns)], columns) for seq in seqs]
        self.stream.commit(files, self.stream.position, cursor, columns)


def _yes() -> bool:
    return True


def _while(happens: Callable[..., None], *arguments: Any) -> Callable[[], bool]:
    """Return a lease that is held, but something happens while the driver asks for it."""

    def holds() -> bool:
        happens(*arguments)
        return True

    return holds


def event(seq: int, columns: pa.Schema = COLUMNS) -> dict[str, Any]:
    wide = {"at": {"x": seq / 2, "y": 0.5}, "level": seq * 10}
    return {"_seq": seq, "name": f"n{seq}", "at": {"x": seq / 2}, **(wide if columns is WIDER else {})}


def rows_of(world: Any) -> list[dict[str, Any]]:
    """Return the table's rows as delta-rs reads them."""
    rows: list[dict[str, Any]] = DeltaTable(world.paths.table(KEY)).to_pyarrow_table().sort_by("_seq").to_pylist()
    return rows


def read_by_all(world: Any, duckdb_cannot: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the table's rows; delta-rs, Spark and, of most columns, DuckDB must agree on them."""
    path, rows = world.paths.table(KEY), rows_of(world)
    by_spark = world.spark.read.format("delta").load(str(path)).toArrow()
    assert by_spark.sort_by("_seq").to_pylist() == rows
    files = {"files": DeltaTable(path).file_uris()}
    read: Any = duckdb.sql("SELECT * FROM read_parquet($files, union_by_name = true)", params=files)
    by_duckdb = read.to_arrow_table().sort_by("_seq").to_pylist()
    assert [_without(row, duckdb_cannot) for row in by_duckdb] == [_without(row, duckdb_cannot) for row in rows]
    return rows


def _without(row: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def seqs_of(world: Any) -> list[int]:
    return [row["_seq"] for row in rows_of(world)]


def log_of(world: Any) -> list[list[dict[str, Any]]]:
    return [actions for _, actions in commits_after(world.paths.table(KEY), -1)]


def cursors_of(world: Any) -> list[int | None]:
    """Return the cursor after each commit that set one, None where the commit had rows and no cursor."""
    found = [{name: action for each in actions for name, action in each.items()} for actions in log_of(world)]
    return [each["txn"]["version"] if "txn" in each else None for each in found if {"txn", "add"} & each.keys()]


@both
def test_the_first_commit_creates_the_table_and_each_has_its_rows_and_its_cursor(world: Any, kind: Kind) -> None:
    """Law L3: rows and cursor are one commit, on a plain table that the first commit creates."""
    owner = Owner(world, kind)
    assert (owner.stream.table, owner.stream.cursor) == (None, 0)
    owner.commit(1, 1)
    owner.commit(4, 2, 4)
    assert rows_of(world) == [event(1), event(2), event(4)]
    assert cursors_of(world) == [1, 4]
    assert owner.stream.cursor == Owner(world, kind, "b").stream.cursor == 4
    assert is_plain(DeltaTable(world.paths.table(KEY)))


@both
@pytest.mark.proves("G40")
def test_the_second_of_two_owners_adds_nothing(world: Any, kind: Kind) -> None:
    """Law L4: who does not know of the last commit adds nothing, be it a replay of it or newer, and learns of it."""
    first, second = Owner(world, kind), Owner(world, kind, "b")
    first.commit(2, 1, 2)
    with pytest.raises(TableConflict, match="the table is at seq 2 of generation 1, the rows were split from seq 0"):
        second.commit(2, 1, 2)
    first.commit(3, 3)
    for cursor, seqs in ((3, [3]), (5, [3, 5])):
        second.stream.cursor = 2
        with pytest.raises(TableConflict, match="cursor is 3, expected 2"):
            second.commit(cursor, *seqs)
        assert second.stream.cursor == 3
    second.commit(4, 4)
    assert seqs_of(world) == [1, 2, 3, 4]
    assert cursors_of(world) == [2, 3, 4]


@both
@pytest.mark.proves("G43")
def test_what_no_commit_has_named_is_not_in_the_table(world: Any, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws L5 and L9: a driver that dies between files and commit leaves files that are in no table, and no cursor."""
    owner = Owner(world, kind)
    owner.commit(1, 1)

    def dies(*_: Any, **__: Any) -> bool:
        raise Injected

    with monkeypatch.context() as patch:
        patch.setattr(delta_table, "publish_commit", dies)
        owner.holds = dies
        with pytest.raises(Injected):
            owner.commit(2, 2)
    owner.write([event(2)])
    next_owner = Owner(world, kind)
    assert next_owner.stream.cursor == 1
    assert not owner.staging.exists()
    next_owner.commit(2, 2)
    assert rows_of(world) == [event(1), event(2)]
    assert not list(owner.staging.rglob("*.parquet"))


@both
def test_columns_are_added_once_and_older_batches_still_fit(world: Any, kind: Kind) -> None:
    """Law L5: new columns and struct members come in one change; rows without them, older and newer, have nulls."""
    owner = Owner(world, kind)
    for seq, columns in enumerate([COLUMNS, WIDER, COLUMNS, WIDER], 1):
        owner.commit(seq, seq, columns=columns)
    lacking = {"level": None}
    narrow = [{**event(seq), "at": {"x": seq / 2, "y": None}, **lacking} for seq in (1, 3)]
    rows = read_by_all(world, duckdb_cannot=["at"])  # it does not merge the members of structs
    assert rows == [narrow[0], event(2, WIDER), narrow[1], event(4, WIDER)]
    changes = [actions for actions in log_of(world) if any("metaData" in action for action in actions)]
    assert len(changes) == 2
    assert len(log_of(world)) == 6


@both
def test_a_column_of_another_type_stops_only_its_game(world: Any, kind: Kind) -> None:
    """Law L6: what cannot be put into the table is told as a failure of this game, and nothing of it is there."""
    owner = Owner(world, kind)
    owner.commit(1, 1)
    other = pa.schema([("_seq", pa.int64()), ("name", pa.int64())])
    with pytest.raises((Refused, Transient, DeltaError)):
        owner.stream.commit([owner.write([{"_seq": 2, "name": 7}], other)], owner.stream.position, 2, other)
    assert Owner(world, kind).stream.cursor == 1
    assert seqs_of(world) == [1]


@both
def test_rows_that_were_all_refused_move_the_cursor_alone(world: Any, kind: Kind) -> None:
    """Law L4: the cursor passes what is in quarantine, with no file, also as the first commit of all."""
    owner = Owner(world, kind)
    owner.commit(3)
    assert (owner.stream.cursor, rows_of(world)) == (3, [])
    owner.commit(4, 4)
    owner.commit(9)
    assert Owner(world, kind).stream.cursor == 9
    assert seqs_of(world) == [4]
    assert DeltaTable(world.paths.table(KEY)).version() == 3


@pytest.mark.proves("G40")
def test_each_writer_goes_on_with_the_others_table(world: Any) -> None:
    """Law L10: one table, one cursor, whoever wrote last; switching is a setting."""
    kinds: list[Kind] = ["spark", "direct", "spark", "direct"]
    for seq, kind in enumerate(kinds, 1):
        owner = Owner(world, kind)
        assert owner.stream.cursor == seq - 1
        owner.commit(seq, seq)
    stale: list[Kind] = ["spark", "direct"]
    late = [Owner(world, kind, f"late-{kind}") for kind in stale]
    Owner(world, "direct").commit(5, 5)
    for owner in late:
        with pytest.raises(TableConflict):
            owner.commit(5, 5)
    assert [row["_seq"] for row in read_by_all(world)] == [1, 2, 3, 4, 5]
    assert cursors_of(world) == [1, 2, 3, 4, 5]
    assert is_plain(DeltaTable(world.paths.table(KEY)))


EVERYTHING = pa.schema(
    [
        ("_seq", pa.int64()),
        ("_pos", pa.int32()),
        ("flag", pa.bool_()),
        ("score", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("big", pa.decimal128(20, 0)),
        ("when", pa.timestamp("us", "UTC")),
        ("deep", pa.struct([("a", pa.int64()), ("b", pa.struct([("big", pa.decimal128(20, 0))]))])),
        ("list", pa.list_(pa.field("element", pa.int64()))),
        ("spots", pa.list_(pa.field("element", pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))])))),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("times", pa.map_(pa.int64(), pa.struct([("when", pa.timestamp("us", "UTC"))]))),
    ]
)
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
VALUES: list[dict[str, Any]] = [
    dict.fromkeys(EVERYTHING.names),
    {
        "_pos": 2**31 - 1,
        "flag": True,
        "score": 0.1,
        "text": "čaj \N{TEACUP WITHOUT HANDLE}",
        "raw": b"\x00\xff",
        "big": Decimal(2**64 - 1),
        "when": LAST,
        "deep": {"a": -(2**63), "b": {"big": Decimal(2**63)}},
        "list": [1, 2**63 - 1, None],
        "spots": [{"x": float("inf"), "tags": ["a", ""]}, None, {"x": None, "tags": []}],
        "counts": [("", 0), ("k", None)],
        "times": [(-1, {"when": FIRST}), (7, None)],
    },
    {
        "_pos": 0,
        "flag": False,
        "score": -5e-324,
        "text": "",
        "raw": b"",
        "big": Decimal(0),
        "when": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "deep": {"a": None, "b": {"big": None}},
        "list": [],
        "spots": [],
        "counts": [],
        "times": [],
    },
]


@both
@pytest.mark.proves("G42")
def test_every_reader_reads_back_what_was_written(world: Any, kind: Kind) -> None:
    """Law L10: of every type a payload becomes, to its limits, Spark, delta-rs and DuckDB read what the task wrote."""
    owner = Owner(world, kind)
    written = [{**row, "_seq": seq} for seq, row in enumerate(VALUES)]
    owner.stream.commit([owner.write(written, EVERYTHING)], owner.stream.position, 3, EVERYTHING)
    assert read_by_all(world) == written


@both
def test_a_table_that_is_not_plain_is_written_all_the_same(world: Any, kind: Kind) -> None:
    """Law L10: where somebody gave a table a feature, each writer goes on through a library that knows the feature."""
    owner = Owner(world, kind)
    owner.commit(1, 1)
    world.spark.sql(f"ALTER TABLE delta.`{owner.stream.path}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    assert not is_plain(DeltaTable(owner.stream.path))
    owner.commit(2, 2)
    assert Owner(world, kind).stream.cursor == 2
    assert seqs_of(world) == [1, 2]


def test_a_feature_that_only_spark_knows_is_named_and_spark_goes_on(world: Any) -> None:
    """Law L10: the direct writer adds nothing to such a table and names the feature; the spark writer does not mind."""
    direct, spark = Owner(world, "direct"), Owner(world, "spark", "b")
    direct.commit(1, 1)
    path = direct.stream.path
    world.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableInCommitTimestamps = true)")
    with pytest.raises(DeltaError, match="InCommitTimestamp"):
        direct.commit(2, 2)
    spark.stream.open()
    spark.commit(2, 2)
    assert seqs_of(world) == [1, 2]
    assert Owner(world, "direct").stream.cursor == 2


# What holds for the `spark` writer only, because Spark compares no cursor.


@pytest.mark.proves("G41")
def test_without_the_lease_nothing_is_written(world: Any) -> None:
    """Law L10: the writer checks the lease right before the write; a driver that lost it gets a conflict."""
    owner = Owner(world, "spark")
    owner.commit(1, 1)
    owner.holds = lambda: False
    with pytest.raises(TableConflict, match="does not hold"):
        owner.commit(2, 2)
    assert cursors_of(world) == [1]


def test_an_owner_that_commits_the_same_between_look_and_write_is_not_doubled(world: Any) -> None:
    """Laws L4 and L10: Spark skips a version that is not above the table's, though our look was before it."""
    owner, rival = Owner(world, "spark"), Owner(world, "direct", "b")
    owner.commit(1, 1)
    rival.stream.open()
    owner.holds = _while(rival.commit, 2, 2)
    owner.commit(2, 2)
    assert seqs_of(world) == [1, 2]
    assert cursors_of(world) == [1, 2]


@pytest.mark.proves("G41")
def test_an_owner_that_commits_while_spark_writes_is_found_by_spark(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws L4 and L10: from the moment Spark has begun, another move of the same cursor makes its commit fail."""
    owner = Owner(world, "spark")
    owner.commit(1, 1)
    staged, path = SparkTable._staged, world.paths.table(KEY)

    def disturbed(self: SparkTable, files: Any) -> DataFrame:
        rows = staged(self, files)
        return rows.mapInPandas(partial(_overtake, path, owner.stream.app_id), rows.schema)

    monkeypatch.setattr(SparkTable, "_staged", disturbed)
    with pytest.raises(TableConflict, match="cursor is 2, expected 1"):
        owner.commit(3, 2, 3)
    assert owner.stream.cursor == 2
    assert seqs_of(world) == [1]
    assert cursors_of(world) == [1, 2]


def _overtake(path: Path, app_id: str, batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    table = CursorTable.open(located(path), app_id)
    assert table is not None
    if table.cursor == 1:
        table.commit([], 1, 2)
    yield from batches


@pytest.mark.proves("G41")
def test_what_only_the_lease_prevents_is_told(world: Any) -> None:
    """Law L10: a second owner that wrote less between look and write, against its lease, doubles rows: not silently."""
    owner, rival = Owner(world, "spark"), Owner(world, "direct", "b")
    owner.commit(1, 1)
    rival.stream.open()
    owner.holds = _while(rival.commit, 2, 2)
    with pytest.raises(Refused, match=r"cursor to 2 .* from 1 to 3, so rows may be in the table twice"):
        owner.commit(3, 2, 3)
    assert seqs_of(world) == [1, 2, 2, 3]


def test_a_table_is_opened_in_a_thread_that_has_no_session(world: Any) -> None:
    """Law L10: a driver opens its tables in threads of its own, and Delta asks the thread for a session.

    Usually it has read the checkpoint ahead and does not ask; on a busy machine it has not.
    """
    direct = Owner(world, "direct")
    for seq in range(1, 5):  # every third commit writes a checkpoint
        direct.commit(seq, seq)
    writer, app_id = Owner(world, "spark").writer, stream_app_id("local", KEY, 1)
    world.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def open_alone() -> int | None:
        world.spark._jvm.org.apache.spark.sql.classic.SparkSession.clearActiveSession()
        table = writer.open(world.paths.table(KEY), app_id)
        return None if table is None else table.cursor

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(open_alone).result() == 4


@pytest.mark.long
@pytest.mark.proves("G40")
def test_a_whole_life_under_the_spark_writer(world: Any) -> None:
    """Law L10: passes, rebuild, replay, maintenance and verify know no difference, and `direct` goes on afterwards."""
    live(world, "spark", versions=2)
    register_late(world)
    known = {**known_games(world.engine), str(game_key(LATE)): LATE}
    name = min(name for key, name in known.items() if world.paths.table(key).is_folder())
    schemas = LocalRegistry(world.engine).snapshot
    assert rebuild(world.paths, "local", world.engine, schemas, Game(game_key(name), name)).generation == 2
    replayed = replay_all(world.paths, "local", schemas, known, Selection(), dry_run=False)
    assert sum(each.done.landed for each in replayed) > 0
    live(world, "spark", versions=3)
    live(world, "direct", versions=4)
    tidy = replace(world.settings, maintenance=Maintenance(small_files=2))
    reports = run.one_round(tidy, world.paths, time.time(), thorough=True).tables
    assert [report.error for report in reports if report.error] == []
    assert sum(report.files_merged for report in reports if report.table.startswith("tables/")) > 0
    assert world.verify().complete


def live(world: Any, kind: Kind, versions: int) -> None:
    """Let events come, be split by a driver with this writer, and be counted."""
    world.settings = replace(world.settings, demux=replace(world.settings.demux, writer=kind))
    world.simulate(400, games=2, versions=versions, bad_share=0.3)
    world.ingest()
    group = world.group("a")
    world.split(group)
    group.stop()
    assert {stream.error for stream in group.streams.values()} == {None}
    assert world.verify().complete
    assert not list((world.paths.checkpoints / "demux" / "a").rglob("staging/*/*.parquet"))

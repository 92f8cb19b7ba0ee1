import dataclasses
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from listeners import history
from listeners.join import Pass
from listeners.metrics_table import MetricsTables
from listeners.sample import (
    LATENCY_EDGES_SECONDS,
    GameResult,
    GroupSample,
    IngestMinute,
    Lane,
    PassResult,
    ProcessMinute,
    StatusEvent,
    StreamMinute,
)
from listeners.totals import ProcessSample, SelfCounts
from pipeline.base.names import bronze_app_id
from pipeline.data.maintenance import compact, rewrite
from pipeline.data.maintenance.readers import Reader, passed_seq, readers
from pipeline.data.maintenance.report import TableReport
from pipeline.data.maintenance.rewrite import sorted_by_game
from pipeline.lake.delta import log as delta_log
from pipeline.lake.delta import rewrite as delta_rewrite
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.rewrite import RewriteConflict, replace_files, table_files
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Paths
from tests.tables.maintenance_world import (
    APP,
    CHESS,
    DAY,
    GO,
    LUDO,
    ROWS,
    SETTINGS,
    WANTED,
    bronze_rows,
    bronze_table,
    checkpoint_of,
    content,
    game_rows,
    game_table,
    live,
    maintain,
    quarantine_rows,
)


def test_a_merge_goes_behind_what_others_appended(tmp_path: Path) -> None:
    """Rows appended between the reading and the commit of a merge stay, and no cursor moves."""
    table = game_table(tmp_path / "t", 4)
    old = table_files(DeltaTable(tmp_path / "t"))
    new = [write_file(game_rows(1, 2, 3, 4), located(tmp_path / "t"), ["_seq"])]
    table.commit([write_file(game_rows(5), located(tmp_path / "t"))], 4, 5)
    replace_files(located(tmp_path / "t"), old, new, "OPTIMIZE")
    assert [row["_seq"] for row in content(tmp_path / "t")] == [1, 2, 3, 4, 5]
    assert DeltaTable(tmp_path / "t").transaction_version(APP) == 5


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
@pytest.mark.proves("G140")
def test_a_merge_of_files_that_left_the_table_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A rebuild or another merge that took a file away wins; the late commit adds and removes nothing."""
    path = tmp_path / "t"
    game_table(path, 4)
    old = table_files(DeltaTable(path))
    new = [write_file(game_rows(1, 2, 3, 4), located(path), ["_seq"])]

    def rebuild() -> None:
        write_deltalake(path, game_rows(1, 2), mode="overwrite")

    if moment == "before":
        rebuild()
    else:
        publish = delta_log.publish_commit

        def slow(*given: Any) -> bool:
            monkeypatch.setattr(delta_rewrite, "publish_commit", publish)
            rebuild()
            return publish(*given)

        monkeypatch.setattr(delta_rewrite, "publish_commit", slow)
    with pytest.raises(RewriteConflict):
        replace_files(located(path), old, new, "OPTIMIZE")
    assert [row["_seq"] for row in content(path)] == [1, 2]


@pytest.mark.proves("G138")
def test_two_merges_of_the_same_files_do_not_double_them(tmp_path: Path) -> None:
    """Correctness needs no lock: of two maintainers that merge the same files one gives up and cleans up."""
    game_table(tmp_path / "t", 4)
    old = table_files(DeltaTable(tmp_path / "t"))
    for _ in range(2):
        report = TableReport("t")
        new = [write_file(game_rows(1, 2, 3, 4), located(tmp_path / "t"), ["_seq"])]
        compact._commit(located(tmp_path / "t"), ROWS, old, new, report)
    assert report.notes
    assert report.files_merged == 0
    assert not (tmp_path / "t" / new[0].path).exists()
    assert [row["_seq"] for row in content(tmp_path / "t")] == [1, 2, 3, 4]


def test_a_merge_that_would_lose_rows_is_refused(tmp_path: Path) -> None:
    """Rows are counted before the commit; files that hold fewer never take another's place."""
    game_table(tmp_path / "t", 4)
    old = table_files(DeltaTable(tmp_path / "t"))
    new = [write_file(game_rows(1, 2, 3), located(tmp_path / "t"), ["_seq"])]
    with pytest.raises(RuntimeError, match="would lose 1 rows"):
        compact._commit(located(tmp_path / "t"), ROWS, old, new, TableReport("t"))
    assert [row["_seq"] for row in content(tmp_path / "t")] == [1, 2, 3, 4]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "delta-rs"])
@pytest.mark.proves("G138")
def test_an_open_table_goes_on_over_a_merge(tmp_path: Path, plain: bool) -> None:
    """Law L4: a driver that holds the table open commits on after a round, and its rivals still find a conflict."""
    paths = Paths(tmp_path)
    path = paths.table(CHESS)
    table = game_table(Path(path), 6, plain=plain)
    maintain(paths)
    assert len(live(Path(path))) == 1
    for seq in range(7, 10):
        table.commit([write_file(game_rows(seq), path, ["_seq"])], seq - 1, seq)
    assert list(range(1, 10)) == [row["_seq"] for row in content(Path(path))]
    assert DeltaTable(path).transaction_version(APP) == 9


def test_a_games_files_become_one_sorted_file_and_older_columns_stay_null(tmp_path: Path) -> None:
    """Merging changes no value, also where an older file lacks a column or a struct's member."""
    paths = Paths(tmp_path)
    path = paths.table(CHESS)
    table = game_table(Path(path), 3)
    inner = pa.struct([("a", pa.int64())])
    wide = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    for seq, kind, value in ((4, inner, {"a": 1}), (5, wide, {"a": 2, "b": ["x", None]})):
        target = pa.schema([*ROWS, pa.field("s", kind), pa.field("m", pa.map_(pa.string(), pa.int64()))])
        table.add_missing_columns(target)
        extra = {"s": pa.array([value], kind), "m": pa.array([[("k", seq)]], target.field("m").type)}
        rows = pa.table({**{name: game_rows(seq).column(name) for name in ROWS.names}, **extra}, schema=target)
        table.commit([write_file(rows, path, ["_seq"])], seq - 1, seq)
    before, newest_ms = content(Path(path)), max(each.modified_ms for each in table_files(DeltaTable(path)))
    maintain(paths)
    (merged,) = table_files(DeltaTable(path))
    assert merged.modified_ms == newest_ms  # it stays among its neighbours, which are ordered by age
    assert (merged.low["_seq"], merged.high["_seq"], merged.rows) == (1, 5, 5)
    assert pq.read_table(path / merged.path).column("_seq").to_pylist() == [1, 2, 3, 4, 5]
    assert before == content(Path(path))


@pytest.mark.proves("G141")
def test_sorted_bronze_keeps_each_row_and_each_pair_in_one_file(tmp_path: Path) -> None:
    """Laws L1 and L2: sorted bronze has the same rows, one file per (game, seq), and statistics to skip by."""
    paths = Paths(tmp_path)
    bronze_table(Path(paths.bronze), 40)
    before = content(Path(paths.bronze))
    tiny = dataclasses.replace(SETTINGS, maintenance=dataclasses.replace(WANTED, file_megabytes=0))
    maintain(paths, settings=tiny)
    assert before == content(Path(paths.bronze))
    assert DeltaTable(paths.bronze).transaction_version(bronze_app_id("test")) == 40
    files = table_files(DeltaTable(paths.bronze))
    assert all({"seq", "game_key"} <= each.low.keys() & each.high.keys() for each in files)
    homes: dict[tuple[str, int], set[str]] = {}
    for each in files:
        rows = pq.read_table(paths.bronze / each.path).select(["game_key", "seq", "pos"])
        assert rows.equals(rows.sort_by([(name, "ascending") for name in rows.column_names]))
        keys = rows.column("game_key").to_pylist()
        assert (each.low["game_key"], each.high["game_key"]) == (min(keys), max(keys))
        for pair in zip(keys, rows.column("seq").to_pylist(), strict=True):
            homes.setdefault(pair, set()).add(each.path)
    assert len(homes) == 120
    assert all(len(home) == 1 for home in homes.values())


def test_sorted_files_are_ranges_of_games_and_a_large_game_is_cut_between_seqs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of one game opens few files: each holds a range of games, and only a large game spans several."""
    monkeypatch.setattr("pipeline.data.maintenance.rewrite.ROW_GROUP_ROWS", 64)
    paths = Paths(tmp_path)
    table = CursorTable.create(paths.bronze, BRONZE, bronze_app_id("test"))
    for seq in range(1, 9):
        rows = pa.concat_tables([bronze_rows(seq, seq - 1, (CHESS, GO), 5), bronze_rows(seq, seq - 1, (LUDO,), 300)])
        table.commit([write_file(rows, paths.bronze, ["seq", "game_key"])], seq - 1 or None, seq)
    old = table_files(DeltaTable(paths.bronze))
    new = sorted_by_game(paths.bronze, BRONZE, old, 4_000)
    stats = [json.loads(each.stats) for each in new]
    assert sum(each.rows for each in new) == 8 * 310
    assert [{LUDO}] * 3 == [{each["minValues"]["game_key"], each["maxValues"]["game_key"]} for each in stats[-3:]]
    spans = [(each["minValues"]["seq"], each["maxValues"]["seq"]) for each in stats[-3:]]
    assert all(first[1] < second[0] for first, second in pairwise(spans))


def test_young_bronze_and_what_a_reader_still_needs_stay(tmp_path: Path) -> None:
    """The newest commits are streaming readers' business: only what is old and passed by all is sorted."""
    paths = Paths(tmp_path)
    bronze_table(Path(paths.bronze), 12)
    untouched = live(Path(paths.bronze))
    old = dataclasses.replace(SETTINGS, maintenance=dataclasses.replace(WANTED, bronze_age_minutes=60.0))
    maintain(paths, settings=old)
    assert untouched == live(Path(paths.bronze))
    checkpoint_of(paths, DeltaTable(paths.bronze).metadata().id, next_version=7)
    maintain(paths)
    kept = live(Path(paths.bronze))
    assert len(kept & untouched) == 2 * 6
    assert {each.high["seq"] for each in table_files(DeltaTable(paths.bronze)) if each.path not in untouched} == {6}


def test_a_lost_reader_is_told_of_and_not_waited_for(tmp_path: Path) -> None:
    """A reader that stands behind what the log keeps cannot go on: it must not stop maintenance for ever."""
    paths = Paths(tmp_path)
    bronze_table(Path(paths.bronze), 12)
    checkpoint_of(paths, DeltaTable(paths.bronze).metadata().id, next_version=7)
    reader = Reader("demux/a/query", 7, 0.0)
    assert passed_seq(paths.bronze, bronze_app_id("test"), 12, reader) == 6
    entry = paths.bronze / "_delta_log" / f"{7:020}.json"
    Path(entry).rename(tmp_path / "kept")
    assert passed_seq(paths.bronze, bronze_app_id("test"), 12, reader) is None
    (tmp_path / "kept").rename(entry)
    done = maintain(paths, after=31 * DAY)
    assert any("does not wait for" in note for report in done.tables for note in report.notes)
    assert len(live(Path(paths.bronze))) == 1


def test_a_reader_stands_where_its_last_ended_micro_batch_ended(tmp_path: Path) -> None:
    """After a restart Spark repeats a micro-batch that has not ended, so its files are still needed."""
    paths = Paths(tmp_path)
    query = checkpoint_of(paths, "bronze", next_version=7, batches=2)
    assert [(each.name, each.next_version) for each in readers(paths.checkpoints, "bronze")] == [("demux/a/query", 7)]
    assert readers(paths.checkpoints, "another table") == []
    (query / "commits" / "0").unlink()
    assert [each.next_version for each in readers(paths.checkpoints, "bronze")] == [None]
    assert passed_seq(paths.bronze, "app", 12, Reader("a", None, 0.0)) == 0


@pytest.mark.parametrize("thorough", [True, False])
def test_quarantine_keeps_the_first_copy_of_each_row(tmp_path: Path, thorough: bool) -> None:
    """Law L5: quarantine is a set by (game_key, seq, pos); merging leaves one copy, the one first seen."""
    paths = Paths(tmp_path)
    table = CursorTable.create(paths.quarantine, QUARANTINE, "turnout/test/quarantine/a", checkpoint_interval=1000)
    chess, go = (CHESS, 1, 0), (GO, 1, 1)
    for commit in [[(*chess, 5.0), (*go, 5.0)], [(*chess, 3.0)], [(CHESS, 2, 0, 6.0)], [(*chess, 9.0)]]:
        table.append([write_file(quarantine_rows(*commit), paths.quarantine, ["seq", "game_key"])])
    done = maintain(paths, thorough=thorough)
    assert [report.rows_removed for report in done.tables] == [2]
    rows = {(row["game_key"], row["seq"], row["pos"]): row for row in content(Path(paths.quarantine))}
    assert {chess, go, (CHESS, 2, 0)} == rows.keys()
    assert len(content(Path(paths.quarantine))) == 3
    assert rows[chess]["quarantined_at"].timestamp() == 3.0


def test_a_copy_among_large_files_is_found_by_a_thorough_round_only(tmp_path: Path) -> None:
    """Two files are too few to be merged for their size, but a copy in them goes all the same, once a day."""
    paths = Paths(tmp_path)
    table = CursorTable.create(paths.quarantine, QUARANTINE, "turnout/test/quarantine/a")
    for _ in range(2):
        table.append([write_file(quarantine_rows((CHESS, 1, 0, 5.0)), paths.quarantine, ["seq", "game_key"])])
    maintain(paths, thorough=False)
    assert len(content(Path(paths.quarantine))) == 2
    maintain(paths)
    assert len(content(Path(paths.quarantine))) == 1


def test_the_table_wins_over_its_twin_in_quarantine(tmp_path: Path) -> None:
    """Law L5: a row that is in its game's table leaves quarantine."""
    paths = Paths(tmp_path)
    game_table(Path(paths.table(CHESS)), 3)
    table = CursorTable.create(paths.quarantine, QUARANTINE, "turnout/test/quarantine/a")
    rows = quarantine_rows((CHESS, 2, 0, 5.0), (CHESS, 2, 1, 5.0), (GO, 2, 0, 5.0))
    table.append([write_file(rows, paths.quarantine, ["seq", "game_key"])])
    maintain(paths)
    assert [(row["game_key"], row["seq"], row["pos"]) for row in content(Path(paths.quarantine))] == [
        (CHESS, 2, 1),
        (GO, 2, 0),
    ]
    assert DeltaTable(paths.table(CHESS)).transaction_version(APP) == 3


def test_a_metrics_table_is_merged_within_its_days(tmp_path: Path) -> None:
    """Partitions stay what they are: rows of one day in the files of that day, and every value as it was."""
    paths = Paths(tmp_path)
    path = paths.metrics / "group_sample"
    for at in range(8):
        day = pa.array([at % 2], pa.int32()).cast(pa.date32())
        write_deltalake(
            str(path),
            pa.table({"event_date": day, "cluster_group": [f"g{at}"]}),
            mode="append",
            partition_by=["event_date"],
        )
    before = sorted(map(str, content(Path(path))))
    maintain(paths)
    assert before == sorted(map(str, content(Path(path))))
    assert {"event_date=1970-01-01", "event_date=1970-01-02"} == {str(Path(each).parent) for each in live(Path(path))}
    assert len(live(Path(path))) == 2


def test_the_dashboard_reads_the_same_from_merged_metrics(tmp_path: Path) -> None:
    """The dashboard's history of passes and status changes is the same before and after a round."""
    paths = Paths(tmp_path)
    writer = MetricsTables(paths.metrics, "a")
    buckets = (5, *[0] * len(LATENCY_EDGES_SECONDS))
    for at in range(6):
        now = at * DAY / 2 + 1.0
        result = GameResult(CHESS, Lane.RUN, at, at, 5, {"malformed_payload": 1}, 1, 9, now, 0.1, buckets)
        writer.add(Pass(PassResult("a", "run", at, now, now + 1, at, (result,), {}), None))
        writer.add(StatusEvent(CHESS, "a", now, None, "RUNNING", None))
        assert writer.flush()
    read: tuple[Callable[[], object], ...] = (
        lambda: history.passes(paths.metrics, CHESS, 0.0).to_pylist(),
        lambda: history.summary(paths.metrics, 0.0),
        lambda: history.transitions(paths.metrics, 0.0, 100).to_pylist(),
    )
    before = [each() for each in read]
    wanted = dataclasses.replace(SETTINGS, maintenance=dataclasses.replace(WANTED, small_files=2))
    done = maintain(paths, settings=wanted)
    assert [report.files_merged for report in done.tables] == [6, 6]
    assert before == [each() for each in read]


def test_minutes_and_samples_of_processes_expire_by_whole_days_and_no_others(tmp_path: Path) -> None:
    """These tables keep the days of the setting; the dashboard reads the kept ones as before, from merged files."""
    paths, today = Paths(tmp_path), time.time() // DAY * DAY
    writer = MetricsTables(paths.metrics, "a")
    wanted = dataclasses.replace(SETTINGS, maintenance=dataclasses.replace(WANTED, small_files=2, series_days=2))
    for days in (4, 3, 2, 1, 0):
        for minute in (0, 60):
            at = today - days * DAY + minute
            writer.add(StreamMinute(at, CHESS, "a", 1, 0, 0, 1, (), None, None))
            writer.add(IngestMinute(at, 1, 0, 1))
            writer.add(ProcessMinute(at, "group", "a", 1.0, 60.0, is_whole=True))
            assert writer.flush()
        writer.add(GroupSample("a", today - days * DAY, 1, 1, 0, None))
        writer.add(ProcessSample("group", "a", "p", today - days * DAY, None, None, {}, SelfCounts()))
    assert writer.flush()
    maintain(paths, after=today - time.time(), settings=wanted)
    for name in ("stream_minute", "ingest_minute", "process_minute"):
        kept = content(Path(paths.metrics / name))
        assert [today + at for at in (-2 * DAY, 60 - 2 * DAY, -DAY, 60 - DAY, 0, 60)] == sorted(
            row["minute"].timestamp() for row in kept
        )
        assert len(live(Path(paths.metrics / name))) == 3
    assert len(content(Path(paths.metrics / "group_sample"))) == 5
    assert len(content(Path(paths.metrics / "process_sample"))) == 3
    again = maintain(paths, after=today - time.time(), settings=wanted)
    assert [report.rows_removed for report in again.tables if report.rows_removed] == []


def rows_of_all_kinds(numbers: list[int | None]) -> pa.Table:
    zone = pa.timestamp("us", "UTC")
    long = [None if number is None else "x" * 40 + str(number) for number in numbers]
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "text": pa.array([None if number is None else f"é{number}" for number in numbers], pa.string()),
            "long": pa.array(long, pa.string()),
            "at": pa.array([None if number is None else number * 1_000_001 for number in numbers], zone),
            "day": pa.array(numbers, pa.int32()).cast(pa.date32()),
            "share": pa.array([None if number is None else number / 3 for number in numbers], pa.float64()),
            "sum": pa.array([None if number is None else number for number in numbers], pa.decimal128(20, 2)),
            "yes": pa.array([None if number is None else number % 2 == 0 for number in numbers], pa.bool_()),
        }
    )


@pytest.mark.parametrize("numbers", [[[1, None], [-5, 9], [None]], [[None], [None, None], [None]]])
def test_filters_find_the_same_rows_after_a_merge(tmp_path: Path, numbers: list[list[int | None]]) -> None:
    """delta-rs leaves out a file that tells nothing of a column when another one does: merged files tell as much."""
    path = tmp_path / "t"
    for part in numbers:
        write_deltalake(path, rows_of_all_kinds(part), mode="append")
    compact.merge_by_age(located(path), DeltaTable(path), (), WANTED, TableReport("t"))
    write_deltalake(path, rows_of_all_kinds([4, None]), mode="append")
    every = rows_of_all_kinds([number for part in [*numbers, [4, None]] for number in part])
    dataset = DeltaTable(path).to_pyarrow_dataset()
    assert len(live(path)) == 2
    for name in every.column_names:
        assert dataset.to_table(filter=pc.field(name).is_null()).num_rows == every.column(name).null_count
        for value in every.column(name).drop_null().unique():
            for wanted in (pc.field(name) == value, pc.field(name) <= value, pc.field(name) >= value):
                assert dataset.to_table(filter=wanted).num_rows == every.filter(wanted).num_rows, (name, value)


def test_a_run_of_a_game_is_bounded_by_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated texts take a hundred times their file's bytes in memory: what is packed is counted in values."""
    monkeypatch.setattr(compact, "_MAX_VALUES", 4 * len(ROWS))
    taken: list[int] = []
    real = rewrite.packed

    def counted(path: Path, columns: pa.Schema, old: Any, *rest: Any) -> Any:
        taken.append(rewrite.opened(located(path), columns, old).count_rows())
        return real(located(path), columns, old, *rest)

    monkeypatch.setattr(compact, "packed", counted)
    path = Paths(tmp_path).table(CHESS)
    game_table(Path(path), 12)
    before = content(Path(path))
    for _ in range(2):
        maintain(Paths(tmp_path))
    assert taken == [4, 4, 4]
    assert [file.rows for file in table_files(DeltaTable(path))] == [4, 4, 4]
    assert content(Path(path)) == before


def test_a_run_that_is_too_large_once_decoded_is_packed_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long texts may be few values and many bytes: each half of such a run is packed alone, and no row is lost."""
    path = Paths(tmp_path).table(CHESS)
    table = CursorTable.create(path, ROWS, APP)
    for seq in range(1, 9):
        rows = game_rows(*[seq] * 100).set_column(2, "name", pa.array(["x" * 1000] * 100))
        table.commit([write_file(rows, path, ["_seq"])], table.cursor, seq)
    before = content(Path(path))
    monkeypatch.setattr(rewrite, "_PACKED_BYTES", 250_000)
    report = TableReport("t")
    compact.merge_by_age(path, DeltaTable(path), compact.GAME, WANTED, report)
    assert [file.rows for file in table_files(DeltaTable(path))] == [200] * 4
    assert (report.files_merged, report.notes, content(Path(path))) == (8, [], before)
    monkeypatch.setattr(rewrite, "_PACKED_BYTES", 1000)
    compact.merge_by_age(path, DeltaTable(path), compact.GAME, WANTED, report)
    assert (report.files_merged, content(Path(path))) == (8, before)
    assert report.notes == ["2 files stay as they are: their rows are too large to merge"] * 2


def test_bronze_with_large_rows_is_merged_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that do not fit into the sort together stopped all maintenance of bronze; smaller runs of them fit."""
    monkeypatch.setattr(rewrite, "_MEMORY_LIMIT", "100MB")
    table = CursorTable.create(located(tmp_path / "b"), BRONZE, APP)
    for seq in range(1, 33):
        rows = [{"game_key": str(CHESS), "seq": seq, "pos": pos, "raw": b"x" * 20_000} for pos in range(250)]
        file = write_file(pa.Table.from_pylist(rows, schema=BRONZE), table.path, ["seq", "game_key"], "zstd")
        table.commit([file], table.cursor, seq)
    report, wanted = TableReport("bronze"), dataclasses.replace(WANTED, bronze_commits=2)
    compact.merge_bronze(table.path, DeltaTable(table.path), 99, 1e15, wanted, report)
    merged = DeltaTable(table.path)
    assert report.files_merged == 32
    assert 1 < len(merged.file_uris()) < 16
    assert merged.to_pyarrow_table(columns=["seq"]).num_rows == 32 * 250
    assert {file.name for file in Path(table.path).glob("*.parquet")} >= {Path(uri).name for uri in merged.file_uris()}

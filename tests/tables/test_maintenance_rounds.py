import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipeline.data.maintenance import plan, retain, run
from pipeline.data.maintenance.compact import GAME, merge_by_age
from pipeline.data.maintenance.report import TableReport, as_json, render_round
from pipeline.lake.delta.checkpoint import write_checkpoint
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.rewrite import table_files
from pipeline.lake.storage.places import located
from pipeline.settings.maintenance import Maintenance
from pipeline.settings.tree import Paths, Settings
from tests.tables.maintenance_world import (
    APP,
    CHESS,
    DAY,
    GO,
    LATER,
    SETTINGS,
    WANTED,
    content,
    contents,
    full_world,
    game_rows,
    game_table,
    live,
    maintain,
    on_disk,
)


def test_merged_files_stay_for_the_retention_and_then_go(tmp_path: Path) -> None:
    """Readers of the version before a merge have a week; then the files go, and none that the table has."""
    paths = Paths(tmp_path)
    game_table(Path(paths.table(CHESS)), 5)
    maintain(paths)
    maintain(paths, after=6 * DAY)
    assert len(on_disk(Path(paths.table(CHESS)))) == 6
    done = maintain(paths, after=LATER)
    assert live(Path(paths.table(CHESS))) == on_disk(Path(paths.table(CHESS)))
    assert [report.files_deleted for report in done.tables] == [5]
    assert len(content(Path(paths.table(CHESS)))) == 5


@pytest.mark.proves("G142")
def test_a_file_whose_removal_is_young_stays_however_old_it_is(tmp_path: Path) -> None:
    """The time at which a file left the table counts: a year-old file that was merged just now is still being read."""
    paths = Paths(tmp_path)
    game_table(Path(paths.table(CHESS)), 5)
    for name in on_disk(Path(paths.table(CHESS))):
        os.utime(paths.table(CHESS) / name, (1.0, 1.0))
    maintain(paths)
    assert len(on_disk(Path(paths.table(CHESS)))) == 6
    DeltaTable(paths.table(CHESS)).create_checkpoint()
    maintain(paths)
    assert len(on_disk(Path(paths.table(CHESS)))) == 6


@pytest.mark.proves("G142")
def test_a_file_on_its_way_into_a_table_is_not_deleted(tmp_path: Path) -> None:
    """A task writes its file before the driver commits it; only what is older than the retention is an orphan."""
    paths = Paths(tmp_path)
    table = game_table(Path(paths.table(CHESS)), 1)
    coming = write_file(game_rows(2), paths.table(CHESS), ["_seq"])
    killed = write_file(game_rows(2), paths.table(CHESS), ["_seq"])
    os.utime(paths.table(CHESS) / killed.path, (1.0, 1.0))
    maintain(paths)
    table.commit([coming], 1, 2)
    assert [row["_seq"] for row in content(Path(paths.table(CHESS)))] == [1, 2]
    assert killed.path not in on_disk(Path(paths.table(CHESS)))


@pytest.mark.proves("G142")
def test_files_of_which_the_log_does_not_tell_when_they_left_are_kept_as_if_they_left_now(tmp_path: Path) -> None:
    """Unknown is not long ago: where the log has a gap, every file outside the table has the whole retention yet."""
    path = tmp_path / "t"
    table = game_table(path, 3)
    orphan = write_file(game_rows(9), located(path))
    os.utime(path / orphan.path, (1.0, 1.0))
    write_checkpoint(located(path), table.version)
    (path / "_delta_log" / f"{1:020}.json").unlink()
    report = TableReport("t")
    retain.clean_files(located(path), time.time(), DAY, report)
    assert (report.files_deleted, len(report.notes)) == (0, 1)
    retain.clean_files(located(path), time.time() + 0.9 * DAY, DAY, report)
    assert (report.files_deleted, len(report.notes)) == (0, 1)
    retain.clean_files(located(path), time.time() + 1.1 * DAY, DAY, report)
    assert report.files_deleted == 1
    assert len(content(path)) == 3


@pytest.mark.proves("G142")
def test_when_a_file_left_is_known_when_no_log_tells_it_any_more(tmp_path: Path) -> None:
    """No checkpoint names what was merged more than an hour ago: the file itself has the time at which it left."""
    path = tmp_path / "t"
    table = game_table(path, 5)
    for name in on_disk(path):
        os.utime(path / name, (1.0, 1.0))
    DeltaTable(path).delete("_seq = 3")  # by a hand that marks nothing
    began = time.time()
    old = table_files(DeltaTable(path))
    merge_by_age(located(path), DeltaTable(path), GAME, WANTED, TableReport("t"))
    assert all((path / file.path).stat().st_mtime >= began - 1 for file in old)
    retain.clean_files(located(path), time.time(), DAY, TableReport("t"))
    write_checkpoint(located(path), DeltaTable(path).version(), time.time() + 8 * DAY)
    table.refresh()
    for version in range(table.version):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    assert DeltaTable(path).transaction_version(APP) == 5
    report = TableReport("t")
    retain.clean_files(located(path), time.time() + 0.9 * DAY, DAY, report)
    assert (report.files_deleted, report.notes) == (0, [])
    retain.clean_files(located(path), time.time() + 1.1 * DAY, DAY, report)
    assert report.files_deleted == 5
    assert [row["_seq"] for row in content(path)] == [1, 2, 4, 5]


@pytest.mark.proves("G144")
def test_a_log_is_readable_after_each_step_of_being_cut(tmp_path: Path) -> None:
    """Killed anywhere, cleanup leaves a log without a hole above its oldest checkpoint, and time travel to there."""
    path = tmp_path / "t"
    table = game_table(path, 4)
    write_checkpoint(located(path), table.version)
    for seq in range(5, 12):
        table.commit([write_file(game_rows(seq), located(path), ["_seq"])], seq - 1, seq)
    write_checkpoint(located(path), 8)
    (path / "_delta_log" / "_commit_0.json.tmp").touch()
    entries = {entry.name: plan.LogFile(0, 1) for entry in (path / "_delta_log").iterdir()}
    keep = plan.first_kept(entries, plan.LogWindow(0, 1, 1), 8)
    assert keep == 8
    doomed = plan.expendable_log(entries, keep, 1)
    assert len(doomed) == 10
    for name in doomed:
        (path / "_delta_log" / name).unlink()
        assert DeltaTable(path).transaction_version(APP) == 11
        assert len(content(path)) == 11
        assert [len(DeltaTable(path, version=at).file_uris()) for at in (8, 9, 11)] == [8, 9, 11]
        table.refresh()
        assert table.cursor == 11


@pytest.mark.proves("G146")
def test_a_log_that_is_too_large_is_cut_though_it_is_young(tmp_path: Path) -> None:
    """A log's size is bounded at any rate of commits; versions of the last hour always stay."""
    paths = Paths(tmp_path)
    path = paths.table(CHESS)
    table = game_table(Path(path), 1)
    for seq in range(2, 32):
        table.commit([write_file(game_rows(seq), path, ["_seq"])], seq - 1, seq, note={"turnout": "x" * 40_000})
    small = Settings(environment="test", maintenance=Maintenance(small_files=3, log_megabytes=1))
    maintain(paths, settings=small)
    table.commit([write_file(game_rows(32), path, ["_seq"])], 31, 32)
    maintain(paths, settings=small)
    assert len(list(Path(path / "_delta_log").glob("0*.json"))) == 34
    done = maintain(paths, settings=small, after=2 * 3600)
    assert done.tables[0].log_entries_deleted > 0
    assert sum(entry.stat().st_size for entry in Path(path / "_delta_log").iterdir()) < 1_000_000
    assert [row["_seq"] for row in content(Path(path))] == list(range(1, 33))
    table.commit([write_file(game_rows(33), path, ["_seq"])], 32, 33)
    assert DeltaTable(path).transaction_version(APP) == 33


def test_the_log_is_cut_behind_an_old_checkpoint_and_the_table_stays_whole(tmp_path: Path) -> None:
    """Old entries go, every row and the cursor stay, and an open table goes on."""
    paths = Paths(tmp_path)
    path = paths.table(CHESS)
    table = game_table(Path(path), 130)
    maintain(paths)
    table.commit([write_file(game_rows(131), path, ["_seq"])], 130, 131)
    before = content(Path(path))
    done = maintain(paths, after=31 * DAY)
    kept = sorted(entry.name for entry in Path(path / "_delta_log").iterdir() if entry.name[0].isdigit())
    assert kept == [f"{131:020}.checkpoint.parquet", f"{131:020}.json", f"{132:020}.json"]
    assert done.tables[0].log_entries_deleted >= 131
    assert before == content(Path(path))
    table.commit([write_file(game_rows(132), path, ["_seq"])], 131, 132)
    assert DeltaTable(path).transaction_version(APP) == 132


def test_a_damaged_checkpoint_keeps_the_log(tmp_path: Path) -> None:
    """Nothing is cut behind a checkpoint that cannot be read."""
    path = tmp_path / "t"
    game_table(path, 5)
    DeltaTable(path).create_checkpoint()
    (checkpoint,) = (path / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(b"half a file")
    with pytest.raises(pa.ArrowInvalid):
        retain.clean_log(located(path), time.time() + 31 * DAY, WANTED, TableReport("t"))
    assert len(list((path / "_delta_log").glob("*.json"))) == 6


@pytest.mark.proves("A28", "G148")
def test_a28_transactions_do_not_expire(tmp_path: Path) -> None:
    """Fault A28: a table whose transactions may expire would be written twice; the property goes, and it is told."""
    paths = Paths(tmp_path)
    table = game_table(Path(paths.table(CHESS)), 2)
    name = "delta.setTransactionRetentionDuration"
    DeltaTable(paths.table(CHESS)).alter.set_table_properties({name: "interval 1 days"})
    done = maintain(paths)
    assert any(name in note for report in done.tables for note in report.notes)
    assert DeltaTable(paths.table(CHESS)).metadata().configuration[name] == "interval 36500 days"
    assert not any(report.notes for report in maintain(paths).tables)
    table.commit([write_file(game_rows(3), paths.table(CHESS), ["_seq"])], 2, 3)
    assert [row["_seq"] for row in content(Path(paths.table(CHESS)))] == [1, 2, 3]


def test_a_broken_table_does_not_stop_the_others(tmp_path: Path) -> None:
    """A table that cannot be tended is told of with its error, and the others are tended all the same."""
    paths = Paths(tmp_path)
    full_world(paths)
    for name in on_disk(Path(paths.table(CHESS))):
        Path(paths.table(CHESS) / name).write_bytes(b"no Parquet")
    done = run.one_round(SETTINGS, paths, time.time(), thorough=True)
    assert not done.ok
    assert [f"tables/{CHESS}"] == [report.table for report in done.tables if report.error]
    assert {"quarantine", "bronze", f"tables/{GO}"} == {report.table for report in done.tables if report.files_merged}
    assert "FAILED" in render_round(done)
    assert not json.loads(as_json(done))["ok"]


def test_a_second_round_finds_nothing_to_do(tmp_path: Path) -> None:
    """Applying a plan and planning again gives nothing."""
    paths = Paths(tmp_path)
    before = full_world(paths)
    assert any(report.touched for report in maintain(paths).tables)
    assert not any(report.touched for report in maintain(paths).tables)
    assert before == contents(paths)

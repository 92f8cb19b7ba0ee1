"""Checkpoints that turnout writes itself, against what delta-rs makes of the whole log."""

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.schema import Schema
from deltalake.writer import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lake.delta import checkpoint as delta_checkpoint
from pipeline.lake.delta.checkpoint import (
    MERGED_SECONDS,
    REMOVED_SECONDS,
    checkpoint_file,
    newest_checkpoint,
    pointed_to,
)
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.log import Action, commit_file, publish_commit
from pipeline.lake.delta.table import CursorTable, TableConflict
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located
from tests.tables.maintenance_world import APP, ROWS, game_rows, game_table


def _add(name: str, size: int) -> Action:
    stats = json.dumps({"numRecords": size, "minValues": {"_seq": -size}, "maxValues": {"_seq": size}})
    return {
        "add": {
            "path": name, "partitionValues": {}, "size": size, "modificationTime": size, "dataChange": True,
            "stats": stats,
        }
    }  # fmt: skip


def _remove(name: str, *, data_change: bool = True, at: float | None = None) -> Action:
    return {"remove": {"path": name, "deletionTimestamp": int((at or time.time()) * 1000), "dataChange": data_change}}


FILE = st.sampled_from("abcdef")
ACTION = st.one_of(
    st.builds(_add, FILE, st.integers(1, 9)),
    st.builds(_remove, FILE),
    st.builds(lambda app, at: {"txn": {"appId": app, "version": at}}, FILE, st.integers(0, 2**62)),
    st.builds(
        lambda app, at: {"txn": {"appId": app, "version": at, "lastUpdated": at}},
        st.text(max_size=3),
        st.integers(0, 2**62),
    ),
)
STEP = st.lists(ACTION, max_size=4) | st.sampled_from(["ours", "delta-rs", "metadata"])


def _each_path_once(actions: list[Action]) -> list[Action]:
    found: dict[str, Action] = {}
    for action in actions:
        (values,) = action.values()
        found[values.get("path", f"txn {values.get('appId')}")] = action
    return list(found.values())


def state(path: Path) -> tuple[Any, ...]:
    table = DeltaTable(path)
    files = pa.table(table.get_add_actions()).to_pylist()
    apps = [*"abcdef", ""]
    metadata = table.metadata()
    return (
        table.version(),
        sorted(map(str, files)),
        [table.transaction_version(app) for app in apps],
        (metadata.id, metadata.name, metadata.description, metadata.configuration, metadata.created_time),
        table.schema().to_json(),
        (table.protocol().min_reader_version, table.protocol().min_writer_version),
    )


@settings(max_examples=20, deadline=None)
@given(st.lists(STEP, max_size=25))
@pytest.mark.proves("G147")
def test_a_checkpoint_says_what_the_whole_log_says(steps: list[Any]) -> None:
    """Whatever was committed, and whoever wrote the checkpoints before: what is read from ours alone is the table."""
    with tempfile.TemporaryDirectory() as folder:
        path, whole = Path(folder) / "t", Path(folder) / "whole"
        given = {"delta.checkpointInterval": "7"}
        DeltaTable.create(path, Schema.from_arrow(ROWS), name="n", description="ö \u2028", configuration=given)
        version = 0
        for step in steps:
            if step == "ours":
                delta_checkpoint.write_checkpoint(located(path), version)
            elif step == "delta-rs":
                DeltaTable(path).create_checkpoint()
            elif step == "metadata":
                version += 1
                DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": str(version)})
            else:
                version += 1
                assert publish_commit(located(path), version, _each_path_once(step))
        shutil.copytree(path, whole)
        for checkpoint in (whole / "_delta_log").glob("*checkpoint*"):
            checkpoint.unlink()
        delta_checkpoint.write_checkpoint(located(path), version)
        for commit in (path / "_delta_log").glob("*.json"):
            commit.unlink()
        assert state(path) == state(whole)


@pytest.mark.parametrize("by_delta_rs", [True, False])
def test_partitions_and_columns_outlive_checkpoints_of_others(tmp_path: Path, by_delta_rs: bool) -> None:
    """Partition values and statistics of files are as they were, also those read from a checkpoint of delta-rs."""
    path = tmp_path / "t"
    rows = pa.table({"day": ["a", "b", None], "value": [1, 2, 3]})
    write_deltalake(path, rows, partition_by=["day"])
    write_deltalake(path, rows, mode="append")
    if by_delta_rs:
        DeltaTable(path).create_checkpoint()
    write_deltalake(path, rows, mode="append")
    delta_checkpoint.write_checkpoint(located(path), 2)
    for commit in (path / "_delta_log").glob("*.json"):
        commit.unlink()
    after = DeltaTable(path).to_pyarrow_table()
    assert sorted(map(str, after.to_pylist())) == sorted(map(str, rows.to_pylist() * 3))
    assert DeltaTable(path).metadata().partition_columns == ["day"]
    found = pa.table(DeltaTable(path).get_add_actions(flatten=True)).column("max.value").to_pylist()
    assert sorted(found) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def _removed(path: Path, version: int) -> set[str]:
    rows = pq.read_table(checkpoint_file(located(path), version)).column("remove").to_pylist()
    return {row["path"] for row in rows if row is not None}


@pytest.mark.proves("G147")
def test_what_was_merged_is_named_for_an_hour_and_what_was_deleted_for_a_week(tmp_path: Path) -> None:
    """Checkpoints do not carry a week of merged files; a removal without a time may have been a moment ago."""
    path = tmp_path / "t"
    game_table(path, 1)
    untimed: Action = {"remove": {"path": "untimed", "dataChange": False}}
    actions = [_remove("merged", data_change=False), _remove("deleted"), untimed]
    assert publish_commit(located(path), 2, actions)
    ages = {3: 0.0, 4: MERGED_SECONDS - 60, 5: MERGED_SECONDS + 60, 6: REMOVED_SECONDS - 60, 7: REMOVED_SECONDS + 60}
    named = {}
    for version, age in ages.items():
        assert publish_commit(located(path), version, [{"commitInfo": {}}])
        delta_checkpoint.write_checkpoint(located(path), version, time.time() + age)
        named[version] = _removed(path, version)
    young, old = {"merged", "deleted", "untimed"}, {"deleted", "untimed"}
    assert named == {3: young, 4: young, 5: old, 6: old, 7: {"untimed"}}
    assert [row["_seq"] for row in DeltaTable(path).to_pyarrow_table().to_pylist()] == [1]


def test_a_checkpoint_is_never_written_in_the_place_of_another(tmp_path: Path) -> None:
    """A reader may be in the middle of it; and readers are never sent back to an older one."""
    path = tmp_path / "t"
    game_table(path, 4)
    DeltaTable(path).create_checkpoint()
    before = Path(checkpoint_file(located(path), 4)).read_bytes()
    delta_checkpoint.write_checkpoint(located(path), 4)
    delta_checkpoint.write_checkpoint(located(path), 3)
    assert before == Path(checkpoint_file(located(path), 4)).read_bytes()
    assert (pointed_to(located(path)), newest_checkpoint(located(path), 3), newest_checkpoint(located(path), 2)) == (
        4,
        3,
        None,
    )
    (path / "_delta_log" / "_last_checkpoint").write_text("{")
    assert newest_checkpoint(located(path), 9) == 4
    assert not list((path / "_delta_log").glob("*.tmp"))


def test_a_log_that_is_not_understood_is_left_to_delta_rs(tmp_path: Path) -> None:
    """Features outside of a plain table are kept, not dropped; missing commits are not invented."""
    path = tmp_path / "t"
    table = game_table(path, 3)
    strange = {"domainMetadata": {"domain": "theirs", "configuration": "{}", "removed": False}}
    assert publish_commit(located(path), 4, [strange])
    delta_checkpoint.write_checkpoint(located(path), 4)
    assert pq.read_table(checkpoint_file(located(path), 4)).column("domainMetadata").drop_null().to_pylist()
    for file in (
        commit_file(located(path), 4),
        checkpoint_file(located(path), 4),
        path / "_delta_log" / "_last_checkpoint",
    ):
        Path(file).unlink()
    Path(commit_file(located(path), 2)).unlink()
    with pytest.raises(DeltaError):
        delta_checkpoint.write_checkpoint(located(path), table.version)
    assert not list((path / "_delta_log").glob("*checkpoint*parquet"))


@pytest.mark.proves("G147")
def test_checkpoints_are_no_more_bytes_than_commits(tmp_path: Path) -> None:
    """A larger checkpoint is written less often, so the log of an hour does not grow with the number of files."""
    path = tmp_path / "t"
    table = CursorTable.create(located(path), ROWS, APP, checkpoint_interval=10)
    assert publish_commit(located(path), 1, [_add(f"part-{number:030}", 1) for number in range(2000)])
    table.refresh()
    for seq in range(1, 100):
        table.commit([write_file(game_rows(seq), located(path), ["_seq"])], seq - 1 or None, seq)
    log = path / "_delta_log"
    sizes = [sum(file.stat().st_size for file in log.glob(kind)) for kind in ("*.checkpoint.parquet", "*.json")]
    assert sizes[0] <= sizes[1]
    assert len(DeltaTable(path).file_uris()) == 2099


@pytest.mark.proves("G147")
def test_a_writer_goes_on_from_its_own_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint says what the whole log says, after commits of others too, whether or not the last one was read."""
    path, whole, read = tmp_path / "t", tmp_path / "whole", list[str]()
    table = CursorTable.create(located(path), ROWS, APP, checkpoint_interval=4)
    actions_of = delta_checkpoint._actions_of

    def noted(checkpoint: Location) -> dict[str, pa.StructArray]:
        read.append(checkpoint.name)
        return actions_of(checkpoint)

    monkeypatch.setattr(delta_checkpoint, "_actions_of", noted)
    pointers = set[int | None]()
    for seq in range(1, 41):
        table.commit([write_file(game_rows(seq), located(path), ["_seq"])], seq - 1 or None, seq)
        pointers.add(pointed_to(located(path)))
        if seq in {10, 22}:
            DeltaTable(path).optimize.compact()
        elif seq == 15:
            DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "50"})
        elif seq == 30:
            DeltaTable(path).create_checkpoint()
    newest = pointed_to(located(path))
    assert newest is not None
    shutil.copytree(path, whole)
    for checkpoint in (whole / "_delta_log").glob("*checkpoint*"):
        checkpoint.unlink()
    for version in range(newest + 1):
        Path(commit_file(located(path), version)).unlink()
    assert state(path) == state(whole)
    assert DeltaTable(path).transaction_version(APP) == 40
    assert len(pointers) > 9
    assert len(read) == 2  # behind the changed properties, and behind the checkpoint of delta-rs


def _cut(path: Path, end: int) -> None:
    """Cut a log behind a checkpoint, as cleanup does."""
    delta_checkpoint.write_checkpoint(located(path), end)
    for version in range(end):
        Path(commit_file(located(path), version)).unlink()


@pytest.mark.parametrize("same_cursor", [True, False])
@pytest.mark.proves("G144")
def test_an_owner_who_stood_still_while_the_log_was_cut_writes_nothing_into_the_gap(
    tmp_path: Path, same_cursor: bool
) -> None:
    """Law L4: the next version of its view is free again, as it was cleaned away; a commit there would be lost."""
    path = tmp_path / "t"
    table = game_table(path, 2)
    other = CursorTable.open(located(path), "somebody else" if same_cursor else APP)
    assert other is not None
    for seq in range(3, 6):
        other.commit([write_file(game_rows(seq), located(path), ["_seq"])], other.cursor, seq)
    _cut(path, 5)
    coming = [write_file(game_rows(9), located(path), ["_seq"])]
    if same_cursor:
        table.commit(coming, 2, 9)
        assert table.version == 6
    else:
        with pytest.raises(TableConflict):
            table.commit(coming, 2, 9)
    there = [row["_seq"] for row in DeltaTable(path).to_pyarrow_table().sort_by("_seq").to_pylist()]
    assert there == [1, 2, 3, 4, 5, 9][: 6 if same_cursor else 5]
    assert not commit_file(located(path), 3).exists()


@pytest.mark.proves("G144")
def test_a_view_that_the_log_no_longer_reaches_is_renewed(tmp_path: Path) -> None:
    """Nothing follows a version that was cleaned away; that is not the same as nothing new."""
    path = tmp_path / "t"
    table = game_table(path, 2)
    other = CursorTable.open(located(path), APP)
    assert other is not None
    other.commit([write_file(game_rows(3), located(path), ["_seq"])], 2, 3)
    other.commit([write_file(game_rows(4), located(path), ["_seq"])], 3, 4)
    _cut(path, 4)
    table.refresh()
    assert (table.version, table.cursor) == (4, 4)


def test_a_lost_checkpoint_costs_no_commit(tmp_path: Path) -> None:
    """Law L4: where the checkpoint that the log points to is lost, commits go on and the next is whole."""
    folder = located(tmp_path / "t")
    columns = pa.schema([("_seq", pa.int64())])
    table = CursorTable.create(folder, columns, "app", 3)

    def commit(seq: int) -> None:
        file = write_file(pa.table({"_seq": [seq]}, schema=columns), folder, ["_seq"])
        table.commit([file], table.cursor, seq)

    seq = 0
    while (lost := pointed_to(folder)) is None:
        seq += 1
        commit(seq)
    checkpoint_file(folder, lost).delete()
    for more in range(seq + 1, seq + 4):
        commit(more)
    newest = pointed_to(folder)
    assert newest is not None
    assert newest > lost
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == seq + 3

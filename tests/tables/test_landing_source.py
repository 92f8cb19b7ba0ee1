"""The landing table as ingest reads it: commit by commit, each by its name."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction

from pipeline.base.errors import Transient
from pipeline.data import log_tail
from pipeline.data.ingest.identity import Commits
from pipeline.data.ingest.sources.landing_files import names_in_files, read_files
from pipeline.data.ingest.sources.landing_log import LANDING, first_commit, observe_landing
from pipeline.data.ingest.sources.landing_source import LandingReader
from pipeline.data.log_tail import Offset, offset
from pipeline.lake.delta.log import commit_file
from pipeline.lake.storage.folder import Folder
from pipeline.lake.storage.location import FileEntry
from pipeline.lake.storage.places import located

MUCH = 1_000_000
SAME_NAMES = {name: name for name in LANDING.names}


def append(landing: Path, *values: bytes) -> None:
    rows = pa.table({"key": pa.nulls(len(values), pa.binary()), "value": list(values)}, schema=LANDING)
    write_deltalake(landing, rows, mode="append")


def reader(landing: Path, begin: Offset | None = None, max_bytes: int = MUCH) -> LandingReader:
    return LandingReader(located(landing), begin or offset("id", 0), DeltaTable(landing).version(), max_bytes, 0.0)


def rows(landing: Path, files: Iterator[tuple[str]], skip: frozenset[str] = frozenset()) -> list[bytes]:
    """Return the values of the rows of these files, as a task reads them."""
    paths = pa.record_batch({"topic": pa.array([path for (path,) in files], pa.string())})
    batches = read_files(iter([paths]), located(landing), SAME_NAMES, skip)
    return [value for batch in batches for value in batch["value"].to_pylist()]


def test_reading_goes_on_after_the_last_commit_there_is(tmp_path: Path) -> None:
    """Law L1: every commit is read once and in its order; where nothing is new, the place is the same."""
    append(tmp_path, b"1")
    append(tmp_path, b"2")
    source = reader(tmp_path)
    files, end = source.read(source.initialOffset())
    assert (rows(tmp_path, files), end) == ([b"1", b"2"], offset("id", 2))
    assert source.read(end)[1] == end
    append(tmp_path, b"3")
    files, last = source.read(end)
    assert (rows(tmp_path, files), last) == ([b"3"], offset("id", 3))


@pytest.mark.proves("G6")
def test_a_commit_that_a_listing_does_not_show_yet_is_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L1: a listing of a busy log may show a commit but not the one before it; each is looked up by its name."""
    for number in range(4):
        append(tmp_path, b"%d" % number)
    listed, unseen = Folder.files, commit_file(located(tmp_path), 2).name

    def torn(storage: Folder, folder: str, *, deep: bool = False) -> Iterator[FileEntry]:
        return (each for each in listed(storage, folder, deep=deep) if each.name != unseen)

    monkeypatch.setattr(Folder, "files", torn)
    assert first_commit(located(tmp_path), 3) == 0
    assert observe_landing(located(tmp_path), Commits(1)).first == 0
    source = reader(tmp_path)
    assert rows(tmp_path, source.read(offset("id", 1))[0]) == [b"1", b"2", b"3"]


def test_a_file_on_another_machine_counts_as_there(tmp_path: Path) -> None:
    """Law L1: only a file that this machine can look for is reported as missing."""
    append(tmp_path, b"1")
    table = DeltaTable(tmp_path)
    for name in ("hdfs://elsewhere/landing/a.parquet", "b.parquet"):
        added = AddAction(name, 9, {}, 1, True, '{"numRecords": 1}')
        table.create_write_transaction([added], mode="append", schema=table.schema())
    assert observe_landing(located(tmp_path), Commits(0)).missing == {2: "b.parquet"}


@pytest.mark.parametrize("gone", [(2,), (2, 3)])
@pytest.mark.proves("G6")
def test_a_commit_that_is_really_missing_is_named(
    tmp_path: Path, gone: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is skipped: where later commits are there, a missing one ends the query with its number."""
    monkeypatch.setattr(log_tail, "_WHOLE_SECONDS", 0.0)
    for number in range(5):
        append(tmp_path, b"%d" % number)
    source = reader(tmp_path)
    for version in gone:
        Path(commit_file(located(tmp_path), version)).unlink()
    files, end = source.read(source.initialOffset())
    assert rows(tmp_path, files) == [b"0", b"1"]
    with pytest.raises(Transient, match="lacks commit 2"):
        source.read(end)


def test_a_table_that_was_set_back_is_not_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits after a restored older copy are not the expected ones: the query ends instead of waiting."""
    monkeypatch.setattr(log_tail, "_WHOLE_SECONDS", 0.0)
    append(tmp_path, b"0")
    with pytest.raises(Transient, match=r"ends at 0, but was read up to 4"):
        reader(tmp_path).read(offset("id", 5))


@pytest.mark.proves("G6")
def test_a_large_commit_is_read_in_parts_that_can_be_read_again(tmp_path: Path) -> None:
    """Law L1: a batch that is repeated has the same files, whatever bounded it; at least one file is read."""
    for number in range(3):
        append(tmp_path, b"%d" % number)
    table = DeltaTable(tmp_path)
    adds: list[Any] = []
    for number in range(3):
        name = f"x{number}.parquet"
        pq.write_table(pa.table({"key": pa.nulls(1, pa.binary()), "value": [b"x%d" % number]}), tmp_path / name)
        adds.append(landing_file(name, (tmp_path / name).stat().st_size))
    table.create_write_transaction(adds, mode="append", schema=table.schema())
    source = reader(tmp_path, max_bytes=1)
    place = source.initialOffset()
    seen: list[list[bytes]] = []
    while True:
        files, end = source.read(place)
        if end == place:
            break
        batch = rows(tmp_path, files)
        assert rows(tmp_path, reader(tmp_path).readBetweenOffsets(place, end)) == batch
        seen.append(batch)
        place = json.loads(json.dumps(end))
    assert seen[:3] == [[b"0"], [b"1"], [b"2"]]
    assert sorted(seen[3:6]) == [[b"x0"], [b"x1"], [b"x2"]]
    assert [value for batch in seen for value in batch] == rows(
        tmp_path, reader(tmp_path).readBetweenOffsets(offset("id", 0), place)
    )


def landing_file(name: str, size: int) -> Any:
    return AddAction(name, size, {}, 1, True, '{"numRecords": 1}')


def test_a_bounded_run_ends_with_what_was_there(tmp_path: Path) -> None:
    """`ingest run --once` ends though producers go on."""
    append(tmp_path, b"0")
    source = reader(tmp_path)
    source.prepareForTriggerAvailableNow()
    _, end = source.read(source.initialOffset())
    append(tmp_path, b"1")
    assert source.read(end)[1] == end == offset("id", 1)


def test_a_table_as_it_is_comes_before_the_commits_after_it(tmp_path: Path) -> None:
    """A log that does not go back to the beginning is begun with the files of the table, each once, old ones first."""
    for number in range(3):
        append(tmp_path, b"%d" % number)
    assert names_in_files(DeltaTable(tmp_path)) == SAME_NAMES
    begin = offset("id", 1, is_starting=True)
    source = reader(tmp_path, begin, max_bytes=1)
    files, half = source.read(begin)
    assert (rows(tmp_path, files), half) == ([b"0"], offset("id", 1, 0, is_starting=True))
    again = reader(tmp_path, begin)
    files, end = again.read(half)
    assert (rows(tmp_path, files), end) == ([b"1", b"2"], offset("id", 3))
    assert rows(tmp_path, again.readBetweenOffsets(half, end)) == [b"1", b"2"]


def test_moved_rows_are_no_new_rows_and_changed_ones_end_the_query(tmp_path: Path) -> None:
    """Law L1: compaction adds nothing and is passed; a delete is refused by the start that follows."""
    for number in range(3):
        append(tmp_path, b"%d" % number)
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    source = reader(tmp_path)
    files, end = source.read(offset("id", 3))
    assert (list(files), end) == ([], offset("id", 4))
    table.delete("value = X'31'")
    with pytest.raises(Transient, match=r"Commit 4 .* removed or changed rows"):
        source.read(end)


def test_new_columns_are_looked_at_by_a_new_start(tmp_path: Path) -> None:
    """A task uses the column names of the table's newest metadata, so later metadata ends the query once."""
    append(tmp_path, b"0")
    source = reader(tmp_path)
    more = pa.table({"key": [b"k"], "value": [b"1"], "more": [1]}, schema=LANDING.append(pa.field("more", pa.int64())))
    write_deltalake(tmp_path, more, mode="append", schema_mode="merge")
    with pytest.raises(Transient, match=r"Commit 1 .* changed its columns"):
        source.read(offset("id", 1))
    assert rows(tmp_path, reader(tmp_path).read(offset("id", 0))[0]) == [b"0", b"1"]


def test_a_file_without_a_column_has_null_there(tmp_path: Path) -> None:
    """A column that came after a file is null in its rows, and a name in the file may be another one."""
    pq.write_table(pa.table({"col-1": [b"v"]}), tmp_path / "a.parquet")
    batch = pa.record_batch({"topic": ["a.parquet", "b.parquet"]})
    (read,) = read_files(iter([batch]), located(tmp_path), {"key": "col-2", "value": "col-1"}, frozenset({"b.parquet"}))
    assert (read["key"].to_pylist(), read["value"].to_pylist(), read["source_clock"].to_pylist()) == (
        [None],
        [b"v"],
        ["landing"],
    )


def test_a_table_that_is_put_in_its_place_is_not_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L1: of another table in the same folder nothing is read from the middle of its log on."""
    monkeypatch.setattr(log_tail, "_WHOLE_SECONDS", 0.0)
    for number in range(3):
        append(tmp_path, b"%d" % number)
    source = reader(tmp_path, offset(str(DeltaTable(tmp_path).metadata().id), 0))
    _, end = source.read(source.initialOffset())
    shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    shutil.rmtree(tmp_path)
    with pytest.raises(TableNotFoundError):
        source.read(end)
    shutil.copytree(tmp_path.with_name("copy"), tmp_path)
    assert source.read(end)[1] == end, "a copy that was put back is the same table"
    shutil.rmtree(tmp_path)
    for number in range(5):
        append(tmp_path, b"new %d" % number)
    with pytest.raises(Transient, match="was replaced by another one"):
        source.read(end)


def test_log_cleanup_beside_ingest_is_no_other_table(tmp_path: Path) -> None:
    """The last commit that was read may leave the log: its owner cleans it up."""
    for number in range(3):
        append(tmp_path, b"%d" % number)
    table = DeltaTable(tmp_path)
    source = reader(tmp_path, offset(str(table.metadata().id), 0))
    _, end = source.read(source.initialOffset())
    append(tmp_path, b"3")
    table.update_incremental()
    table.create_checkpoint()
    for version in range(3):
        Path(commit_file(located(tmp_path), version)).unlink()
    files, end = source.read(end)
    assert rows(tmp_path, files) == [b"3"]


def test_a_file_with_a_deletion_vector_is_refused(tmp_path: Path) -> None:
    """Law L1: rows that the landing table has deleted, as a clone of another table may have, reach no bronze."""
    append(tmp_path, b"1")
    file = commit_file(located(tmp_path), 0)
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["deletionVector"] = {
                "storageType": "u",
                "pathOrInlineDv": "x",
                "sizeInBytes": 1,
                "cardinality": 1,
            }
    source = reader(tmp_path)
    Path(file).write_text("\n".join(json.dumps(action) for action in actions))
    with pytest.raises(Transient, match=r"Commit 0 .* adds files with deletion vectors"):
        source.read(source.initialOffset())

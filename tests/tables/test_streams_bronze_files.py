"""Tasks that read bronze's files themselves find the rows of a scan of the table, each once."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.base.names import GameKey, bronze_app_id
from pipeline.data.streams import bronze_files
from pipeline.data.streams.bronze_files import files_of, parts_of
from pipeline.data.streams.writing.job import READ
from pipeline.data.streams.writing.rows import read
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.places import located

APP = bronze_app_id("test")
KEYS = ("chess", "go", "poker")
PLACES = [("seq", "ascending"), ("pos", "ascending")]


def commit(table: CursorTable, keys: list[str], seq: int, files: int = 1) -> None:
    """Write a bronze commit with one row for each key given, spread over files by key."""
    rows = pa.table(
        {
            "game_key": keys,
            "game": keys,
            "seq": pa.array([seq] * len(keys), pa.int64()),
            "pos": pa.array(range(len(keys)), pa.int32()),
            "raw": [b"payload"] * len(keys),
        }
    )
    arrays = [
        rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(len(keys), field.type)
        for field in BRONZE
    ]
    whole = pa.table(arrays, schema=BRONZE)
    mine = [pa.array([KEYS.index(key) % files == number for key in keys], pa.bool_()) for number in range(files)]
    parts = [write_file(whole.filter(each), table.path, ["seq", "game_key"]) for each in mine if pc.any(each).as_py()]
    table.commit(parts, seq - 1 or None, seq)


@pytest.fixture
def bronze(tmp_path: Path) -> CursorTable:
    return CursorTable.create(located(tmp_path / "bronze"), BRONZE, APP)


def found(table: CursorTable, low: int, high: int, keys: Iterable[str], part_bytes: int = 1 << 20) -> pa.Table:
    """All rows that tasks would read."""
    files = files_of(table.path, table.version, APP, low, high, [GameKey(key) for key in keys])
    parts = [read(part, low, high, sorted(keys)) for part in parts_of(files, part_bytes)]
    return pa.concat_tables([pa.schema([BRONZE.field(name) for name in READ]).empty_table(), *parts]).sort_by(PLACES)


def scanned(table: CursorTable, low: int, high: int, keys: Iterable[str]) -> pa.Table:
    rows = (
        DeltaTable(table.path)
        .to_pyarrow_table(columns=list(READ))
        .cast(pa.schema([BRONZE.field(name) for name in READ]))
    )
    within = (pc.field("seq") > low) & (pc.field("seq") <= high) & pc.field("game_key").isin(sorted(keys))
    return rows.filter(within).sort_by(PLACES)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    commits=st.lists(st.lists(st.sampled_from(KEYS), min_size=1, max_size=6), min_size=1, max_size=12),
    files=st.integers(1, 3),
    span=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    wanted=st.sets(st.sampled_from(KEYS), min_size=1),
    merged=st.booleans(),
    max_commits=st.sampled_from([2, 64]),
    part_bytes=st.sampled_from([1, 10_000, 1 << 20]),
)
@pytest.mark.proves("G65")
def test_tasks_read_what_a_scan_finds(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[list[str]],
    files: int,
    span: tuple[int, int],
    wanted: set[str],
    merged: bool,
    max_commits: int,
    part_bytes: int,
) -> None:
    """Law L7: a chunk holds every row of its games and seqs once, through the log's end or through a snapshot."""
    table = CursorTable.create(located(tmp_path_factory.mktemp("bronze")), BRONZE, APP, checkpoint_interval=5)
    for seq, keys in enumerate(commits, start=1):
        commit(table, keys, seq, files)
        if merged and seq == len(commits) // 2:
            DeltaTable(table.path).optimize.compact()
            table.refresh()
    low, high = min(span), min(max(span), len(commits))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bronze_files, "_MAX_COMMITS", max_commits)
        assert found(table, low, high, wanted, part_bytes).equals(scanned(table, low, high, wanted))


@pytest.mark.proves("G65")
def test_what_was_replaced_and_what_is_gone_from_the_log_is_looked_up(bronze: CursorTable) -> None:
    """Law L1: the log's end is not believed where compaction, a hand or log cleanup was."""
    for seq in range(1, 5):
        commit(bronze, ["chess"], seq)
    DeltaTable(bronze.path).create_checkpoint()
    DeltaTable(bronze.path).delete("seq = 3")
    bronze.refresh()
    commit(bronze, ["chess"], 5)
    for low in range(5):
        assert found(bronze, low, 5, KEYS).equals(scanned(bronze, low, 5, KEYS))
    for version in range(3):
        Path(bronze.path / "_delta_log" / f"{version:020}.json").unlink()
    assert found(bronze, 0, 5, KEYS).column("seq").to_pylist() == [1, 2, 4, 5]


@pytest.mark.proves("G65")
def test_a_batch_without_rows_hides_no_seq(bronze: CursorTable) -> None:
    """Law L7: the commit of such a batch repeats bronze's seq, whose rows are in the commit before."""
    for seq in range(1, 4):
        commit(bronze, ["chess"], seq)
    for _ in range(2):
        bronze.commit([], 3, 3)
    for low in range(3):
        assert found(bronze, low, 3, KEYS).column("seq").to_pylist() == list(range(low + 1, 4))


@given(
    groups=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    part_bytes=st.sampled_from([1, 600, 5_000, 1 << 20]),
)
@pytest.mark.proves("G65")
def test_each_row_group_is_one_tasks(
    tmp_path_factory: pytest.TempPathFactory, groups: list[int], part_bytes: int
) -> None:
    """A file that is large for one task is cut at its row groups, and none of them is read twice or by nobody."""
    folder = tmp_path_factory.mktemp("files")
    files = []
    for number, count in enumerate(groups):
        rows = pa.table({"seq": pa.array(range(count * 10), pa.int64())})
        files.append(str(folder / f"{number}.parquet"))
        pq.write_table(rows, files[-1], row_group_size=10)
    read_groups = [
        (piece.path, group)
        for part in parts_of(files, part_bytes)
        for piece in part
        for group in (piece.groups if piece.groups is not None else range(groups[files.index(piece.path)]))
    ]
    assert read_groups == [(file, group) for file, count in zip(files, groups, strict=True) for group in range(count)]
    assert len(parts_of(files, 1 << 20)) == 1
    assert len(parts_of(files, 1)) == sum(groups)

"""Bronze's newest rows found through its log are those that a scan of the table finds, or none are claimed."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.bronze import BRONZE
from pipeline.delta_table import CursorTable, write_file
from pipeline.names import bronze_app_id
from pipeline.streams import recent
from pipeline.streams.recent import recent_rows
from pipeline.streams.split import READ

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
    return CursorTable.create(tmp_path / "bronze", BRONZE, APP)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    commits=st.lists(st.lists(st.sampled_from(KEYS), min_size=1, max_size=6), min_size=1, max_size=12),
    files=st.integers(1, 3),
    span=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    wanted=st.sets(st.sampled_from(KEYS), min_size=1),
)
def test_the_end_of_the_log_tells_what_a_scan_finds(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[list[str]],
    files: int,
    span: tuple[int, int],
    wanted: set[str],
) -> None:
    """Law L7: a chunk holds every row of its games and seqs once, whichever way it was read."""
    table = CursorTable.create(tmp_path_factory.mktemp("bronze"), BRONZE, APP, checkpoint_interval=5)
    for seq, keys in enumerate(commits, start=1):
        commit(table, keys, seq, files)
    low, high = min(span), min(max(span), len(commits))
    found = recent_rows(table.path, table.version, APP, low, high, wanted)
    within = (pc.field("seq") > low) & (pc.field("seq") <= high) & pc.field("game_key").isin(sorted(wanted))
    scanned = DeltaTable(table.path).to_pyarrow_table(columns=list(READ)).filter(within)
    assert found is not None
    assert found.sort_by(PLACES).equals(scanned.cast(found.schema).sort_by(PLACES))


def test_nothing_is_claimed_where_files_were_replaced_or_commits_are_gone(bronze: CursorTable) -> None:
    """Law L1: what compaction or a hand made of bronze, and what log cleanup removed, is left to a snapshot."""
    for seq in range(1, 5):
        commit(bronze, ["chess"], seq)
    DeltaTable(bronze.path).delete("seq = 3")
    bronze.refresh()
    commit(bronze, ["chess"], 5)
    assert recent_rows(bronze.path, bronze.version, APP, 2, 5, KEYS) is None
    newest = recent_rows(bronze.path, bronze.version, APP, 4, 5, KEYS)
    assert newest is not None
    assert newest.column("seq").to_pylist() == [5]
    (bronze.path / "_delta_log" / f"{bronze.version - 1:020}.json").unlink()
    assert recent_rows(bronze.path, bronze.version, APP, 3, 5, KEYS) is None


def test_nothing_is_claimed_where_it_would_be_much(bronze: CursorTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long way or many bytes are for Spark: the driver's memory and its time belong to all games."""
    for seq in range(1, 5):
        commit(bronze, ["chess"], seq)
    for limit, value in (("_MOST_COMMITS", 3), ("_MOST_FILE_BYTES", 100), ("_MOST_BYTES", 100)):
        with monkeypatch.context() as patch:
            patch.setattr(recent, limit, value)
            assert recent_rows(bronze.path, bronze.version, APP, 0, 4, KEYS) is None
    found = recent_rows(bronze.path, bronze.version, APP, 0, 4, KEYS)
    assert found is not None
    assert found.num_rows == 4

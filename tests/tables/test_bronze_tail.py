"""Bronze's log as the passes of a group read it: commit by commit, each by its name."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from pipeline.base.errors import Transient
from pipeline.data import log_tail
from pipeline.data.log_tail import Offset, offset, poll_seconds
from pipeline.data.streams.batches.bronze_tail import BronzeTail
from pipeline.data.streams.batches.tail_batches import TailBatches, reads_tail
from pipeline.data.streams.writing.job import READ
from pipeline.data.streams.writing.rows import FileRows, read
from pipeline.data.streams.writing.split import split
from pipeline.lake.delta.checkpoint import write_by_delta_rs
from pipeline.lake.delta.log import commit_file
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.storage.folder import Folder
from pipeline.lake.storage.places import located
from pipeline.settings.tree import Demux
from tests.tables.maintenance_world import CHESS, bronze_table

MUCH = 1_000_000
COMMITS = 4
SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))


@pytest.fixture
def bronze(tmp_path: Path) -> CursorTable:
    return bronze_table(tmp_path / "bronze", COMMITS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The reader's clock, at `now`."""
    made = SimpleNamespace(now=1_000.0)
    made.monotonic = made.time = lambda: made.now
    monkeypatch.setattr(log_tail, "time", made)
    return made


def tail(bronze: CursorTable, version: int = 0, max_bytes: int = MUCH, trigger_seconds: float = 0.0) -> BronzeTail:
    return BronzeTail(bronze.path, offset(bronze.table_id, version), max_bytes, trigger_seconds)


def more(bronze: CursorTable) -> None:
    """Add a commit."""
    seq = (bronze.cursor or 0) + 1
    bronze.commit([], seq - 1, seq)


def batches(bronze: CursorTable, max_bytes: int) -> Iterator[tuple[Offset, Offset]]:
    """Yield begin and end of each micro-batch of a new query, as Spark keeps them: as JSON."""
    reader = tail(bronze, max_bytes=max_bytes)
    place = reader.initialOffset()
    while (end := reader.read(place)[1]) != place:
        yield place, (place := json.loads(json.dumps(end)))


def rows_of(bronze: CursorTable, query: Path, batch_id: int) -> FileRows:
    """Return what the driver plans for a micro-batch of which Spark has written the offsets."""
    made: Any = TailBatches(SPARK, Demux(), bronze, split, located(query)).rows(SPARK, batch_id)
    assert isinstance(made, FileRows)
    return made


@pytest.mark.parametrize("max_bytes", [1, 3_000, MUCH])
@pytest.mark.proves("G6")
def test_the_batches_have_each_row_once_wherever_they_end(bronze: CursorTable, tmp_path: Path, max_bytes: int) -> None:
    """Laws L2 and L5: what Spark wrote of a batch names its rows, also amid a commit, and when it is repeated."""
    offsets = tmp_path / "query" / "offsets"
    offsets.mkdir(parents=True)
    # The first batch of a new query begins at the newest commit; these are of one that had begun with the table.
    (offsets / "0").write_text(f"v1\n{{}}\n{json.dumps(offset(bronze.table_id, 0))}")
    for number, (_, end) in enumerate(batches(bronze, max_bytes), 1):
        (offsets / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
    planned = [rows_of(bronze, tmp_path / "query", number) for number in range(1, len(list(offsets.iterdir())))]
    assert len(planned) == {1: 2 * COMMITS, MUCH: 1}.get(max_bytes, len(planned))
    found = [read(part, each.low, each.high, []) for each in planned for part in each.parts]
    whole = DeltaTable(bronze.path).to_pyarrow_table(columns=list(READ))
    places = [(name, "ascending") for name in ("game_key", "seq", "pos")]
    assert pa.concat_tables(found).sort_by(places).equals(whole.cast(found[0].schema).sort_by(places))
    assert sum(each.count or 0 for each in planned) == whole.num_rows
    assert planned[-1].last_seq() == pc.max(whole["seq"]).as_py() == COMMITS
    again = rows_of(bronze, tmp_path / "query", 1)
    assert again.parts == planned[0].parts


def test_a_commit_without_new_rows_is_passed_over(bronze: CursorTable) -> None:
    """A19: rows moved by compaction, or deleted by hand, end no query: the games that lack them find out."""
    table = DeltaTable(bronze.path)
    table.delete(f"game_key = '{CHESS}' and seq = 2")
    table.optimize.compact()
    files, end = tail(bronze).read(offset(bronze.table_id, COMMITS + 1))
    assert (list(files), end) == ([], offset(bronze.table_id, COMMITS + 3))


def test_a_feature_ends_the_query(bronze: CursorTable) -> None:
    """Another reader may know it: the next start chooses, and this one has passed no commit behind it."""
    reader = tail(bronze, COMMITS)
    _, end = reader.read(reader.initialOffset())
    DeltaTable(bronze.path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    with pytest.raises(Transient, match=rf"Commit {COMMITS + 1} of Bronze at .* changed its features"):
        reader.read(end)
    bronze.refresh()
    assert not reads_tail(bronze, Demux(reader="direct"), once=False)


def test_a_pass_begins_at_most_so_often(bronze: CursorTable, clock: SimpleNamespace) -> None:
    """`trigger_seconds` lie between two batches; a commit that comes later than that is read at the next look."""
    reader = tail(bronze, COMMITS, trigger_seconds=5.0)
    _, end = reader.read(reader.initialOffset())
    more(bronze)
    clock.now += 4.7
    assert reader.read(end)[1] == end
    clock.now += 0.3
    _, newest = reader.read(end)
    assert newest == offset(bronze.table_id, COMMITS + 2)
    clock.now += 100
    assert reader.read(newest)[1] == newest
    more(bronze)
    clock.now += 0.1
    assert reader.read(newest)[1] == offset(bronze.table_id, COMMITS + 3)


def test_passes_keep_step_with_commits_of_their_period(
    bronze: CursorTable, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows that come each second, none waits for a pass that is due each second: passes follow commits at once."""
    monkeypatch.setattr("pipeline.lake.delta.table.time", clock)
    reader, start = tail(bronze, COMMITS, trigger_seconds=1.0), clock.now
    end, waited, came = reader.initialOffset(), [], []
    for look in range(200):
        clock.now = start + look * poll_seconds(bronze.path, 1.0)
        if look % 10 == 5:
            more(bronze)
            came.append(clock.now)
        before, end = end, reader.read(end)[1]
        if end != before:
            waited += [clock.now - each for each in came]
            came = []
    assert max(waited[8:]) < 0.25
    assert len(waited) > 15


def test_a_bounded_run_waits_for_nothing(bronze: CursorTable) -> None:
    """A run of one round has all that was there, batch by batch, without the seconds between two passes."""
    reader = tail(bronze, 0, max_bytes=1, trigger_seconds=3_600.0)
    reader.prepareForTriggerAvailableNow()
    place, seen = reader.initialOffset(), 0
    while (end := reader.read(place)[1]) != place:
        place, seen = end, seen + 1
    assert seen > COMMITS


def test_a_look_without_news_is_one_request(
    bronze: CursorTable, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look costs money in a bucket, each second: the whole log is looked at from time to time only."""
    reader = tail(bronze, COMMITS)
    _, end = reader.read(reader.initialOffset())
    asked: list[str] = []
    entry = Folder.entry

    def counted(storage: Folder, path: str) -> Any:
        asked.append(path)
        return entry(storage, path)

    monkeypatch.setattr(Folder, "entry", counted)
    for _ in range(9):
        clock.now += 1.0
        assert reader.read(end)[1] == end
    assert len(asked) <= 9


@pytest.mark.parametrize("is_there", [False, True])
def test_a_log_that_was_cut_up_to_the_place_of_a_query_is_not_read_on(
    bronze: CursorTable, clock: SimpleNamespace, *, is_there: bool
) -> None:
    """Law L4: there a writer that had stood still may put a commit, which it takes back when it sees the cut."""
    reader = tail(bronze, COMMITS)
    write_by_delta_rs(bronze.path)
    for version in range(2):
        Path(commit_file(bronze.path, version)).unlink()
    if not is_there:
        Path(commit_file(bronze.path, 2)).unlink()
    clock.now += 10
    with pytest.raises(Transient, match="no longer has commit 1" if is_there else "lacks commit 2: it has commit 3"):
        reader.read(offset(bronze.table_id, 2))
    if is_there:
        assert reader.read(offset(bronze.table_id, 3))[1] == offset(bronze.table_id, COMMITS + 1)


def test_spark_s_planners_load_no_library_for_rows() -> None:
    """Three processes of a query's start import the source of bronze, and none of them reads a row."""
    code = "import sys, pipeline.data.streams.batches.bronze_tail; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

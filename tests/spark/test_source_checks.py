"""Landing table and checkpoint under real ingest: what changed is refused, adoption loses and doubles nothing."""

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from pyspark.errors import StreamingQueryException

from pipeline.base.errors import Refused
from pipeline.data.ingest import adopt as adoption
from pipeline.data.ingest.adopt import Adopted
from pipeline.data.ingest.bronze_writer import IngestJob
from pipeline.data.ingest.identity import Commits
from pipeline.data.ingest.sources.kind import Begin
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.data.ingest.sources.supported import open_source
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.store import sources
from tests.spark.source_world import wrappers


def several(*firsts: int) -> list[bytes]:
    return [wrapper for first in firsts for wrapper in wrappers(first)]


def land(world: Any, *files: list[bytes]) -> None:
    """Append one landing commit with these files."""
    table = CursorTable.create(world.paths.landing, LANDING, "test")
    rows = [pa.table({"key": [None] * len(values), "value": values}, schema=LANDING) for values in files]
    table.commit([write_file(part, world.paths.landing) for part in rows], table.cursor, (table.cursor or 0) + 1)


def adopt(world: Any, *, accept_loss: bool = False) -> Adopted:
    return adoption.adopt(world.settings, world.paths, world.engine, accept_loss=accept_loss)


def bronze(world: Any) -> Counter[bytes]:
    """Count what is in bronze, after verify found it complete."""
    found = world.verify().totals
    assert (found.lost, found.phantom, found.broken_chain, found.bronze_duplicates) == (0, 0, 0, 0)
    return Counter(DeltaTable(world.paths.bronze).to_pyarrow_table(columns=["raw"])["raw"].to_pylist())


def query_folder(world: Any) -> Path:
    number = max(int(folder.name) for folder in (world.paths.checkpoints / "ingest").iterdir() if folder.is_dir())
    return Path(world.paths.checkpoints / "ingest" / str(number) / "query")


def lose_checkpoint(world: Any) -> None:
    shutil.rmtree(query_folder(world).parent)


@pytest.mark.proves("A9", "G11")
def test_a_lost_checkpoint_is_adopted_without_loss_or_doubling(world: Any) -> None:
    """A9: a deleted checkpoint is refused with the way out; adopted, ingest goes on behind the last row of bronze."""
    sent = []
    for number in range(2):
        values = wrappers(10 * number)
        land(world, values)
        sent += values
        world.ingest()
    lose_checkpoint(world)
    with pytest.raises(Refused, match=r"is gone: .*turnout ingest adopt"):
        world.ingest()
    land(world, wrappers(100))
    done = adopt(world)
    assert (2, Commits(3), (), True) == (done.generation, done.position, done.gaps, done.new)
    assert replace(done, new=False) == adopt(world)
    world.ingest()
    assert Counter([*sent, *wrappers(100)]) == bronze(world)
    land(world, wrappers(200))
    world.ingest()
    assert Counter([*sent, *wrappers(100), *wrappers(200)]) == bronze(world)


def test_adoption_at_the_end_of_the_source_waits_for_the_next_commit(world: Any) -> None:
    """With everything landed nothing is read, and what comes then is read once, also after a second loss."""
    land(world, wrappers(0))
    world.ingest()
    for number in (1, 2):
        lose_checkpoint(world)
        adopt(world)
        world.ingest()
        land(world, wrappers(10 * number))
        world.ingest()
    assert Counter(several(0, 10, 20)) == bronze(world)


@pytest.mark.proves("G11")
def test_a_landing_commit_that_landed_in_part_is_completed(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a commit of which bronze has some files, adoption reads exactly the others."""
    world.settings = replace(world.settings, ingest=replace(world.settings.ingest, max_bytes="1b"))
    files = [wrappers(10 * number) for number in range(5)]
    land(world, *files)
    stopped = world.ingest_query()
    once_more = stopped._remember

    def stop_after_two(report: Any, seq: int, started: float) -> None:
        once_more(report, seq, started)
        if seq == 2:
            raise OSError("stopped")

    monkeypatch.setattr(stopped, "_remember", stop_after_two)
    with pytest.raises(StreamingQueryException, match="stopped"):
        stopped.start(once=True).awaitTermination()
    assert sum(bronze(world).values()) == 6
    lose_checkpoint(world)
    position = adopt(world).position
    assert isinstance(position, Commits)
    assert (position.version, len(position.skip)) == (1, 2)
    land(world, wrappers(100))
    world.ingest()
    assert Counter(several(0, 10, 20, 30, 40, 100)) == bronze(world)


@pytest.mark.proves("G13")
def test_files_of_any_name_are_left_out_of_a_commit_that_landed_in_part(world: Any) -> None:
    """Law L1: Spark gives a file's URI, where bronze and the position have its name."""
    world.ingest()
    names = ["a b.parquet", "a=1 b.parquet", "k@v,1 2.parquet", "é b.parquet", "a+b%20c.parquet", "day=1/x y.parquet"]
    folder = Path(world.paths.landing)
    adds: list[Any] = []
    (folder / "day=1").mkdir()
    for name in [*names, "day=1/a b.parquet"]:
        pq.write_table(pa.table({"key": pa.nulls(1, pa.binary()), "value": [name.encode()]}), folder / name)
        adds.append(AddAction(name, (folder / name).stat().st_size, {}, 1, True, '{"numRecords": 1}'))
    table = DeltaTable(folder)
    table.create_write_transaction(adds, mode="append", schema=table.schema())
    begin = Begin(Commits(1, frozenset(names)), None, resumes=False)
    source = open_source(world.settings.source, world.paths.landing)
    frame, rows_of = source.read(world.spark, world.settings.ingest, begin)
    read: list[bytes] = []

    def rows(files: Any, _: int) -> None:
        batch = pa.record_batch({"topic": [row.topic for row in files.collect()]})
        read.extend(value for each in rows_of(iter([batch])) for value in each["value"].to_pylist())

    query = frame.writeStream.foreachBatch(rows)
    options = query.option("checkpointLocation", str(folder.parent / "names")).trigger(availableNow=True)
    options.start().awaitTermination()
    assert list(map(bytes, read)) == [b"day=1/a b.parquet"]


@pytest.mark.parametrize("step", [pytest.param("source_checks.forget_refused", marks=pytest.mark.long), "_replace"])
@pytest.mark.proves("G11")
def test_an_adoption_that_was_killed_is_finished_by_the_next(
    world: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Killed between two steps, adoption leaves ingest refused until it is run again; then nothing is missing."""
    land(world, wrappers(0))
    world.ingest()
    lose_checkpoint(world)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"pipeline.data.ingest.adopt.{step}", die)
        with pytest.raises(KeyboardInterrupt):
            adopt(world)
    with pytest.raises(Refused, match=r"has closed ingest generation 1.*run it again"):
        world.ingest()
    land(world, wrappers(10))
    assert (adopt(world).generation, adopt(world).generation == 2) == (2, True)
    world.ingest()
    assert Counter(several(0, 10)) == bronze(world)


@pytest.mark.proves("G14")
def test_an_ingest_that_runs_on_during_adoption_lands_nothing_more(world: Any) -> None:
    """Law L4: a batch that was being written when its generation was closed is not landed twice."""
    land(world, wrappers(0))
    world.ingest()
    land(world, wrappers(10))
    old = world.ingest_query()
    look: Callable[[int, int], IngestJob] = old._job

    def look_then_adopt(batch_id: int, seq: int) -> IngestJob:
        job = look(batch_id, seq)
        adopt(world)
        return job

    old._job = look_then_adopt
    with pytest.raises(StreamingQueryException, match="Another ingest writes to"):
        old.start(once=True).awaitTermination()
    with pytest.raises(Refused, match="has closed ingest generation 1"):
        old.start(once=True)
    world.ingest()
    assert Counter(several(0, 10)) == bronze(world)


def test_refused_rows_of_a_batch_that_never_landed_leave_no_trace(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L5: rows in quarantine whose batch was not committed to bronze are gone after adoption, and come once."""
    land(world, wrappers(0))
    world.ingest()
    land(world, wrappers(10))
    cut = world.ingest_query()

    def die(*_: object, **__: object) -> None:
        raise OSError("killed before bronze")

    monkeypatch.setattr(cut._bronze, "commit", die)
    with pytest.raises(StreamingQueryException, match="killed before bronze"):
        cut.start(once=True).awaitTermination()
    lose_checkpoint(world)
    adopt(world)
    world.ingest()
    assert Counter(several(0, 10)) == bronze(world)
    assert world.verify().totals.quarantined == 6


@pytest.mark.proves("G15")
def test_a_landing_table_made_anew_is_refused_and_adopted_with_its_loss(world: Any) -> None:
    """A new table in the old one's place is told by its id, also when it is longer, and then read from its start."""
    land(world, wrappers(0))
    world.ingest()
    shutil.rmtree(world.paths.landing)
    for number in range(1, 4):
        land(world, wrappers(10 * number))
    for attempt in (world.ingest, lambda: adopt(world)):
        with pytest.raises(
            Refused, match=r"landing table .* was deleted and recreated: .*commits from 2 on.*accept-loss"
        ):
            attempt()
    assert Counter(wrappers(0)) == bronze(world)
    done = adopt(world, accept_loss=True)
    assert [
        (gap.generation, gap.partition, gap.first, gap.last, gap.reason) for gap in sources.accepted_gaps(world.engine)
    ] == [(2, None, 2, None, "recreated")]
    assert list(done.gaps) == sources.accepted_gaps(world.engine)
    world.ingest()
    assert Counter(several(0, 10, 20, 30)) == bronze(world)


@pytest.mark.proves("G16")
def test_a_rewritten_landing_table_is_refused_and_compaction_is_not(world: Any) -> None:
    """Compaction (no change of data) reads on exactly once; a deletion is named before anything is read."""
    land(world, wrappers(0))
    world.ingest()
    land(world, wrappers(10))
    land(world, wrappers(20))
    DeltaTable(world.paths.landing).optimize.compact()
    world.ingest()
    sent = several(0, 10, 20)
    assert Counter(sent) == bronze(world)
    DeltaTable(world.paths.landing).delete()
    land(world, wrappers(30))
    with pytest.raises(
        Refused, match=r"was changed, .*: commit 5 \(DELETE\) removed 1 of its files\. .*commit 5\. To continue"
    ):
        world.ingest()
    assert Counter(sent) == bronze(world)
    adopt(world, accept_loss=True)
    world.ingest()
    assert Counter([*sent, *wrappers(30)]) == bronze(world)


def test_a_table_that_was_rewritten_before_the_first_start_begins_as_it_is(world: Any) -> None:
    """Rows deleted before any reading are no loss: a first start reads the table's snapshot."""
    land(world, wrappers(0))
    DeltaTable(world.paths.landing).delete()
    land(world, wrappers(10))
    world.ingest()
    land(world, wrappers(20))
    world.ingest()
    assert Counter(several(10, 20)) == bronze(world)


def test_a_log_that_was_cleaned_up_is_a_named_gap_or_none(world: Any) -> None:
    """Unread commits that left the log are named; with a lost checkpoint the files themselves tell what is unread."""
    land(world, wrappers(0))
    world.ingest()
    for number in (1, 2, 3):
        land(world, wrappers(10 * number))
    DeltaTable(world.paths.landing).create_checkpoint()
    for version in range(3):
        (world.paths.landing / "_delta_log" / f"{version:020}.json").delete()
    with pytest.raises(Refused, match=r"no longer has the log of unread commits: commit 2\. .*accept-loss"):
        world.ingest()
    lose_checkpoint(world)
    assert adopt(world).gaps == ()
    world.ingest()
    assert Counter(several(0, 10, 20, 30)) == bronze(world)


@pytest.mark.proves("A22")
def test_bronze_made_anew_is_refused(world: Any) -> None:
    """A22: a checkpoint that belongs to another bronze would leave a gap without a word, so ingest does not start."""
    land(world, wrappers(0))
    world.ingest()
    shutil.rmtree(world.paths.bronze)
    for attempt in (world.ingest, lambda: adopt(world)):
        with pytest.raises(Refused, match=r"Bronze was deleted and recreated"):
            attempt()


@pytest.mark.parametrize(
    "damage",
    [
        "last offsets garbled",
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in ("commit emptied", "commits gone", "metadata gone", "offsets gone", "offsets emptied")
        ),
    ],
)
@pytest.mark.proves("A13", "A14", "A15", "A16", "G18", "G251")
def test_a_damaged_checkpoint_is_mended_where_nothing_can_go_wrong(world: Any, damage: str) -> None:
    """A13–A16: Spark takes up the mended checkpoint, and each row is in bronze once.

    What is mended, and how, `tests/tables/test_ingest_checkpoint.py` says of each damage.
    """
    for number in range(3):
        land(world, wrappers(10 * number))
        world.ingest()
    query = query_folder(world)
    sent = several(0, 10, 20)
    if damage == "commit emptied":
        (query / "commits" / "2").write_bytes(b"")
    elif damage == "commits gone":
        for number in (1, 2):
            (query / "commits" / str(number)).unlink()
    elif damage == "metadata gone":
        (query / "metadata").unlink()
    elif damage == "offsets gone":
        (query / "offsets" / "2").unlink()
    elif damage == "offsets emptied":
        (query / "offsets" / "2").write_bytes(b"")
    else:
        (query / "offsets" / "3").write_bytes(b"v1\n{")
    land(world, wrappers(100))
    world.ingest()
    assert Counter([*sent, *wrappers(100)]) == bronze(world)
    land(world, wrappers(200))
    world.ingest()
    assert Counter([*sent, *wrappers(100), *wrappers(200)]) == bronze(world)


@pytest.mark.proves("A13")
def test_damage_that_hides_the_position_is_refused_and_adopted(world: Any) -> None:
    """A13: the file that cannot be read is named, and adoption finds the position in bronze."""
    for number in range(2):
        land(world, wrappers(10 * number))
        world.ingest()
    (query_folder(world) / "offsets" / "0").write_bytes(b"")
    land(world, wrappers(100))
    with pytest.raises(Refused, match=r"query/offsets/0 is damaged, .*turnout ingest adopt"):
        world.ingest()
    adopt(world)
    world.ingest()
    assert Counter(several(0, 10, 100)) == bronze(world)


def test_a_generation_without_an_identity_is_taken_over(world: Any) -> None:
    """A generation whose identity the control store has lost reads on, and is then known."""
    land(world, wrappers(0))
    world.ingest()
    with world.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM ingest_identities")
    land(world, wrappers(10))
    world.ingest()
    assert Counter(several(0, 10)) == bronze(world)
    known = sources.identity(world.engine, 1)
    assert known is not None
    assert (str(DeltaTable(world.paths.landing).metadata().id), 0) == (known.source_id, known.since_seq)

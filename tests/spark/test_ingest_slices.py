"""A micro-batch cut into several seqs, under real Spark: killed at each step and cut otherwise when repeated."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from pipeline.data.ingest import query
from pipeline.data.ingest.adopt import adopt
from pipeline.data.ingest.bronze_writer import IngestJob, land
from pipeline.data.ingest.query import Ingest
from pipeline.data.streams import passes
from pipeline.data.streams.writing.job import SplitJob
from tests.spark.conftest import World

EVENTS = 600


def cut(patch: pytest.MonkeyPatch, slice_bytes: int) -> None:
    patch.setattr(query, "IngestJob", partial(IngestJob, slice_bytes=slice_bytes))
    patch.setattr(passes, "SplitJob", partial(SplitJob, slice_bytes=slice_bytes))


def land_two_slices(batches: Iterator[pa.RecordBatch], job: IngestJob) -> Iterator[pa.RecordBatch]:
    """Land as a worker that is killed in its third slice."""
    for number, report in enumerate(land(batches, job)):
        if number == 2:
            raise OSError("killed")
        yield report


def die(*_: object, **__: object) -> None:
    raise OSError("killed")


def die_in_task(_: Ingest, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(query, "land", land_two_slices)


def die_before_quarantine(ingest: Ingest, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ingest._quarantine, "commit", die)


def die_before_bronze(ingest: Ingest, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ingest._bronze, "commit", die)


def die_before_reporting(ingest: Ingest, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ingest, "_remember", die)


def die_between_reports(ingest: Ingest, patch: pytest.MonkeyPatch) -> None:
    publish = ingest._remember
    patch.setattr(ingest, "_remember", lambda report, seq, at: publish(report, seq, at) if seq == 1 else die())


STEPS: dict[str, Callable[[Ingest, pytest.MonkeyPatch], None]] = {
    "in the task": die_in_task,
    "before quarantine": die_before_quarantine,
    "before bronze": die_before_bronze,
    "before reporting": die_before_reporting,
    "between reports": die_between_reports,
}


def require_complete(world: World, rows: int) -> None:
    balance = world.verify()
    assert balance.complete, balance.problems
    assert balance.totals.bronze_rows == rows
    places = DeltaTable(world.paths.bronze).to_pyarrow_table(columns=["topic", "offset"]).to_pylist()
    assert {1} == set(Counter((row["topic"], row["offset"]) for row in places).values())
    refused = DeltaTable(world.paths.quarantine).to_pyarrow_table(columns=["game_key", "seq", "pos"])
    assert refused.num_rows == balance.totals.quarantined


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.proves("G20")
def test_a_cut_batch_that_is_killed_lands_once(world: World, step: str) -> None:
    """Laws L1 and L5: all of its seqs are committed at once or none, also when the repetition cuts it otherwise."""
    world.simulate(EVENTS, games=6, bad_share=0.2)
    with pytest.MonkeyPatch.context() as patch:
        cut(patch, 20_000)
        ingest = world.ingest_query()
        STEPS[step](ingest, patch)
        with pytest.raises(StreamingQueryException, match="killed"):
            ingest.start(once=True).awaitTermination()
    landed = DeltaTable(world.paths.bronze).to_pyarrow_table(columns=["seq"])["seq"].to_pylist()
    assert len(landed) == (EVENTS if "report" in step else 0)
    with pytest.MonkeyPatch.context() as patch:
        cut(patch, 33_000)
        world.ingest()
        group = world.group("a")
        world.split(group)
        world.simulate(EVENTS, games=6)
        world.ingest()
        world.split(group)
        group.stop()
    require_complete(world, 2 * EVENTS)


@pytest.mark.long
def test_adoption_closes_above_a_cut_batch_that_was_killed(world: World) -> None:
    """Law L5: what a cut batch left in quarantine is gone after adoption, and its seqs are given to no other rows."""
    world.simulate(EVENTS, games=6, bad_share=0.2)
    with pytest.MonkeyPatch.context() as patch:
        cut(patch, 20_000)
        ingest = world.ingest_query()
        die_before_bronze(ingest, patch)
        with pytest.raises(StreamingQueryException, match="killed"):
            ingest.start(once=True).awaitTermination()
    shutil.rmtree(world.paths.checkpoints / "ingest" / "1" / "query")
    assert adopt(world.settings, world.paths, world.engine, accept_loss=False).new
    assert not DeltaTable(world.paths.quarantine).to_pyarrow_table(columns=["seq"]).num_rows
    world.ingest()
    group = world.group("a")
    world.split(group)
    group.stop()
    require_complete(world, EVENTS)


@pytest.mark.proves("G19")
def test_each_seq_of_a_cut_batch_has_its_own_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L2: no boundary of a pass can divide a game's rows of one seq, however small the passes are."""
    cut(monkeypatch, 20_000)
    world.simulate(EVENTS, games=6)
    world.ingest()
    table = DeltaTable(world.paths.bronze)
    files: dict[tuple[str, int], set[str]] = {}
    for uri in table.file_uris():
        for row in pq.read_table(uri, columns=["game_key", "seq"]).to_pylist():
            files.setdefault((row["game_key"], row["seq"]), set()).add(uri)
    assert all(len(each) == 1 for each in files.values())
    seqs = {seq for _, seq in files}
    assert seqs == set(range(1, len(seqs) + 1))
    assert len(seqs) > 3
    assert [landed.seq for landed in world.landed] == sorted(seqs)
    group = world.group("a")
    world.split(group)
    group.stop()
    require_complete(world, EVENTS)


def test_a_batch_without_rows_is_in_bronze(world: Any) -> None:
    """Law L1: bronze has every batch that the checkpoint has, so what it lacks was lost."""
    world.simulate(100, games=3)
    world.ingest()
    DeltaTable(world.paths.landing).optimize.compact()
    world.ingest()
    world.ingest()
    world.simulate(100, games=3)
    world.ingest()
    group = world.group("a")
    world.split(group)
    group.stop()
    require_complete(world, 200)

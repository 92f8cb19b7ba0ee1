"""The micro-batches of a pass come from Delta's source, or from the end of bronze's log: the laws are the same."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType
from pyspark.errors import StreamingQueryException

from listeners.listener import attach
from listeners.sample import Lane
from pipeline.base.errors import Refused
from pipeline.base.failpoints import Injected
from pipeline.base.names import bronze_app_id
from pipeline.data.streams import bronze_to_game
from pipeline.data.streams.group import Group
from pipeline.data.streams.writing import rows
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.table import CursorTable
from pipeline.telemetry.driver import Telemetry
from tests.faults.faults import Faults
from tests.spark.conftest import World, use_source
from tests.tables.maintenance_world import bronze_rows

EVENTS = 300
_WAIT_SECONDS = 60.0


@pytest.fixture(params=[pytest.param("delta", marks=pytest.mark.long), "tail"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_source(request.param, monkeypatch)
    return str(request.param)


def query_of(world: World) -> Path:
    return world.paths.checkpoints / "demux" / "a" / "query"


def feed(world: World) -> None:
    """Let one more seq come into bronze."""
    world.simulate(EVENTS, games=6)
    world.ingest()


def settled(world: World) -> int:
    """Check that no row is missing, twice or waiting; return how many there are."""
    balance = world.verify()
    assert balance.complete
    return balance.totals.bronze_rows


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def in_pass(world: World) -> set[int]:
    """The seqs that passes have landed, and not catch-up."""
    games = [game for each in world.passes for game in each.games if game.committed_at and game.lane == Lane.RUN]
    return {seq for game in games for seq in range(game.seq_from, game.seq_to + 1)}


@pytest.mark.long
@pytest.mark.parametrize("after", ["delta", "tail"])
@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_query_goes_on_where_the_other_source_has_ended(
    world: World, source: str, after: str, monkeypatch: pytest.MonkeyPatch, faults: Faults, *, is_cut_off: bool
) -> None:
    """Upgrade and downgrade: the place is read as it was written, also of a batch that was cut off; no row is twice."""
    group = world.group("a")
    feed(world)
    world.split(group)
    feed(world)
    if is_cut_off:
        faults.arm("between_table_commits", "raise", 3)
        with pytest.raises((Injected, StreamingQueryException)):
            world.split(group)
        faults.disarm()
    group.stop()
    use_source(after, monkeypatch)
    again = world.group("a")
    assert again.reads_from() == 2
    feed(world)
    world.passes.clear()
    world.split(again)
    again.stop()
    assert settled(world) == 3 * EVENTS
    # Games that the batch which was cut off had not committed are behind, and catch-up brings its rows.
    assert in_pass(world) >= ({3} if is_cut_off else {2, 3}), "the checkpoint was good for it"


@pytest.mark.long
@pytest.mark.parametrize("max_bytes", ["1", "64m"])
def test_a_batch_may_end_amid_a_commit(world: World, source: str, max_bytes: str) -> None:
    """Law L2: wherever a batch ends, no game's rows of one seq are cut, and each row lands once."""
    assert source
    demux = replace(world.settings.demux, max_bytes=max_bytes)
    world.settings = replace(world.settings, demux=demux, ingest=replace(world.settings.ingest, bronze_files=2))
    group = world.group("a")
    feed(world)
    world.split(group)
    world.passes.clear()
    feed(world)
    feed(world)
    world.split(group)
    group.stop()
    assert settled(world) == 3 * EVENTS
    assert in_pass(world) == {2, 3}
    assert len([each for each in world.passes if not each.is_chunk]) == {"1": 4, "64m": 1}[max_bytes]


def test_rows_that_a_pass_read_are_counted(world: World, source: str) -> None:
    """Spark counts names of files where tasks read them; a pass reports its rows all the same."""
    assert source
    feed(world)
    telemetry = Telemetry(world.settings.metrics, world.paths, "group", "a")
    attachment = attach(world.spark, telemetry.event)
    group = world.group("a", lambda result: (telemetry.caught_up if result.is_chunk else telemetry.passed)(result))
    world.split(group)
    group.stop()
    until(lambda: telemetry.exposition.snapshot().queries, "Spark reports no batch")
    attachment.detach()
    telemetry.close()
    (counted,) = (each.input_rows for each in telemetry.exposition.snapshot().queries.values())
    assert counted == EVENTS
    table = (
        DeltaTable(world.paths.metrics / "stream_batch").to_pyarrow_table(columns=["lane", "input_rows"]).to_pylist()
    )
    assert {each["input_rows"] for each in table if each["lane"] == Lane.RUN} == {EVENTS}


@pytest.mark.long
def test_tasks_that_share_the_files_of_a_batch_land_each_row_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws L2 and L4: with a task for each core a game's rows come from one of them, and its cursor moves once."""
    use_source("tail", monkeypatch)
    monkeypatch.setattr(rows, "_SHARE_ROWS", 100)
    monkeypatch.setattr(rows, "_SHARE_GAMES", 1)
    assert world.spark.sparkContext.defaultParallelism > 1
    group = world.group("a")
    for _ in range(3):
        feed(world)
        world.split(group)
    group.stop()
    assert settled(world) == 3 * EVENTS
    landed = [game for each in world.passes if not each.is_chunk for game in each.games if game.rows]
    assert {game.files for game in landed} == {1}
    assert len(landed) == len({(game.game_key, game.seq_to) for game in landed})


@pytest.mark.long
def test_a_column_that_bronze_gets_stops_no_pass_that_reads_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A23: tasks read the columns that they know, so a running query goes on over a new one."""
    use_source("tail", monkeypatch)
    with running(world) as group:
        DeltaTable(world.paths.bronze).alter.add_columns([Field("note", PrimitiveType("string"))])
        feed(world)
        until(lambda: group.frontier_seq == 2 and world.verify().complete, "the pass does not get its rows")
    assert settled(world) == 2 * EVENTS


@pytest.mark.long
def test_a_feature_that_bronze_gets_is_read_by_deltas_source(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query over files ends where bronze needs more than their names, and the next start has every row."""
    monkeypatch.setattr(bronze_to_game, "reads_tail", lambda bronze, _settings, *, once: bronze.is_plain)
    with running(world) as group:
        DeltaTable(world.paths.bronze).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
        feed(world)
        query = group._shared.query
        assert query is not None
        until(lambda: not query.isActive, "the query goes on")
        assert "changed its features" in str(query.exception())
        feed(world)
        world.split(group)
    assert settled(world) == 3 * EVENTS


@pytest.mark.long
def test_a_bronze_that_is_put_in_its_place_is_not_read_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A22: commits of another table have the same numbers; the running query ends, and its next start is refused."""
    use_source("tail", monkeypatch)
    with running(world) as group:
        query = group._shared.query
        assert query is not None
        shutil.rmtree(world.paths.bronze)
        table = CursorTable.create(world.paths.bronze, BRONZE, bronze_app_id(world.settings.environment))
        for seq in range(1, 5):
            table.commit([write_file(bronze_rows(seq, seq - 1), table.path, ["seq", "game_key"])], seq - 1 or None, seq)
        until(lambda: not query.isActive, "the query goes on")
        assert "was replaced by another" in str(query.exception())
        with pytest.raises(Refused, match="deleted and recreated"):
            group.start(once=False)


@pytest.mark.long
def test_passes_begin_at_most_so_often_and_soon_after_a_quiet_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`demux.trigger_seconds` lie between two passes; a commit after a quiet time waits for no trigger."""
    use_source("tail", monkeypatch)
    world.settings = replace(world.settings, demux=replace(world.settings.demux, trigger_seconds=2.0))
    with running(world) as group:
        for seq in (2, 3):
            feed(world)
            until(lambda seq=seq: group.frontier_seq == seq, "the pass does not get its rows")  # type: ignore[misc]
        until(lambda: world.verify().complete, "a game does not get its rows")
    begun = [each.started_at for each in world.passes if not each.is_chunk]
    assert all(later - earlier > 1.9 for earlier, later in pairwise(begun))
    assert settled(world) == 3 * EVENTS


@contextmanager
def running(world: World) -> Iterator[Group]:
    """Run a group that has read a first seq."""
    feed(world)
    group = world.group("a")
    query = group.start(once=False)
    try:
        until(lambda: any(not each.is_chunk for each in world.passes), "the query does not start")
        yield group
    finally:
        group.stop()
        query.stop()

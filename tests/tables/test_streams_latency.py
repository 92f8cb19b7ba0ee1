"""A pass measures the latency of its rows: real rows, split and committed, with and without a start before them."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from listeners.sample import GameResult, Lane
from pipeline.data.streams.active_games import ActiveGames
from pipeline.data.streams.lanes import Failure
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.store.games import register_group
from pipeline.store.processes.drivers import commits_between, record_commit
from pipeline.store.rows import BronzeCommit
from protos.turnout.v1.wrapper_pb2 import Wrapper
from tests.game_streams import roster_of
from tests.tables.even_odd_rows import BronzeRows
from tests.tables.repair_world import CHESS, FIRST, GO, Event, World, broken, good, make_world

HOUR = 3_600.0


@dataclass(frozen=True)
class Timed(Event):
    """An event with the time of its source, and its own; None: nobody knows."""

    source: float | None = None
    happened: float | None = None

    @property
    def raw(self) -> bytes:
        made = Wrapper(game=self.game.name, schema_id=self.schema_id, payload=self.payload)
        if self.happened is not None:
            made.event_time.FromDatetime(datetime.fromtimestamp(self.happened, UTC))
        return made.SerializeToString()


class TimedWorld(World):
    """A world whose bronze has source times and event times."""

    def _placed(self, event: Event, pos: int, known: bool) -> dict[str, Any]:
        placed = super()._placed(event, pos, known)
        if isinstance(event, Timed):
            moments = {"source_time": event.source, "event_time": event.happened}
            placed |= {
                name: None if moment is None else datetime.fromtimestamp(moment, UTC)
                for name, moment in moments.items()
            }
        return placed


def timed(number: int, source: float | None, happened: float | None = None, game: Any = CHESS) -> Timed:
    return Timed(game, 1, FIRST.payload(points=number), source, happened)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    register_group(made.engine, "a", placing())
    made.register(GO)
    return TimedWorld(made.paths, made.settings, made.engine)


@pytest.fixture
def passes(world: World) -> Iterator[Passes]:
    with ThreadPoolExecutor(2) as pool:
        quarantine = CursorTable.create(world.paths.quarantine, QUARANTINE, "test")
        active = ActiveGames(world.paths.root / "checkpoint", "shared")
        yield Passes(
            world.paths.tables, quarantine, pool, active,
            commits_of=lambda first, last: commits_between(world.engine, first, last),
        )  # fmt: skip


def landed(world: World, passes: Passes, low: int = 0, **more: Any) -> GameResult:
    """Let one pass take chess's rows above a seq."""
    streams = {str(CHESS.key): world.stream(CHESS)}
    schemas = world.registry.snapshot()
    outcome = passes.apply(BronzeRows(world, low), streams, schemas, Lane.RUN, repeated=False, **more)
    (result,) = outcome.results
    return result


def test_a_task_reports_when_the_landed_rows_of_each_game_and_commit_came(world: World) -> None:
    """Each pair has its own rows, oldest and newest; refused ones, unknown times and old events do not count."""
    now = 1_800_000_000.0
    batches = [
        [timed(1, now, now - 3), timed(2, now - 5, now - 9.5), broken(), timed(3, now + 1, None, GO)],
        [timed(4, None, now), timed(5, now + 9, now + 60), timed(6, now + 8, now - 90_000), good(7, GO)],
    ]
    for batch in batches:
        world.ingest(*batch)
    rows = DeltaTable(world.paths.bronze).to_pyarrow_table(columns=list(READ)).combine_chunks()
    job = SplitJob(dict.fromkeys([CHESS.key, GO.key], 0), world.registry.snapshot(), world.paths.tables)
    found: defaultdict[str, list[list[float]]] = defaultdict(list)
    for done in split(iter(rows.to_batches()), job):
        for key, game in json.loads(done.column("report")[0].as_py())["games"].items():
            found[key] += game["arrivals"]
    assert sorted(found[CHESS.key]) == [[1, 2, now - 5, now, 7.5, 2], [2, 2, now + 8, now + 9, 0.0, 1]]
    assert found[GO.key] == [[1, 1, now + 1, now + 1, 0.0, 0]]


@pytest.mark.proves("G214")
def test_rows_that_waited_for_the_drivers_start_are_caught_up(world: World, passes: Passes) -> None:
    """Of one pass over rows from before and after a start, those from before it are in no latency."""
    now = time.time()
    world.ingest(timed(1, now - HOUR), timed(2, now - HOUR))
    world.ingest(timed(3, now - 1))
    result = landed(world, passes, read_since=now - 60)
    assert (result.rows, result.caught_up_rows, sum(result.latency_counts)) == (3, 2, 1)


@pytest.mark.proves("G214")
def test_rows_that_waited_for_ingests_start_are_caught_up(world: World, passes: Passes) -> None:
    """Ingest reports with each commit from when on it was there; a driver that was there all the time heeds that."""
    now = time.time()
    world.ingest(timed(1, now - HOUR), timed(2, now - HOUR))
    record_commit(world.engine, 1, 2, 0, now - HOUR, now - 60)
    result = landed(world, passes)
    assert (result.rows, result.caught_up_rows, sum(result.latency_counts)) == (2, 2, 0)


def test_segments_have_the_time_of_the_bronze_commit(world: World, passes: Passes) -> None:
    """Queue ends and process begins when ingest committed the row, as the control store has it."""
    now = time.time()
    world.ingest(timed(1, now - 30, now - 40))
    record_commit(world.engine, 1, 1, 0, now - 30)
    (known,) = commits_between(world.engine, 1, 1)
    assert known == BronzeCommit(1, known.committed_at, None)
    segments = landed(world, passes).segments_seconds
    assert segments is not None
    assert segments.queue == pytest.approx(known.committed_at - (now - 30), abs=1e-4)
    assert segments.upstream == pytest.approx(10.0, abs=1e-4)
    assert sum(segments[:3]) == pytest.approx(time.time() - (now - 30), abs=5)
    world.ingest(timed(2, now - 1))
    assert landed(world, passes, 1).segments_seconds is None, "ingest has not reported this commit"


@pytest.mark.proves("G214")
def test_an_outage_of_one_stream_ends_with_its_first_commit(world: World, passes: Passes) -> None:
    """Rows that waited while a stream failed were caught up, in the pass that lands first and in the next."""
    roster = roster_of(world.settings, world.paths, world.engine)
    now = time.time()
    world.ingest(timed(1, now - 9))
    roster.sync()
    stream = roster.streams[str(CHESS.key)]
    world.streams[CHESS.key] = stream
    assert now <= stream.read_since <= time.time(), "rows from before the driver took it on waited for that"
    stream.read_since = now - HOUR
    assert landed(world, passes).caught_up_rows == 0
    roster.settle({str(CHESS.key): Failure("transient", "disk full")}, (), 9)
    world.ingest(timed(2, now - 8))
    first = landed(world, passes, 1)
    world.ingest(timed(3, now - 8))
    world.ingest(timed(4, time.time() + 1))
    second = landed(world, passes, 2)
    assert (first.caught_up_rows, sum(first.latency_counts)) == (1, 0)
    assert (second.caught_up_rows, sum(second.latency_counts), stream.held_up) == (1, 1, False)
    stream.decision = replace(stream.decision, desired="paused")
    roster.settle({str(CHESS.key): Failure("expected", "another owner")}, (), 9)
    assert not stream.held_up, "a conflict is tried again at once"

"""A game's table whose folder was removed: each way makes it again from what bronze holds, and names the rest."""

import logging
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from listeners.sample import Lane, StreamState
from pipeline.base.errors import Refused, Transient
from pipeline.control.capabilities import read_all_facts, repairs
from pipeline.control.operations import repairs as operations
from pipeline.data.contracts.schemas import SchemaSet
from pipeline.data.pins import SetPin
from pipeline.data.repair.gap import accept_gap
from pipeline.data.repair.quarantined import Selection
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.repair.replay import replay_all
from pipeline.data.streams.active_games import ActiveGames
from pipeline.data.streams.catchup import CatchUp
from pipeline.data.streams.demux import DemuxContext
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.stream import Stream
from pipeline.data.streams.writing.job import READ, SplitJob
from pipeline.data.streams.writing.split import split
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.store.assignments import read_assignments, reported_cursors, retire
from pipeline.store.database.tables import stream_control
from pipeline.store.games import Game, register_group
from pipeline.store.processes.drivers import start_driver
from pipeline.store.stream_control import decided, submit_retry
from tests.game_streams import LocalBronze, roster_of
from tests.storage.served import served
from tests.tables.repair_world import CHESS, GO, World, good, make_world
from tests.unit.store.reports_world import write_streams

KEY = str(CHESS.key)
ROWS = [(number, 0) for number in range(1, 5)]


class BronzeRows:
    """Bronze's rows of seqs above `low` up to `high`, split by one task."""

    def __init__(self, world: World, low: int, high: int) -> None:
        self._world, self._low, self._high = world, low, high

    def split(self, job: SplitJob) -> list[Any]:
        rows = open_table(self._world.paths.bronze).to_pyarrow_table(columns=list(READ)).sort_by("seq")
        rows = rows.filter([self._low < seq <= self._high for seq in rows["seq"].to_pylist()]).combine_chunks()
        columns = ("report", "rejects")
        done = split(iter(rows.to_batches()), job)
        return [SimpleNamespace(**{name: each.column(name)[0].as_py() for name in columns}) for each in done]

    def places(self, key: str, above: int) -> list[Any]:
        raise AssertionError(key, above)


class Driver:
    """A driver of both games, whose streams only catch up."""

    key = KEY  # of the game that a person retries

    def __init__(self, world: World, pool: ThreadPoolExecutor) -> None:
        self.world = world
        start_driver(world.engine, "group", "a", None)
        self.roster = roster_of(world.settings, world.paths, world.engine)
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))
        schemas: Any = SimpleNamespace(latest=lambda: SetPin(1), snapshot=self._snapshot)
        context = DemuxContext(spark, world.settings, self.roster, schemas, lambda _: None)
        bronze = LocalBronze(
            world.settings, world.paths, world.engine, lambda low, high, _keys: BronzeRows(world, low, high)
        )
        quarantine = CursorTable.create(world.paths.quarantine, QUARANTINE, "test")
        checkpoint = world.paths.root / "checkpoint"
        passes = Passes(world.paths.tables, quarantine, pool, ActiveGames(checkpoint, "catch-up"))
        self.catch_up = CatchUp(context, checkpoint, bronze, passes)

    def _snapshot(self, _version: int) -> SchemaSet:
        return self.world.registry.snapshot()

    @property
    def chess(self) -> Stream:
        return self.roster.streams[KEY]

    def run(self) -> None:
        """Read all that is in bronze, and report."""
        for stream in self.roster.streams.values():
            stream.behind = True
        while self.catch_up.step(lambda _: self.world.seq, lambda _: self.world.seq):
            pass
        self.report()

    def report(self) -> None:
        states = [
            StreamState(
                game_key=key, group="a", lane=each.lane, status="RUNNING", status_since=0.0, cursor_seq=each.cursor,
                last_commit_at=None, backlog_age_seconds=None, rows_per_second=None, latency_p95_seconds=None,
                rows_total=0, rejects_total=0, last_error=None, updated_at=0.0,
            )
            for key, each in self.roster.streams.items()
        ]  # fmt: skip
        write_streams(self.world.engine, states)

    def retry(self) -> None:
        """Let a person retry the game, and the driver notice it."""
        submit_retry(self.world.engine, self.key, "ann")
        self.roster.sync()
        self.run()


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.long)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Two games with rows in bronze, in a folder and in a bucket."""
    if request.param != "bucket":
        yield filled(make_world(tmp_path))
        return
    with served(tmp_path / "server") as url:
        yield filled(make_world(tmp_path, url))


@pytest.fixture
def near(tmp_path: Path) -> World:
    """The same in a folder."""
    return filled(make_world(tmp_path))


def filled(world: World) -> World:
    register_group(world.engine, "a", placing())
    world.register(GO)
    for number in range(1, 4):
        world.ingest(good(number), good(number, GO))
    return world


@pytest.fixture
def driven() -> Iterator[Callable[[World], Driver]]:
    """Return what starts a driver that brings all rows into the tables."""
    with ThreadPoolExecutor(2) as pool:

        def started(world: World) -> Driver:
            driver = Driver(world, pool)
            driver.run()
            return driver

        yield started


def remove(world: World, key: str = KEY) -> None:
    world.paths.table(key).clear()


def rebuilt(world: World, game: Game = CHESS) -> None:
    """Rebuild the game's table as an operation does, planned before."""
    subjects = operations.observe(world.paths, world.environment, world.engine, [game.key], "rebuild")
    (replaces,) = operations.plan("rebuild", [game.key], subjects).values()
    rebuild(world.paths, world.environment, world.engine, world.registry.snapshot, game, replaces)


def replayed(world: World) -> list[str | None]:
    """Replay all of quarantine, as an operation does; return why games were left out."""
    schemas, reported = world.registry.snapshot, reported_cursors(world.engine)
    done = replay_all(
        world.paths, world.environment, schemas, world.known(), Selection(), dry_run=False, reported=reported
    )
    return [each.error for each in done]


def parked(world: World, key: str = KEY) -> str | None:
    decision = decided(world.engine).get(key)
    return None if decision is None or decision.parked_at is None else decision.evidence


def by_retry(driver: Driver, _start: Callable[[World], Driver]) -> None:
    driver.retry()


def by_rebuild(driver: Driver, _start: Callable[[World], Driver]) -> None:
    rebuilt(driver.world, GO if driver.key == GO.key else CHESS)
    driver.retry()


def by_new_driver(driver: Driver, start: Callable[[World], Driver]) -> None:
    submit_retry(driver.world.engine, driver.key, "ann")
    assert start(driver.world) is not driver


WAYS = [by_retry, by_rebuild, by_new_driver]


@pytest.mark.proves("G262", "A31")
@pytest.mark.parametrize("way", WAYS)
def test_a_removed_table_is_made_again(
    world: World, driven: Callable[[World], Driver], way: Callable[[Driver, Callable[[World], Driver]], None]
) -> None:
    """Laws L1 and L5: its driver parks the game and names the folder; each way brings all rows back, each once."""
    driver = driven(world)
    remove(world)
    world.ingest(good(4), good(4, GO))
    driver.run()
    why = parked(world)
    assert why is not None
    assert f"The table's folder {world.paths.table(KEY)} is gone." in why
    assert len(world.rows(GO)) == 4
    driver.run()
    driver.roster.sync()
    driver.run()
    assert not (world.paths.table(KEY) / "_delta_log").is_folder(), "nobody makes it before a person has decided"
    way(driver, driven)
    assert world.rows() == ROWS
    assert parked(world) is None
    world.ingest(good(5))
    driven(world)
    assert world.rows() == [*ROWS, (5, 0)]
    assert world.verify().ok


@pytest.mark.proves("G262")
def test_a_driver_that_starts_makes_a_table_again(near: World, driven: Callable[[World], Driver]) -> None:
    """Law L7: the table went while no driver ran; a game that was rebuilt before begins with its first generation."""
    driven(near)
    rebuilt(near)
    assert operations.newest_generation(near.paths, near.environment, KEY) == 2
    driven(near)
    remove(near)
    driven(near)
    assert near.rows() == ROWS[:3]
    assert operations.newest_generation(near.paths, near.environment, KEY) == 1
    rebuilt(near)
    near.ingest(good(4))
    driven(near)
    assert near.rows() == ROWS
    assert near.verify().ok


@pytest.mark.proves("G262")
@pytest.mark.parametrize("way", WAYS)
def test_rows_that_bronze_no_longer_holds_are_named(
    near: World,
    driven: Callable[[World], Driver],
    caplog: pytest.LogCaptureFixture,
    way: Callable[[Driver, Callable[[World], Driver]], None],
) -> None:
    """Law L5: the table has what bronze has; the rest is an accepted gap of its log, and a line says so."""
    driver = driven(near)
    remove(near)
    open_table(near.paths.bronze).delete(f"seq in (1, 3) and game_key = '{KEY}'")
    near.ingest(good(4))
    driver.run()
    with caplog.at_level(logging.WARNING, "turnout"):
        way(driver, driven)
    assert near.rows() == [(2, 0), (4, 0)]
    found = near.verify()
    assert parked(near) is None
    assert (found.totals.accepted_gaps, found.totals.faults) == (2, 0)
    if way is not by_rebuild:
        assert [each for each in caplog.records if "bronze no longer holds" in each.getMessage()] != []
    notes = [info.get("turnout", "") for info in open_table(near.paths.table(KEY)).history()]
    assert sum("bronze no longer holds" in note for note in notes) == 2


@pytest.mark.proves("G262")
def test_a_disk_that_is_not_mounted_is_no_removed_table(
    near: World, driven: Callable[[World], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law L6: without bronze nobody knows: the driver waits with that reason, and makes nothing on the wrong disk."""
    driver = driven(near)
    near.ingest(good(4))
    away, root = near.paths.root.with_name("away"), near.paths.root
    stored = [each for each in ("tables", "bronze") if (root / each).exists()]

    def unmount() -> None:
        away.mkdir(exist_ok=True)
        for name in stored:
            (root / name).rename(away / name)

    def mount() -> None:
        for name in stored:
            shutil.rmtree(root / name, ignore_errors=True)
            (away / name).rename(root / name)

    unmount()
    with pytest.raises(Transient, match=r"Neither the table's folder .* nor bronze at .* is there\. Mount"):
        driver.chess.reopen()
    again = roster_of(near.settings, near.paths, near.engine)
    assert again.streams[KEY].unreadable
    evidence = decided(near.engine)[KEY].evidence
    assert evidence is not None
    assert "Mount their disk again" in evidence
    assert parked(near) is None
    assert [each.name for each in root.iterdir() if each.name in stored] == []
    with pytest.raises((Transient, Refused)):
        rebuild(near.paths, near.environment, near.engine, near.registry.snapshot, CHESS)
    mount()
    with near.engine.begin() as connection:
        connection.execute(update(stream_control).values(retry_at=0.0))
    again.sync()
    assert (again.streams[KEY].unreadable, again.streams[KEY].cursor) == (False, 3)


@pytest.mark.proves("G262")
def test_a_bronze_that_is_not_the_tables_makes_no_table(near: World, driven: Callable[[World], Driver]) -> None:
    """Law L1: where bronze ends before the table did, it is another one or an older copy: nothing is made of it."""
    driver = driven(near)
    driver.chess.cursor = 9
    driver.report()
    remove(near)
    made = roster_of(near.settings, near.paths, near.engine)
    assert made.streams[KEY].unreadable
    assert "ends at seq 3, before seq 9, which the table had" in str(decided(near.engine)[KEY].evidence)
    with pytest.raises(Transient, match="before seq 9"):
        rebuilt(near)
    assert not Path(near.paths.table(KEY)).exists()


@pytest.mark.proves("G262")
def test_a_retired_game_is_never_made_again(near: World, driven: Callable[[World], Driver]) -> None:
    """A person may remove the table of a game that is retired: no plan, no rebuild and no driver brings it back."""
    driver = driven(near)
    rebuilt_facts = operations.observe(near.paths, near.environment, near.engine, [KEY], "rebuild")
    with near.engine.begin() as connection:
        retire(connection, {KEY: read_assignments(near.engine)[KEY].epoch})
    remove(near)
    driver.roster.sync()
    near.ingest(good(4), good(4, GO))
    driven(near)
    assert rebuilt_facts[KEY].generation == 1
    with pytest.raises(Refused, match="retired"):
        rebuilt(near)
    with pytest.raises(Refused, match="retired"):
        rebuild(near.paths, near.environment, near.engine, near.registry.snapshot, CHESS, 1)
    assert not Path(near.paths.table(KEY)).exists()


@pytest.fixture
def early(tmp_path: Path) -> World:
    """A world in which two rows of Go came before it was known, and one after."""
    world = make_world(tmp_path)
    register_group(world.engine, "a", placing())
    world.ingest(good(1), good(1, GO))
    world.ingest(good(2), good(2, GO))
    world.register(GO)
    world.ingest(good(3), good(3, GO))
    return world


@pytest.mark.proves("G262")
@pytest.mark.parametrize("way", WAYS)
def test_rows_from_before_a_game_was_known_are_not_lost_with_its_table(
    early: World,
    driven: Callable[[World], Driver],
    caplog: pytest.LogCaptureFixture,
    way: Callable[[Driver, Callable[[World], Driver]], None],
) -> None:
    """Law L5: no stream reads rows without a game's key: a rebuild lands them, else they wait in quarantine again."""
    driver = driven(early)
    driver.key = GO.key
    assert replayed(early) == [None]
    driver.run()
    remove(early, GO.key)
    early.ingest(good(4), good(4, GO))
    driver.run()
    assert "is gone" in str(parked(early, GO.key))
    with caplog.at_level(logging.WARNING, "turnout"):
        way(driver, driven)
    if way is not by_rebuild:
        assert (early.rows(GO), early.refused()) == ([(3, 1), (4, 1)], [(1, 1), (2, 1)])
        told = "2 rows from before the game was known are in quarantine again"
        assert [each for each in caplog.records if told in each.getMessage()] != []
        assert early.verify().ok
        assert replayed(early) == [None]
    assert (early.rows(GO), early.refused()) == ([(1, 1), (2, 1), (3, 1), (4, 1)], [])
    assert early.verify().ok


@pytest.mark.proves("G151", "G262")
def test_a_replay_makes_no_removed_table(early: World, driven: Callable[[World], Driver]) -> None:
    """Law L4: the driver still holds the old table: rows stay in quarantine until it has made the table again."""
    driver = driven(early)
    driver.key = GO.key
    remove(early, GO.key)
    (why,) = replayed(early)
    assert f"The table's folder {early.paths.table(GO.key)} is gone." in str(why)
    assert early.refused() == [(1, 1), (2, 1)]
    assert not Path(early.paths.table(GO.key)).exists()
    with pytest.raises(Refused, match="is gone"):
        accept_gap(early.paths, early.environment, early.engine, early.registry.snapshot(), GO, "ann", "lost")
    early.ingest(good(4, GO))
    driver.run()
    driver.retry()
    assert replayed(early) == [None]
    assert early.rows(GO) == [(1, 1), (2, 1), (3, 1), (4, 0)]
    assert early.verify().ok


@pytest.mark.parametrize("starts", [False, True])
def test_a_table_put_back_from_an_older_copy_is_named(
    near: World,
    driven: Callable[[World], Driver],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    starts: bool,
) -> None:
    """Law L5: bronze brings the rows again, but not those of a replay, so the log says what to look at."""
    driver = driven(near)
    folder = Path(near.paths.table(KEY))
    shutil.copytree(folder, tmp_path / "copy")
    near.ingest(good(4))
    driver.run()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    near.ingest(good(5))
    with caplog.at_level(logging.WARNING, "turnout"):
        if starts:
            driven(near)
        else:
            driver.run()
            driver.retry()
    assert near.rows() == [*ROWS, (5, 0)]
    told = "its table ends at seq 3, and ended at seq 4 before"
    assert len([each for each in caplog.records if told in each.getMessage()]) == 1


@pytest.mark.proves("G156")
def test_a_driver_adds_nothing_to_a_table_that_was_rebuilt_under_it(
    near: World, driven: Callable[[World], Driver]
) -> None:
    """Law L4: the new log ends at the version that the driver holds, so the number says nothing; the commit does."""
    driver = driven(near)
    near.ingest(good(4))
    driver.run()
    held = driver.chess.table
    assert isinstance(held, CursorTable)
    remove(near)
    rebuilt(near)
    assert open_table(near.paths.table(KEY)).version() == held.version
    near.ingest(good(5))
    driver.run()
    driven(near)
    assert near.rows() == [*ROWS, (5, 0)]
    assert near.verify().ok


def test_a_rebuild_is_offered_for_a_removed_table_alone(near: World, driven: Callable[[World], Driver]) -> None:
    """Nothing can be made again of a table that never was."""

    def obstacle() -> str | None:
        facts = read_all_facts(near.engine, near.paths, [KEY], 0.0)[KEY]
        return next(each.why_not for each in repairs(facts) if each.name == "rebuild")

    assert obstacle() == "It has no table yet. Its stream makes one from bronze."
    driver = driven(near)
    remove(near)
    assert obstacle() is None
    assert driver.chess.lane == Lane.CATCHUP

"""A game whose table is damaged stops alone."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from listeners.sample import Lane, StreamState
from pipeline.data.streams.active_games import ActiveGames
from pipeline.data.streams.lanes import Failure
from pipeline.data.streams.passes import Passes
from pipeline.data.streams.roster import Roster
from pipeline.data.streams.watchdog import Watchdog
from pipeline.health.facts.placing import placing
from pipeline.health.verdicts.status import IMPROVE_AFTER
from pipeline.lake.delta.quarantine import QUARANTINE
from pipeline.lake.delta.table import CursorTable
from pipeline.settings.tree import Settings
from pipeline.store.database.tables import games, stream_control
from pipeline.store.games import register_group
from pipeline.store.stream_control import StreamControl, decided, submit_retry
from tests.game_streams import roster_of
from tests.tables.bronze_rows import BronzeRows
from tests.tables.repair_world import CHESS, GO, World, good, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    register_group(made.engine, "a", placing())
    made.register(GO)
    for number in range(1, 4):
        made.ingest(good(number), good(number, GO))
        made.split()
        made.split(GO)
    for file in Path(made.paths.table(CHESS.key) / "_delta_log").glob("*checkpoint*"):
        file.unlink()  # which version has one depends on the path, and with it the newest commit may not be read
    return made


def commits(world: World) -> list[Path]:
    return sorted(Path(world.paths.table(CHESS.key) / "_delta_log").glob("*.json"))


def roster_over(world: World, group: str = "a") -> Roster:
    return roster_of(world.settings, world.paths, world.engine, group)


def wait_over(world: World) -> None:
    """Let the time pass that a stream waits after a failure."""
    with world.engine.begin() as connection:
        connection.execute(update(stream_control).values(retry_at=time.time() - 1))


@pytest.mark.proves("G51")
def test_a_group_starts_without_a_game_whose_table_cannot_be_opened(world: World) -> None:
    """Law L6: the others go on, no row is read for the damaged one, and when it is whole again its cursor counts."""
    newest = commits(world)[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole[:30])
    roster = roster_over(world)
    assert list(roster.for_pass(0)) == [GO.key]
    roster.end_pass()
    assert [each.game_key for each in roster.behind(lambda _stream: 9, lambda _stream: 9)] == []
    failed = decided(world.engine)[CHESS.key]
    assert (failed.failures, failed.failure_class) == (1, "poison")
    assert "DeltaError" in str(failed.evidence)
    roster.streams[CHESS.key].decision = StreamControl()  # its wait ends before the next look
    assert list(roster.for_pass(0)) == [GO.key]
    roster.end_pass()
    assert [each.game_key for each in roster.behind(lambda _stream: 9, lambda _stream: 9)] == []
    newest.write_bytes(whole)
    roster.sync()
    assert roster.streams[CHESS.key].unreadable  # it waits as after any other failure
    wait_over(world)
    roster.sync()
    assert roster.streams[CHESS.key].cursor == 3
    assert set(roster.for_pass(0)) == {CHESS.key, GO.key}


@pytest.mark.proves("G51")
def test_a_game_that_cannot_be_opened_is_parked_and_opened_again_on_request(world: World) -> None:
    """Law L6: after its retries it is looked at only when somebody asks for it."""
    newest = commits(world)[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole[:30])
    roster = roster_over(world)
    for _ in range(3):
        wait_over(world)
        roster.sync()
    assert roster.streams[CHESS.key].lane == "QUARANTINED"
    newest.write_bytes(whole)
    wait_over(world)
    roster.sync()
    assert roster.streams[CHESS.key].unreadable
    submit_retry(world.engine, CHESS.key, "ann")
    roster.sync()
    assert roster.streams[CHESS.key].cursor == 3


@pytest.mark.proves("G51")
def test_a_group_takes_on_a_damaged_game_and_goes_on(world: World) -> None:
    """Law L6: a game that is moved to a group that runs cannot end its passes."""
    register_group(world.engine, "b", placing())
    roster = roster_over(world, "b")
    commits(world)[-1].write_bytes(b"\xff")
    with world.engine.begin() as connection:
        connection.execute(update(games).values(group_name="b"))
    roster.sync()
    assert list(roster.for_pass(0)) == [GO.key]


@pytest.mark.proves("G51")
def test_a_damaged_game_is_not_shown_as_healthy(world: World) -> None:
    """A cursor that cannot be read is unknown: nothing seems to wait of a game whose rows the store does not know."""
    commits(world)[-1].write_bytes(b"{")
    with world.engine.begin() as connection:
        connection.execute(update(games).values(last_seq=0))
    roster, reported = roster_over(world), list[StreamState]()
    group: Any = SimpleNamespace(name="a", streams=roster.streams, frontier_seq=9, pass_since=None, schema_sets=dict)
    watchdog = Watchdog(Settings(), world.engine, group, lambda states, _changes, _sample: reported.extend(states))
    watchdog.evaluate(active=True)
    (chess,) = (state for state in reported if state.game_key == CHESS.key)
    assert chess.backlog_age_seconds is None
    assert chess.status != "RUNNING"
    assert "DeltaError" in str(chess.last_error)


@pytest.mark.proves("G57")
def test_a_game_whose_commits_fail_is_failing_from_the_first_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Log and status name a game whose rows wait for the next attempt: it is FAILED, never catching up."""
    world.ingest(good(4), good(4, GO))
    roster, reported = roster_over(world), dict[str, StreamState]()
    group: Any = SimpleNamespace(name="a", streams=roster.streams, frontier_seq=9, pass_since=None, schema_sets=dict)

    def tell(states: list[StreamState], _changes: object, _sample: object) -> None:
        reported.update({state.game_key: state for state in states})

    watchdog = Watchdog(Settings(), world.engine, group, tell)
    watchdog.evaluate(active=True)
    assert reported[CHESS.key].status != "FAILED"
    roster.settle({CHESS.key: Failure("transient", "OSError: no space left")}, (), 2)
    assert f"{CHESS.key}: failed: OSError: no space left" in caplog.messages
    watchdog.evaluate(active=True)
    assert (reported[CHESS.key].status, reported[CHESS.key].lane) == ("FAILED", "CATCHUP")
    assert reported[GO.key].status != "FAILED"
    roster.settle({}, [CHESS.key], 2)
    for _ in range(IMPROVE_AFTER):
        watchdog.evaluate(active=True)
    assert reported[CHESS.key].status != "FAILED"


@pytest.mark.proves("D9")
def test_a_clock_that_is_set_back_makes_no_stream_start_for_an_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D9: a driver that began before goes on to judge its streams by what is seen of them now."""
    roster, reported = roster_over(world), list[StreamState]()
    group: Any = SimpleNamespace(name="a", streams=roster.streams, frontier_seq=9, pass_since=None, schema_sets=dict)
    watchdog = Watchdog(Settings(), world.engine, group, lambda states, _changes, _sample: reported.extend(states))
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() - 3600.0)
    watchdog.evaluate(active=True)
    assert {state.status for state in reported} == {"RUNNING"}


@pytest.mark.proves("G51")
def test_half_a_commit_in_one_games_log_stops_that_game_alone(world: World) -> None:
    """Law L6: what another writer left half written fails its game in the pass, with the name of the file."""
    roster = roster_over(world)
    world.ingest(good(4), good(4, GO))
    torn = commits(world)[-1]
    torn = torn.with_name(f"{int(torn.stem) + 1:020}.json")
    torn.write_text('{"add":{"path":"x', "utf-8")
    with ThreadPoolExecutor(2) as pool:
        quarantine = CursorTable.create(world.paths.quarantine, QUARANTINE, "test")
        passes = Passes(world.paths.tables, quarantine, pool, ActiveGames(world.paths.root / "checkpoint", "shared"))
        rows = BronzeRows(world, low=3)
        outcome = passes.apply(rows, roster.for_pass(0), world.registry.snapshot(), Lane.RUN, repeated=False)
    assert torn.name in outcome.failures[CHESS.key].evidence
    assert roster.streams[GO.key].cursor == 4
    assert roster.streams[CHESS.key].cursor == 3


@pytest.mark.proves("G51")
def test_a_folder_that_became_a_file_during_a_pass_stops_its_game_alone(world: World) -> None:
    """Law L6: rows that do not connect, whose files cannot be discarded either, fail their game and no other."""
    roster = roster_over(world)
    world.ingest(good(4), good(4, GO))
    roster.streams[CHESS.key].cursor = 2  # what the pass reads does not connect to it
    folder = world.paths.table(CHESS.key)

    def replace_folder() -> None:
        Path(folder).rename(Path(folder).with_suffix(".before"))
        Path(folder).write_text("no table", "utf-8")

    with ThreadPoolExecutor(2) as pool:
        quarantine = CursorTable.create(world.paths.quarantine, QUARANTINE, "test")
        passes = Passes(world.paths.tables, quarantine, pool, ActiveGames(world.paths.root / "checkpoint", "shared"))
        rows = BronzeRows(world, after_split=replace_folder, low=3)
        outcome = passes.apply(rows, roster.for_pass(0), world.registry.snapshot(), Lane.RUN, repeated=False)
    roster.settle(outcome.failures, (), 2)
    assert set(outcome.failures) == {CHESS.key}
    assert "NotADirectoryError" in str(decided(world.engine)[CHESS.key].evidence)
    assert decided(world.engine)[CHESS.key].retry_at > time.time()
    assert roster.streams[GO.key].cursor == 4

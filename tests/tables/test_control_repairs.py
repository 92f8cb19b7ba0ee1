"""Replays and rebuilds as operations: done once whatever is killed, and said to be done when their effect was seen."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import wait
from contextlib import suppress
from pathlib import Path
from threading import Event
from unittest.mock import patch

import pytest
from deltalake import DeltaTable

from listeners.sample import Lane, StreamState
from pipeline.base.errors import Refused
from pipeline.base.failpoints import ENVIRON
from pipeline.control.controller import KINDS
from pipeline.control.operations import executor as engine_module
from pipeline.control.operations import repairs, tries
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.data.repair import rebuild as rebuilds
from pipeline.health.facts.placing import placing
from pipeline.store import audit
from pipeline.store.assignments import read_assignments, retire
from pipeline.store.games import generations, register_group
from pipeline.store.operations import Intent, Operation, operation, steps, submit
from pipeline.store.processes.drivers import start_driver
from pipeline.store.stream_control import StreamControl, decided, record_failures, submit_control
from tests.tables.repair_world import CHESS, GO, SECOND, broken, early, good, make_world
from tests.tables.repair_world import World as Tables
from tests.unit.store.reports_world import write_streams

NO_CHOICE = {"refused_for": None, "since": None, "until": None}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Chess in group a, with rows in its table and, of a schema that comes late, in quarantine."""
    made = make_world(tmp_path)
    register_group(made.engine, "a", placing())
    made.ingest(good(1), early(2), broken(), good(3))
    made.split()
    made.register(message=SECOND)
    return made


def controller(tables: Tables) -> ControlContext:
    """A controller that has just started."""
    return ControlContext(tables.settings, tables.engine, tables.paths)


def intent_for(tables: Tables, kind: str, *keys: str) -> Intent:
    subjects = repairs.observe(tables.paths, tables.environment, tables.engine, keys)
    return repairs.intent(kind, repairs.plan(kind, keys, subjects), "ann", "", NO_CHOICE if kind == "replay" else {})


def submitted(tables: Tables, kind: str) -> Operation:
    return submit(tables.engine, intent_for(tables, kind, CHESS.key))


def settle(world: ControlContext) -> None:
    """Wait until what was begun in this controller's threads has ended."""
    wait(list(world.background_tasks._begun.values()))


def brought_on(world: ControlContext, ticks: int = 6) -> None:
    for _ in range(ticks):
        tick(world, KINDS)
        settle(world)


def now(tables: Tables, begun: Operation) -> Operation:
    return operation(tables.engine, begun.operation_id)


def journal(tables: Tables, begun: Operation) -> list[tuple[str, str]]:
    return [(each.name, each.state) for each in steps(tables.engine, begun.operation_id)]


def report(tables: Tables, cursor: int, lane: Lane = Lane.RUN, at: float | None = None) -> None:
    """Tell of Chess as its group's driver."""
    start_driver(tables.engine, "group", "a", None)
    state = StreamState(
        game_key=CHESS.key, group="a", lane=lane, status="RUNNING", status_since=0.0, cursor_seq=cursor,
        last_commit_at=None, backlog_age_seconds=None, rows_per_second=None, latency_p95_seconds=None,
        rows_total=0, rejects_total=0, last_error=None, updated_at=time.time() + 60 if at is None else at,
    )  # fmt: skip
    write_streams(tables.engine, [state])


def newest(tables: Tables) -> int | None:
    return repairs.newest_generation(tables.paths, tables.environment, CHESS.key)


def test_a_rebuild_is_done_beside_the_ticks_and_when_its_driver_goes_on(tables: Tables) -> None:
    """No tick waits for the work, and the switch alone is not the end: the driver must tell of what comes after it."""
    report(tables, 1, at=time.time() - 1)
    world, begun = controller(tables), submitted(tables, "rebuild")
    with patch.object(world.background_tasks, "pop_result", lambda _name: None):  # the work is not over
        assert tick(world, KINDS) == 1
    assert journal(tables, begun) == [("rebuild", "running"), ("try 1", "running")]
    brought_on(world)
    assert (newest(tables), now(tables, begun).state) == (2, "verifying")
    assert journal(tables, begun)[-1] == ("verify", "running")
    record_failures(tables.engine, {CHESS.key: StreamControl(failures=1)})
    report(tables, 1)
    brought_on(world)
    assert now(tables, begun).state == "verifying", "it tells, but of failures"
    record_failures(tables.engine, {CHESS.key: StreamControl()})
    report(tables, 0)
    brought_on(world)
    assert now(tables, begun).state == "verifying", "it tells of a cursor that is not the new table's"
    report(tables, 1)
    brought_on(world)
    done = now(tables, begun)
    assert done.state == "succeeded"
    assert f"{CHESS.key}: generation 2, 3 row(s) in 1 file(s) up to seq 1, 1 refused, 1 removed" in str(done.outcome)
    assert str(done.outcome).endswith("The drivers go on with the new tables.")
    assert tables.verify().ok


def test_a_rebuild_says_whose_stream_does_not_run(tables: Tables) -> None:
    """A table that is new and a stream that stands still are two things, and both are told."""
    begun = submitted(tables, "rebuild")
    brought_on(controller(tables))
    done = now(tables, begun)
    assert (done.state, "No driver carries" in str(done.outcome)) == ("succeeded", True)


@pytest.mark.parametrize("again", [False, True])
def test_a_rebuild_gives_a_parked_stream_its_retries_back(tables: Tables, again: bool) -> None:
    """Law L7: what parked a stream was about the old table; it runs on the new one, or fails anew and is told of."""
    parked = StreamControl(
        "paused", own_query=True, parked_at=1.0, failures=9, failure_class="poison", evidence="a gap"
    )
    record_failures(tables.engine, {CHESS.key: parked})
    submit_control(tables.engine, CHESS.key, "ann", desired="paused", own_query=True)
    report(tables, 0, Lane.QUARANTINED)
    begun, world = submitted(tables, "rebuild"), controller(tables)
    if again:  # the controller is killed right after the switch
        with patch.object(repairs, "submit_retry", side_effect=KeyboardInterrupt), suppress(KeyboardInterrupt):
            brought_on(world)
        assert newest(tables) == 2
        world = controller(tables)
    brought_on(world)
    assert decided(tables.engine)[CHESS.key] == StreamControl("paused", own_query=True)
    assert now(tables, begun).state == "verifying", "its driver has not heard of it yet"
    report(tables, 1)
    brought_on(world)
    assert now(tables, begun).state == "succeeded"


def test_a_rebuild_says_whose_stream_was_parked_again(tables: Tables) -> None:
    """A stream that fails on the new table, too, is told of with what is left to do."""
    report(tables, 0, at=time.time() - 1)
    begun, world = submitted(tables, "rebuild"), controller(tables)
    brought_on(world)
    record_failures(tables.engine, {CHESS.key: StreamControl(parked_at=1.0, failures=9)})
    report(tables, 0, Lane.QUARANTINED)
    brought_on(world)
    done = now(tables, begun)
    assert (done.state, "Parked again, to be tried again" in str(done.outcome)) == ("succeeded", True)


def test_a_replay_says_what_became_of_the_rows(tables: Tables) -> None:
    """Rows that landed, were refused again or are left in quarantine are counted; each row lands once."""
    begun = submitted(tables, "replay")
    brought_on(controller(tables))
    done = now(tables, begun)
    assert (done.state, done.outcome) == (
        "succeeded",
        (
            f"Replayed: {CHESS.key}. 1 landed, 0 there already, 1 still refused, 0 waiting for their stream, 0 not in "
            "bronze, 1 taken out of quarantine. 1 of such rows are in quarantine now."
        ),
    )
    assert journal(tables, begun) == [("replay", "done"), ("try 1", "done"), ("verify", "done")]
    assert tables.rows() == [(1, 0), (1, 1), (1, 3)]


def test_a_replay_that_was_counted_late_ends_by_itself(tables: Tables) -> None:
    """Law 4 (done after its effect was observed): a count that came after its time is an effect, too."""
    begun, world, counts, real = submitted(tables, "replay"), controller(tables), Event(), repairs._left
    tick(world, KINDS)
    settle(world)
    with (
        patch.object(engine_module, "store_time", lambda _: time.time() + 3600),
        patch.object(repairs, "_left", lambda *those: real(*those) if counts.wait(60) else "never"),
    ):
        for _ in range(2):
            tick(world, KINDS)
            assert now(tables, begun).state == "needs_human"
        counts.set()
        settle(world)
        tick(world, KINDS)
    assert now(tables, begun).state == "succeeded"
    assert str(now(tables, begun).outcome).endswith("1 of such rows are in quarantine now.")


@pytest.mark.parametrize(
    "lives", [each if each % 3 == 1 else pytest.param(each, marks=pytest.mark.long) for each in range(1, 11)]
)
@pytest.mark.parametrize("kind", ["replay", "rebuild"])
@pytest.mark.proves("G107")
def test_a_controller_killed_anywhere_is_carried_on(tables: Tables, kind: str, lives: int) -> None:
    """Whatever a controller wrote last, the next one ends the repair; a table is switched and a row lands once."""
    begun, left = submitted(tables, kind), lives

    def dies(real: object) -> object:
        def call(*arguments: object, **more: object) -> object:
            nonlocal left
            done = real(*arguments, **more)  # type: ignore[operator]
            left -= 1
            if left == 0:
                raise KeyboardInterrupt  # as a kill: nothing catches it
            return done

        return call

    names = ("begin_step", "end_step")
    written = {name: dies(getattr(engine_module, name)) for name in (*names, "change")}
    world = controller(tables)
    for _ in range(12):
        try:
            with (
                patch.multiple(engine_module, **written),  # type: ignore[call-overload]
                patch.multiple(tries, **{name: written[name] for name in names}),  # type: ignore[call-overload]
            ):
                tick(world, KINDS)
        except KeyboardInterrupt:
            settle(world)
            world = controller(tables)
        settle(world)
    assert left <= 0
    assert now(tables, begun).state == "succeeded", now(tables, begun).outcome
    done = [name for name, state in journal(tables, begun) if state == "done" and not name.startswith("try")]
    assert done == [kind, "verify"]
    assert tables.rows() == [(1, 0), (1, 1), (1, 3)]
    assert newest(tables) == generations(tables.engine)[CHESS.key] == (2 if kind == "rebuild" else 1)
    assert audit.verify(tables.engine).unended == ()


@pytest.mark.parametrize(("kind", "point"), [("rebuild", "in_rebuild_switch"), ("replay", "in_replay")])
@pytest.mark.proves("G107")
def test_a_controller_that_is_killed_in_the_work_is_carried_on(
    tables: Tables, tmp_path: Path, kind: str, point: str
) -> None:
    """A29 with SIGKILL of the controller right after the repair's commit: the next one does what is left."""
    begun = submitted(tables, kind)
    folder = tmp_path / "kill"
    folder.mkdir()
    (folder / "armed").write_text(f"{point} crash 2\n")
    command = [sys.executable, "-m", "pipeline", "controller", "run", "--env-dir", str(tables.paths.root)]
    environ = {**os.environ, ENVIRON: str(folder), "TURNOUT_MAINTENANCE__BACKEND": "none"}  # it would outlive us
    died = subprocess.run(command, env=environ, capture_output=True, start_new_session=True, timeout=120)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert tables.verify().ok
    brought_on(controller(tables))
    done = now(tables, begun)
    assert done.state == "succeeded", done.outcome
    already = f"{CHESS.key}: generation 2 was there already" if kind == "rebuild" else "0 landed, 1 there already"
    assert already in str(done.outcome)
    assert [each for each in journal(tables, begun) if each[0].startswith("try")] == [
        ("try 1", "failed"),
        ("try 2", "done"),
    ]
    assert (newest(tables), tables.rows()) == (2 if kind == "rebuild" else 1, [(1, 0), (1, 1), (1, 3)])
    assert (tables.verify().totals.stale_twins, tables.refused()) == (0, [(1, 2)])


@pytest.mark.parametrize("kind", ["replay", "rebuild"])
@pytest.mark.proves("G107")
def test_two_controllers_do_no_harm(tables: Tables, kind: str) -> None:
    """D7: two that do the same repair at once switch a table once and land each row once."""
    begun, worlds = submitted(tables, kind), [controller(tables), controller(tables)]
    for _ in range(6):
        for world in worlds:
            tick(world, KINDS)
        for world in worlds:
            settle(world)
    assert now(tables, begun).state == "succeeded", now(tables, begun).outcome
    assert newest(tables) == (2 if kind == "rebuild" else 1)
    assert tables.rows() == [(1, 0), (1, 1), (1, 3)]
    assert tables.verify().ok


def test_a_repair_that_kills_its_controllers_is_given_up(tables: Tables) -> None:
    """A row that kills who reads it does not kill controllers without end."""
    begun = submitted(tables, "replay")
    for _ in range(3):
        died = controller(tables)
        with (
            patch.object(died.background_tasks, "submit"),
            patch.object(died.background_tasks, "pop_result", lambda _name: None),
        ):
            tick(died, KINDS)
        assert now(tables, begun).state == "running"
    tick(controller(tables), KINDS)
    given_up = now(tables, begun)
    assert (given_up.state, "begun 3 times and never ended" in str(given_up.outcome)) == ("failed", True)


def test_what_cannot_be_repaired_is_refused_with_the_way_out(tables: Tables) -> None:
    """An unknown or retired game, and one without a schema or a table, is one sentence, and nothing is asked for."""
    tables.register(GO)
    tables.ingest(good(4, GO))
    with pytest.raises(Refused, match=r"No such game: chess\. `turnout games list`"):
        intent_for(tables, "replay", "chess")
    with pytest.raises(Refused, match=r"go_.*: It has no table yet. Its stream makes one from bronze"):
        intent_for(tables, "rebuild", GO.key)
    tables.forget()
    with pytest.raises(Refused, match=r"chess_.*: No schema is registered for it.*Register one first"):
        intent_for(tables, "rebuild", CHESS.key)
    epoch = read_assignments(tables.engine)[CHESS.key].epoch
    with tables.engine.begin() as connection:
        retire(connection, {CHESS.key: epoch})
    with pytest.raises(Refused, match=r"chess_.*: It is retired: no group carries it until it is restored"):
        intent_for(tables, "replay", CHESS.key)


def test_a_table_that_was_rebuilt_since_it_was_shown_is_left_alone(tables: Tables) -> None:
    """The generation stands in what the actor was shown: somebody else's rebuild is not done again."""
    intent = intent_for(tables, "rebuild", CHESS.key)
    first = submitted(tables, "rebuild")
    brought_on(controller(tables))
    assert now(tables, first).state == "succeeded"
    late = submit(tables.engine, intent)
    brought_on(controller(tables))
    assert (now(tables, late).state, newest(tables)) == ("failed", 2)
    assert "changed since you looked" in str(now(tables, late).outcome)


def test_each_game_of_a_rebuild_has_the_schemas_of_its_turn(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law L15: an operation about many games may take hours; a schema that comes meanwhile is known to those after."""
    tables.register(GO)
    tables.ingest(good(4, GO))
    tables.split(GO)
    assert CHESS.key < GO.key, "in this order they are rebuilt"

    def meanwhile(_point: str) -> None:
        monkeypatch.setattr(rebuilds, "hit", lambda _point: None)
        tables.register(GO, SECOND)
        tables.ingest(early(5, GO))
        tables.split(GO)

    monkeypatch.setattr(rebuilds, "hit", meanwhile)
    begun = submit(tables.engine, intent_for(tables, "rebuild", CHESS.key, GO.key))
    brought_on(controller(tables))
    assert now(tables, begun).state == "succeeded"
    assert [row["points"] for row in tables.contents(GO)] == [4, 5]
    assert tables.contents(GO)[1]["player"] == "player 5"


def test_one_game_that_cannot_be_rebuilt_does_not_stop_the_others(tables: Tables) -> None:
    """The operation fails, says which one and why, and what was done is done."""
    tables.register(GO)
    for number in (4, 5):
        tables.ingest(good(number, GO))
    tables.split(GO)
    begun = submit(tables.engine, intent_for(tables, "rebuild", CHESS.key, GO.key))
    DeltaTable(tables.paths.bronze).delete(f"seq = 2 and game_key = '{GO.key}'")
    brought_on(controller(tables))
    done = now(tables, begun)
    assert done.state == "failed"
    assert f"{GO.key}: Bronze has a gap" in str(done.outcome)
    assert str(done.outcome).endswith("The other 1 are rebuilt.")
    assert newest(tables) == 2
    assert tables.verify().totals.lost == 0

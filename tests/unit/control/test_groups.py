"""Groups: what is wanted of them is a compare-and-set, and starting or stopping one is an operation that is seen."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, update

from pipeline.base.errors import Refused
from pipeline.base.names import Backend
from pipeline.cli.main import cli
from pipeline.control.backends.local import reference_of
from pipeline.control.controller import KINDS
from pipeline.control.operations import groups as steering
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.control.proposals import undo
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Settings, load
from pipeline.store import audit
from pipeline.store.database.states import OperationState
from pipeline.store.database.tables import operation_steps
from pipeline.store.games import assigned, record_seen
from pipeline.store.groups import Group, change, create, read_groups
from pipeline.store.operations import Operation, list_operations, operation, steps, submit
from pipeline.store.operations import change as begun
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import Lease, Process
from pipeline.store.processes.runs import (
    GroupDriver,
    active_drivers,
    adopt,
    begin_run,
    end_run,
    ended_runs,
    open_runs,
    record_process,
    submit_stop,
)
from tests.unit.store.leases_world import StoreClock

LOCAL = Group("a", backend="local")


def submitted(engine: Engine, kind: str, *names: str) -> Operation:
    facts = steering.plan(kind, names, read_groups(engine))
    return submit(engine, steering.intent(kind, facts, "ann", "why"))


@pytest.fixture
def act(engine: Engine, tmp_path: Path) -> Callable[[], None]:
    """Return a controller's tick."""
    settings, paths = load(tmp_path, {})
    world = ControlContext(settings, engine, paths)

    def once() -> None:
        tick(world, KINDS)

    return once


def drive(engine: Engine) -> Lease:
    """Begin a run as the supervisor does, with a driver that tells that it runs."""
    run_id = begin_run(engine, "a")
    assert run_id is not None
    record_process(engine, run_id, "p")
    lease = Lease(engine, "group", "a", 30.0)
    lease.acquire()
    start_driver(engine, "group", "a", None)
    heartbeat(engine, "group", "a", "running", None)
    return lease


def end(engine: Engine, lease: Lease) -> None:
    """End the run in order."""
    heartbeat(engine, "group", "a", "stopped", None)
    lease.release()
    end_run(engine, open_runs(engine)["a"].run_id, "exit code 0", died=False)


@pytest.mark.proves("G106", "H5")
def test_the_second_of_two_editors_is_told(engine: Engine) -> None:
    """H5: of two operators who change one group the second sees a conflict, nothing is overwritten."""
    seen = create(engine, LOCAL, "ann", "new", placing())
    change(engine, seen, replace(seen, capacity_cores=2.0), "ann", "more")
    with pytest.raises(Refused, match="Group a was changed after you opened it"):
        change(engine, seen, replace(seen, priority="high"), "bob", "other")
    assert read_groups(engine)["a"] == replace(seen, capacity_cores=2.0, version=2)


def test_changes_of_groups_are_in_the_audit_log(engine: Engine) -> None:
    """Each change is begun and ended in the log with what was wanted; a refused one leaves nothing."""
    seen = create(engine, LOCAL, "ann", "new", placing())
    change(engine, seen, replace(seen, capacity_cores=2.0), "bob", "more")
    with pytest.raises(Refused):
        change(engine, seen, replace(seen, priority="high"), "eve", "late")
    reported = [(each.actor, each.action, each.phase, each.detail["reason"]) for each in audit.entries(engine)]
    assert reported == [
        ("ann", "create group", "begun", "new"),
        ("ann", "create group", "ended", "new"),
        ("bob", "change group", "begun", "more"),
        ("bob", "change group", "ended", "more"),
    ]
    assert audit.verify(engine).intact


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Group("../x"), "cannot name a cluster group"),
        (Group("b", desired="purple"), "has invalid settings"),
        (Group("b", backend="yarn"), "has invalid settings"),
        (Group("b", capacity_cores=0.0), "has invalid settings"),
        (Group("b", capacity_cores=float("nan")), "has invalid settings"),
        (LOCAL, "Group a already exists"),
    ],
)
def test_a_group_that_makes_no_sense_is_refused(engine: Engine, wrong: Group, why: str) -> None:
    """What cannot be is one clear sentence, and nothing of it is kept."""
    create(engine, LOCAL, "ann", "", placing())
    with pytest.raises(Refused, match=why):
        create(engine, wrong, "ann", "", placing())
    assert set(read_groups(engine)) == {"a"}


def test_a_new_group_takes_the_games_that_wait(engine: Engine) -> None:
    """Games that came before there was a group wait for one."""
    record_seen(engine, {"g": "G"}, 1, placing())
    create(engine, LOCAL, "ann", "", placing())
    assert [each.game_key for each in assigned(engine, "a")] == ["g"]


def test_a_new_group_takes_no_more_games_than_the_setting_says(engine: Engine, tmp_path: Path) -> None:
    """Of three that wait a group that is made with `placement.max_games_per_group` = 2 gets two."""
    record_seen(engine, {"g": "G", "h": "H", "i": "I"}, 1, placing())
    (tmp_path / "turnout.toml").write_text("[placement]\nmax_games_per_group = 2\n", "utf-8")
    made = CliRunner().invoke(cli, ["groups", "create", "a", "--env-dir", str(tmp_path)], catch_exceptions=False)
    assert (made.exit_code, len(assigned(engine, "a"))) == (0, 2)


def test_a_group_of_somebody_else_cannot_be_started_here(engine: Engine) -> None:
    """Where no backend runs the group, the sentence says what can be done instead."""
    create(engine, Group("a"), "ann", "", placing())
    with pytest.raises(Refused, match="turnout does not start group a, which has no backend: do it there"):
        steering.plan("restart", ["a"], read_groups(engine))
    with pytest.raises(Refused, match=r"There is no cluster group b\. Groups: a"):
        steering.plan("start", ["b"], read_groups(engine))


def test_a_stop_is_done_when_no_driver_runs(engine: Engine, act: Callable[[], None]) -> None:
    """A stop that was asked for is not done before the driver has ended and given its lease back."""
    create(engine, LOCAL, "ann", "", placing())
    lease = drive(engine)
    stop = submitted(engine, "stop", "a")
    act()
    assert read_groups(engine)["a"].desired == "stopped"
    assert operation(engine, stop.operation_id).state == "verifying"
    end(engine, lease)
    act()
    assert operation(engine, stop.operation_id).outcome == "Stopped and seen: a."
    assert steering.plan("stop", ["a"], read_groups(engine)) == {}, "planning again gives nothing"


def test_a_stop_ends_where_somebody_decided_otherwise_since(engine: Engine, act: Callable[[], None]) -> None:
    """A hand sets the group running while it is being stopped: no end of its driver is waited for any more."""
    create(engine, LOCAL, "ann", "", placing())
    drive(engine)
    stop = submitted(engine, "stop", "a")
    act()
    assert operation(engine, stop.operation_id).state == "verifying"
    change(engine, read_groups(engine)["a"], replace(read_groups(engine)["a"], desired="running"), "bob", "")
    act()
    assert operation(engine, stop.operation_id).state == "succeeded"


def test_a_stop_can_be_undone(engine: Engine, act: Callable[[], None]) -> None:
    """The inverse of a stop is a start, checked like any other and done when a new driver tells that it runs."""
    create(engine, LOCAL, "ann", "", placing())
    submitted(engine, "stop", "a")
    act()
    stopped = operation(engine, newest(engine))
    proposal = undo(Settings(), engine, stopped, "ann", "again")
    back = proposal.intent
    assert (back.kind, back.undoes, proposal.lines[0]) == ("start", stopped.operation_id, "group a: stopped, 0 games")
    start = submit(engine, back)
    act()
    assert operation(engine, start.operation_id).state == "verifying"
    drive(engine)
    act()
    assert operation(engine, start.operation_id).outcome == "Started and seen: a."


def test_a_restart_ends_the_old_driver_and_sees_a_new_one(engine: Engine, act: Callable[[], None]) -> None:
    """A restart is done when another driver than the one that ran tells that it runs; deaths before it are forgiven."""
    create(engine, LOCAL, "ann", "", placing())
    lease = drive(engine)
    restart = submitted(engine, "restart", "a")
    act()
    assert open_runs(engine)["a"].stop_requested_at is not None
    assert operation(engine, restart.operation_id).state == "running"
    end(engine, lease)
    act()
    assert operation(engine, restart.operation_id).state == "verifying", "nobody drives it yet"
    drive(engine)
    act()
    assert operation(engine, restart.operation_id).outcome == "Restarted and seen: a."
    assert steps(engine, restart.operation_id)[-1].detail == "Their drivers report that they run."


def test_a_start_is_done_by_a_driver_that_nobody_has_asked_to_end(engine: Engine, act: Callable[[], None]) -> None:
    """Stopped and started again before the supervisor looked: no new driver comes, so the old one has to do."""
    seen = create(engine, LOCAL, "ann", "", placing())
    lease = drive(engine)
    change(engine, seen, replace(seen, desired="stopped"), "ann", "")
    started = submitted(engine, "start", "a")
    act()
    assert operation(engine, started.operation_id).state == "succeeded"
    change(engine, read_groups(engine)["a"], replace(read_groups(engine)["a"], desired="stopped"), "ann", "")
    submit_stop(engine, open_runs(engine)["a"].run_id)
    again = submitted(engine, "start", "a")
    act()
    assert operation(engine, again.operation_id).state == "verifying", "the one that is asked to end is not it"
    end(engine, lease)
    drive(engine)
    act()
    assert operation(engine, again.operation_id).state == "succeeded"


def test_a_start_counts_no_driver_that_ends_during_its_look(
    engine: Engine, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller may stand still between two reads: the old driver and the run of the next one are no driver."""
    seen = create(engine, LOCAL, "ann", "", placing())
    lease = drive(engine)
    change(engine, seen, replace(seen, desired="stopped"), "ann", "")
    submit_stop(engine, open_runs(engine)["a"].run_id)
    started = submitted(engine, "start", "a")

    def drivers_before(engine: Engine) -> Mapping[str, GroupDriver]:
        found = active_drivers(engine)
        end(engine, lease)
        begin_run(engine, "a")
        return found

    monkeypatch.setattr(steering, "active_drivers", drivers_before)
    act()
    assert operation(engine, started.operation_id).state == "verifying"


@pytest.mark.parametrize("lapsed", [False, True])
def test_a_restart_ends_a_driver_that_is_found_only_later(
    engine: Engine, act: Callable[[], None], lapsed: bool
) -> None:
    """A driver that a hand has started is adopted after the restart was asked for: it is old all the same."""
    clock = StoreClock(engine)
    create(engine, LOCAL, "ann", "", placing())
    lease = Lease(engine, "group", "a", 30.0)
    lease.acquire()
    start_driver(engine, "group", "a", None)
    heartbeat(engine, "group", "a", "running", None)
    restart = submitted(engine, "restart", "a")
    clock.now += 31.0 if lapsed else 1.0
    act()
    assert operation(engine, restart.operation_id).state == ("verifying" if lapsed else "running")
    lease.renew()
    adopt(engine, Group("a", "local"), None, reference_of(Process.this()))
    act()
    assert open_runs(engine)["a"].stop_requested_at is not None
    end(engine, lease)
    clock.now += 1.0
    drive(engine)
    act()
    assert operation(engine, restart.operation_id).state == "succeeded"


def test_a_restart_forgives_deaths(engine: Engine, act: Callable[[], None]) -> None:
    """A person who restarts a group that died too often gives it its whole budget."""
    create(engine, LOCAL, "ann", "", placing())
    run_id = begin_run(engine, "a")
    assert run_id is not None
    end_run(engine, run_id, "exit code 1", died=True)
    submitted(engine, "restart", "a")
    act()
    assert not any(run.died for run in ended_runs(engine, 0)["a"])


def test_a_group_changed_meanwhile_is_not_stopped(engine: Engine, act: Callable[[], None]) -> None:
    """A stop refuses a group that changed since it was shown: look again."""
    seen = create(engine, LOCAL, "ann", "", placing())
    stop = submitted(engine, "stop", "a")
    change(engine, seen, replace(seen, capacity_cores=2.0), "bob", "")
    act()
    assert "it has changed since you looked" in str(operation(engine, stop.operation_id).outcome)
    assert read_groups(engine)["a"].desired == "running"


def test_a_group_changed_since_its_stop_began_is_not_overwritten(engine: Engine, tmp_path: Path) -> None:
    """A change between a controller's look and its act stays: the stop is refused there and has done nothing."""
    settings, paths = load(tmp_path, {})
    seen = create(engine, LOCAL, "ann", "", placing())
    running = begun(engine, submitted(engine, "stop", "a"), OperationState.RUNNING)
    changed = change(engine, seen, replace(seen, desired="drained"), "bob", "")
    with pytest.raises(Refused, match="group a was changed meanwhile"):
        KINDS["stop"].steps[0].act(ControlContext(settings, engine, paths), running)
    assert read_groups(engine)["a"] == changed


def test_a_driver_that_does_not_end_is_told_of(engine: Engine, act: Callable[[], None]) -> None:
    """A stop whose effect is not seen in time needs a person, and says whose driver it waits for."""
    create(engine, LOCAL, "ann", "", placing())
    drive(engine)
    stop = submitted(engine, "stop", "a")
    act()
    with engine.begin() as connection:
        connection.execute(update(operation_steps).values(started_at=operation_steps.c.started_at - 130))
    act()
    now = operation(engine, stop.operation_id)
    assert now.state == "needs_human"
    assert str(now.outcome).startswith("Still to end: a.")


@pytest.mark.parametrize(("backend", "advice"), [("databricks", "cancel that run in the workspace."), ("local", "")])
@pytest.mark.parametrize("kind", ["stop", "restart"])
def test_a_driver_of_a_person_in_the_workspace_is_theirs_to_end(
    engine: Engine, tmp_path: Path, kind: str, backend: Backend, advice: str
) -> None:
    """No stop reaches a run that a person started in the workspace by "Run now": the operation says who ends it."""
    settings, paths = load(tmp_path, {})
    create(engine, replace(LOCAL, backend=backend), "ann", "", placing())
    Lease(engine, "group", "a", 30.0).acquire()
    running = begun(engine, submitted(engine, kind, "a"), OperationState.RUNNING)
    acts = [step.act(ControlContext(settings, engine, paths), running) for step in KINDS[kind].steps]
    (said,) = [each.message for each in acts if each.message.startswith("Still to end: a.")]
    assert said.endswith(advice)
    assert ("cancel" in said) is bool(advice)


def test_a_run_that_ended_is_not_asked_to(engine: Engine) -> None:
    """What is written of a run's end stays as it was written first."""
    create(engine, LOCAL, "ann", "", placing())
    run_id = begin_run(engine, "a")
    assert run_id is not None
    end_run(engine, run_id, "exit code 1", died=True)
    end_run(engine, run_id, "later", died=False)
    submit_stop(engine, run_id)
    run = ended_runs(engine, 0)["a"][0]
    assert (run.exit_message, run.died) == ("exit code 1", True)


def newest(engine: Engine) -> str:
    return list_operations(engine)[0].operation_id

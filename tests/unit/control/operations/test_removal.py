"""A group is removed only when nothing is in it, and a game's priority is set with its reason."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, update

from pipeline.base.errors import Refused
from pipeline.cli.main import cli
from pipeline.control.controller import KINDS
from pipeline.control.operations import moves
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.health.facts.liveness import how_alive, read_drivers, read_group_liveness
from pipeline.health.facts.loads import read_loads
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Metrics, Paths, Settings, load
from pipeline.store import audit
from pipeline.store.assignments import read_assignments
from pipeline.store.database.engine import open_store
from pipeline.store.database.tables import drivers
from pipeline.store.games import known_priorities, record_seen
from pipeline.store.groups import Group, change, create, read_groups, remove
from pipeline.store.operations import Operation, operation, submit
from pipeline.store.processes.drivers import heartbeat, start_driver
from pipeline.store.processes.leases import Lease
from pipeline.store.processes.runs import begin_run, end_run, ended_runs


@pytest.fixture
def drained(engine: Engine) -> Group:
    """A group without anything that is to get no games, beside one that has one."""
    create(engine, Group("a"), "ann", "", placing())
    record_seen(engine, {"g1": "One"}, 9, placing())
    return create(engine, Group("b", desired="drained"), "ann", "", placing())


def removed(engine: Engine, name: str = "b") -> None:
    remove(engine, read_groups(engine)[name], "bob", "old machine", how_alive)


def a_move_to_b(engine: Engine) -> Operation:
    for name in "ab":
        start_driver(engine, "group", name, None)
    drivers = read_group_liveness(engine)
    drivers["b"] = replace(drivers["b"], desired="running")
    there = read_assignments(engine)
    return submit(engine, moves.plan({"g1": "b"}, there, drivers).intent("ann", ""))


def test_a_group_with_nothing_in_it_is_forgotten(engine: Engine, drained: Group) -> None:
    """Nothing of it is left to be reported as silent, the audit log keeps who removed it, and its name is free."""
    start_driver(engine, "group", "b", None)
    run_id = begin_run(engine, "b")
    assert run_id is not None
    end_run(engine, run_id, "exit code 1", died=True)
    removed(engine)
    assert set(read_groups(engine)) == {"a"}
    assert not read_drivers(engine).drivers
    assert ended_runs(engine, 0.0) == {}
    (*_, begun, ended) = audit.entries(engine)
    assert [(each.actor, each.action, each.outcome) for each in (begun, ended)] == [
        ("bob", "remove group", None),
        ("bob", "remove group", "succeeded"),
    ]
    assert begun.detail["reason"] == "old machine"
    assert create(engine, Group("b"), "ann", "", placing()).version == 1


@pytest.mark.proves("G104")
def test_a_group_that_is_used_is_not_removed(engine: Engine, drained: Group) -> None:
    """It may get games, has some, or has a process: each says what comes first, and nothing is written."""
    entries = len(list(audit.entries(engine)))
    with pytest.raises(Refused, match=r"Group a is running and may get games. Run `turnout groups drain a`"):
        removed(engine, "a")
    change(engine, read_groups(engine)["a"], replace(read_groups(engine)["a"], desired="stopped"), "ann", "")
    with pytest.raises(Refused, match="Group a still has 1 games"):
        removed(engine, "a")
    lease = Lease(engine, "group", "b", 30.0)
    lease.acquire()
    with pytest.raises(Refused, match="Group b still has a process"):
        removed(engine)
    lease.release()
    begin_run(engine, "b")
    with pytest.raises(Refused, match="Group b still has a process"):
        removed(engine)
    assert set(read_groups(engine)) == {"a", "b"}
    assert len(list(audit.entries(engine))) == entries + 2, "of the change alone"


def test_a_group_whose_driver_is_heard_of_is_not_removed(engine: Engine, drained: Group) -> None:
    """With `store.leases = false` only its heartbeat shows a driver that another tool started."""
    start_driver(engine, "group", "b", None)
    with pytest.raises(Refused, match=r"Group b still has a driver that lives\. Stop it on its host"):
        removed(engine)
    with engine.begin() as connection:
        theirs = update(drivers).where(drivers.c.name == "b")
        connection.execute(theirs.values(state="running", heartbeat_at=time.time() - 50))
    with pytest.raises(Refused, match="still has a driver that lives"):
        remove(
            engine,
            read_groups(engine)["b"],
            "bob",
            "old machine",
            partial(how_alive, metrics=Metrics(heartbeat_seconds=30.0)),
        )
    with engine.begin() as connection:
        connection.execute(theirs.values(heartbeat_at=time.time() + 50))
    with pytest.raises(Refused, match="still has a driver that may live: it sent a heartbeat that is"):
        removed(engine)
    heartbeat(engine, "group", "b", "stopped", None)
    removed(engine)
    assert set(read_groups(engine)) == {"a"}


def test_a_group_that_was_changed_since_it_was_seen_is_not_removed(engine: Engine, drained: Group) -> None:
    """Of two people who decide about a group at the same moment the second finds out."""
    change(engine, drained, replace(drained, priority="high"), "ann", "")
    with pytest.raises(Refused, match="was changed after you opened it"):
        remove(engine, drained, "bob", "old machine", how_alive)


@pytest.mark.proves("G104")
def test_a_group_that_games_are_moving_to_is_not_removed(engine: Engine, drained: Group, tmp_path: Path) -> None:
    """An open move keeps its target; one that was asked for when the group was gone does nothing."""
    begun = a_move_to_b(engine)
    with pytest.raises(Refused, match=f"Group b is part of operation {begun.operation_id[:8]}, which is open"):
        removed(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM groups WHERE name = 'b'")
    tick(ControlContext(Settings(), engine, Paths(tmp_path)), KINDS)
    assert operation(engine, begun.operation_id).outcome == "Nothing was done: there is no group b any more."
    assert read_assignments(engine)["g1"].group == "a"


def test_a_priority_is_set_with_its_reason_and_counts_for_placement(tmp_path: Path) -> None:
    """By name or key; it is in the audit log once for what has changed, and placement goes by it."""
    engine = open_store(*load(tmp_path))
    record_seen(engine, {"go_1": "Go", "chess_1": "Chess"}, 1, placing())
    for _ in range(2):
        arguments = ["games", "priority", "Go", "chess_1", "high", "--reason", "launch", "--env-dir", str(tmp_path)]
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
    assert "0 changed" in done.output
    assert known_priorities(engine) == {"go_1": "high", "chess_1": "high"}
    (begun, _) = audit.entries(engine)
    assert begun.targets == ("game:chess_1", "game:go_1")
    assert begun.detail == {
        "priority": "high", "before": {"chess_1": "normal", "go_1": "normal"}, "reason": "launch",
    }  # fmt: skip
    assert {each.load.priority for each in read_loads(engine, time.time()).games} == {"high"}

"""What a controller may not do any more, or not again: others went on, ended it, or wrote into its rows meanwhile."""

import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Engine, text, update

from pipeline.base.errors import Refused
from pipeline.control.controller import KINDS
from pipeline.control.operations import moves, retirement
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import close, tick
from pipeline.health.facts.placing import placing
from pipeline.health.verdicts.condition import GroupCondition
from pipeline.health.verdicts.liveness import Liveness
from pipeline.settings.tree import Paths, Settings
from pipeline.store import audit
from pipeline.store.assignments import AssignmentConflict, read_assignments, reassign, retire
from pipeline.store.database.states import OperationState
from pipeline.store.database.tables import games, groups
from pipeline.store.games import carried, holds, let_go, record_seen, register_group
from pipeline.store.groups import read_groups
from pipeline.store.operations import (
    Intent,
    Operation,
    OperationConflict,
    begin_step,
    change,
    end_step,
    list_operations,
    operation,
    steps,
    submit,
)
from pipeline.store.stream_control import decided
from tests.unit.store.leases_world import StoreClock, group_lease

ALIVE = {name: GroupCondition(name, Liveness("running", 0.0, None)) for name in "abc"}


@pytest.fixture
def world(engine: Engine) -> ControlContext:
    for name in "abc":
        register_group(engine, name, placing())
    record_seen(engine, {"g1": "One", "g2": "Two"}, 9, placing())
    with engine.begin() as connection:
        connection.execute(update(games).values(group_name="a"))
    return ControlContext(Settings(), engine, Paths(Path()))


def submitted(world: ControlContext, kind: str) -> Operation:
    """Ask for something about both games."""
    if kind == "move":
        return submit(
            world.engine,
            moves.plan({"g1": "b", "g2": "b"}, read_assignments(world.engine), ALIVE).intent("ann", ""),
        )
    facts: dict[str, Any] = dict.fromkeys(("g1", "g2"), "running" if kind == "pause" else "stopped")
    return submit(world.engine, Intent(kind, ("game:g1", "game:g2"), "ann", "", {"games": ["g1", "g2"]}, facts))


@pytest.mark.parametrize("kind", ["move", "pause", "retry"])
@pytest.mark.proves("D8", "G114")
def test_a_controller_that_stood_still_changes_nothing_after_the_end(world: ControlContext, kind: str) -> None:
    """D8: between looking and acting the operation was ended by another; what it then would do is refused."""
    running = change(world.engine, submitted(world, kind), OperationState.RUNNING)
    step = KINDS[kind].steps[0]
    begin_step(world.engine, running, step.name)
    close(world.engine, change(world.engine, running, OperationState.NEEDS_HUMAN, "x"), "ann", "looked after")
    with pytest.raises(OperationConflict):
        step.act(world, running)
    assert decided(world.engine) == {}
    assert {assignment.epoch for assignment in read_assignments(world.engine).values()} == {1}


@pytest.mark.proves("D7")
def test_a_step_that_is_done_is_not_begun_again(world: ControlContext) -> None:
    """D7: a controller that had looked before another one did the step leaves it, so the journal has each once."""
    running = change(world.engine, submitted(world, "pause"), OperationState.RUNNING)
    end_step(world.engine, running, begin_step(world.engine, running, "decide"), "done", "x")
    with pytest.raises(OperationConflict):
        begin_step(world.engine, running, "decide")
    assert len(steps(world.engine, running.operation_id)) == 1


def edit(world: ControlContext, key: str, group: str) -> None:
    with world.engine.begin() as connection:
        connection.execute(
            update(games).where(games.c.game_key == key).values(group_name=group, epoch=games.c.epoch + 1)
        )


@pytest.mark.parametrize("killed", [False, True], ids=["before", "after"])
@pytest.mark.proves("D17")
def test_nothing_was_moved_is_said_only_where_it_is_so(world: ControlContext, killed: bool) -> None:
    """D17: somebody assigns one game of a move before it is done, or after, when nobody had noted yet that it was."""
    running = change(world.engine, submitted(world, "move"), OperationState.RUNNING)
    if killed:
        with world.engine.begin() as connection:
            reassign(connection, {"g1": (1, "b"), "g2": (1, "b")})
    edit(world, "g1", "c")
    tick(world, KINDS)
    there = read_assignments(world.engine)
    assert there["g1"].group == "c", "the last request wins"
    if killed:
        assert there["g2"].group == "b"
        assert operation(world.engine, running.operation_id).is_open
        return
    ended = operation(world.engine, running.operation_id)
    assert ended.outcome == "Nothing was moved: g1 is in c group now, assigned by another request."
    assert there["g2"].group == "a"


@pytest.mark.parametrize("kind", ["retire", "restore"])
@pytest.mark.parametrize("keys", [["g1"], ["g1", "g2"]])
def test_nothing_was_retired_is_said_only_where_it_is_so(world: ControlContext, kind: str, keys: list[str]) -> None:
    """D17: a controller stood still after the change; before another one repeats the step, somebody assigns a game."""
    if kind == "restore":
        with world.engine.begin() as connection:
            retire(connection, dict.fromkeys(keys, 1))
    facts = retirement.plan(kind, keys, read_assignments(world.engine))
    running = change(
        world.engine, submit(world.engine, retirement.intent(kind, facts, "ann", "r")), OperationState.RUNNING
    )
    KINDS[kind].steps[0].act(world, running)
    edit(world, "g1", "c")
    tick(world, KINDS)
    ended = operation(world.engine, running.operation_id)
    assert "Nothing" not in str(ended.outcome), "it was done"
    assert (ended.state == "failed") == (len(keys) == 1), "the other game tells that it was done"
    assert read_assignments(world.engine)["g1"].group == "c", "the last request wins"


def test_a_group_that_was_set_since_a_drain_began_keeps_what_was_set(world: ControlContext) -> None:
    """The last request wins: a group that was stopped between a drain's look and its act is not drained."""
    with world.engine.begin() as connection:
        connection.execute(update(groups).where(groups.c.name == "a").values(desired="stopped", version=2))
    drain = {"g1": (1, "b"), "g2": (1, "b")}, {"a": ("running", "drained")}
    with pytest.raises(AssignmentConflict, match="group a is stopped now"), world.engine.begin() as connection:
        reassign(connection, *drain)
    assert {each.group for each in read_assignments(world.engine).values()} == {"a"}
    assert read_groups(world.engine)["a"].desired == "stopped"
    with world.engine.begin() as connection:
        connection.execute(update(groups).where(groups.c.name == "a").values(desired="running"))
    for _ in range(2):  # done again after a crash it is done once
        with world.engine.begin() as connection:
            reassign(connection, *drain)
    assert (read_groups(world.engine)["a"].desired, read_groups(world.engine)["a"].version) == ("drained", 3)


def test_a_game_that_came_back_to_its_old_group_is_not_waited_for(world: ControlContext) -> None:
    """D17: somebody assigns a moved game back to where it was; its driver need not let go, and the move ends."""
    leases = {name: group_lease(world.engine, name, number) for number, name in enumerate("ab", 1)}
    assert len(carried(world.engine, leases["a"])) == 2
    running = submitted(world, "move")
    tick(world, KINDS)
    edit(world, "g1", "a")
    tick(world, KINDS)
    assert steps(world.engine, running.operation_id)[-1].detail.startswith("Group a still holds 1: g2."), "nor g1"
    let_go(world.engine, leases["a"], ["g2"])
    assert [each.game_key for each in carried(world.engine, leases["b"])] == ["g2"]
    tick(world, KINDS)
    assert [(each.name, each.state) for each in steps(world.engine, running.operation_id)] == [
        ("assign", "done"),
        ("release", "done"),
        ("acquire", "done"),
        ("verify", "running"),
    ]


@pytest.mark.proves("D18")
def test_a_plan_that_nobody_was_shown_is_not_carried_out_and_can_be_closed_once(world: ControlContext) -> None:
    """D18: where its preview was edited an operation stands still, the others go on, and a person ends it."""
    spoilt = submit(world.engine, Intent("pause", ("game:g1",), "ann", "", {"games": ["g1"]}, {"g1": "running"}))
    well = submit(world.engine, Intent("pause", ("game:g2",), "ann", "", {"games": ["g2"]}, {"g2": "running"}))
    query = text("UPDATE operations SET preview = :value WHERE operation_id = :name")
    with world.engine.begin() as connection:
        connection.execute(query, {"value": '{"g2": "running"}', "name": spoilt.operation_id})
    tick(world, KINDS)
    assert operation(world.engine, well.operation_id).state == "verifying"
    found = operation(world.engine, spoilt.operation_id)
    assert found.state == "needs_human"
    assert "Its preview was edited" in str(found.outcome)
    assert "g1" not in decided(world.engine)
    assert close(world.engine, found, "ann", "spoilt by hand").state == "failed"
    (shown,) = (each for each in list_operations(world.engine) if each.operation_id == spoilt.operation_id)
    assert (shown.state, shown.outcome) == ("failed", "Closed by ann: spoilt by hand"), (
        "it has ended, whatever its row holds"
    )
    verdict = audit.verify(world.engine)
    assert verdict.intact
    assert [each.operation_id for each in verdict.unended] == [well.operation_id]
    again = submit(world.engine, Intent("pause", ("game:g1",), "ann", "", {"games": ["g1"]}, {"g1": "running"}))
    assert again.state == "planned"


@pytest.mark.parametrize("jump", [600.0, -600.0])
@pytest.mark.proves("D9")
def test_a_clock_that_jumps_takes_nothing_over(world: ControlContext, jump: float) -> None:
    """D9: neither a machine's clock ten minutes off nor the store's own going back gives a lease or a game away."""
    clock = StoreClock(world.engine)
    holder = group_lease(world.engine, "a", 1)
    other = group_lease(world.engine, "b", 2)
    assert len(carried(world.engine, holder)) == 2
    edit(world, "g1", "b")
    real = time.time
    with patch("time.time", lambda: real() + jump):
        with pytest.raises(Refused, match="Another process drives group a"):
            group_lease(world.engine, "a", 3)
        assert carried(world.engine, other) == []
        holder.renew()
        assert [each.game_key for each in carried(world.engine, holder)] == ["g2"]
    clock.now -= 600.0
    with pytest.raises(Refused, match="Another process drives group a"):
        group_lease(world.engine, "a", 3)
    assert carried(world.engine, other) == []
    assert holds(world.engine, holder, "g2")

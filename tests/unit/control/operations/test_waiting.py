"""However many operations wait, each gets its turn, and looking at all of them costs as many statements as at one."""

import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from pipeline.base.errors import Refused
from pipeline.control.controller import KINDS
from pipeline.control.operations import executor, moves, pauses
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.health.facts.placing import placing
from pipeline.health.verdicts.condition import GroupCondition
from pipeline.health.verdicts.liveness import Liveness
from pipeline.settings.tree import Paths, Settings
from pipeline.store.assignments import read_assignments
from pipeline.store.database.engine import reading
from pipeline.store.games import record_seen, register_group
from pipeline.store.operations import Operation, end_step, list_operations, operation, steps, submit
from tests.unit.store.leases_world import StoreClock

ALIVE = {name: GroupCondition(name, Liveness("running", 0.0, None)) for name in "ab"}


@pytest.fixture
def world(engine: Engine) -> ControlContext:
    """Two groups without drivers, so that whatever is asked for waits."""
    for name in "ab":
        register_group(engine, name, placing())
    record_seen(engine, {f"g{number:02}": f"G{number}" for number in range(40)}, 9, placing())
    return ControlContext(Settings(), engine, Paths(Path()))


def paused(world: ControlContext, number: int) -> Operation:
    facts = pauses.plan("pause", [f"g{number:02}"], read_assignments(world.engine), {})
    return submit(world.engine, pauses.intent("pause", facts, "ann", ""))


def moved(world: ControlContext, number: int) -> Operation:
    key, there = f"g{number:02}", read_assignments(world.engine)
    target = "b" if there[key].group == "a" else "a"
    return submit(world.engine, moves.plan({key: target}, there, ALIVE).intent("ann", ""))


def statements(world: ControlContext) -> int:
    """Return how many statements one tick takes."""
    count = 0

    def counted(*_arguments: object) -> None:
        nonlocal count
        count += 1

    event.listen(world.engine, "before_cursor_execute", counted)
    tick(world, KINDS)
    event.remove(world.engine, "before_cursor_execute", counted)
    return count


@pytest.mark.proves("G102")
def test_a_look_takes_the_same_statements_for_one_and_for_many(world: ControlContext) -> None:
    """They share what is read: the controller's look must not grow by statements with each operation that waits."""
    made = [paused(world, 0), moved(world, 20)]
    tick(world, KINDS)
    few = statements(world)
    made += [paused(world, number) for number in range(1, 20)] + [moved(world, number) for number in range(21, 40)]
    tick(world, KINDS)
    assert statements(world) == few < 10
    assert {operation(world.engine, each.operation_id).state for each in made} == {"running", "verifying"}


def test_an_operation_waits_for_a_store_that_is_away(world: ControlContext) -> None:
    """B3: an outage within one look fails no operation, neither as it begins nor in a step; a refusal does."""

    def unread(*_: object) -> Any:
        with reading():
            raise OperationalError("SELECT 1", {}, sqlite3.OperationalError("disk I/O error"))

    def refused(*_: object) -> Any:
        raise Refused("no")

    first, second, kind = paused(world, 0), paused(world, 1), KINDS["pause"]
    tick(world, {**KINDS, "pause": replace(kind, facts=unread)})
    assert operation(world.engine, first.operation_id).state == "planned"
    steps_away = tuple(replace(each, act=unread) for each in kind.steps)
    tick(world, {**KINDS, "pause": replace(kind, steps=steps_away)})
    assert operation(world.engine, second.operation_id).state == "running"
    tick(world, {**KINDS, "pause": replace(kind, steps=tuple(replace(each, act=refused) for each in kind.steps))})
    assert operation(world.engine, second.operation_id).state == "failed"


@pytest.mark.proves("G102")
def test_a_newer_operation_does_not_wait_for_those_that_wait(
    world: ControlContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where more wait than one tick looks at, the newest is begun at once, and the others take turns."""
    monkeypatch.setattr(executor, "_MAX_LOOKED_AT", 4)
    old = [paused(world, number) for number in range(10)]
    for _ in range(6):
        tick(world, KINDS)
    new = moved(world, 20)
    tick(world, KINDS)
    assert operation(world.engine, new.operation_id).state == "running"
    before = {each.operation_id: world.turns[each.operation_id] for each in old}
    for _ in range(math.ceil(11 / 4)):
        tick(world, KINDS)
    assert all(world.turns[name] > turn for name, turn in before.items())


def test_those_that_can_go_on_take_turns_too(world: ControlContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick brings on a bounded number, so the groups are looked after in between; nobody is passed over for ever."""
    monkeypatch.setattr(executor, "_MAX_ADVANCED", 2)
    made = [paused(world, number) for number in range(7)]
    begun = []
    for _ in range(4):
        tick(world, KINDS)
        begun.append(sum(operation(world.engine, each.operation_id).state != "planned" for each in made))
    assert begun == [2, 4, 6, 7]


def test_what_only_waits_still_says_for_what_and_for_how_long(world: ControlContext) -> None:
    """Looking at many at once forgets neither a changed sentence nor the time after which a person is asked."""
    clock = StoreClock(world.engine)
    one = moved(world, 20)
    tick(world, KINDS)
    (_, waiting) = steps(world.engine, one.operation_id)[-2:]
    assert (waiting.name, waiting.state) == ("acquire", "running")
    record_seen(world.engine, {"g20": "G20"}, 12, placing())
    end_step(world.engine, one, waiting.number, "running", "an older sentence")
    tick(world, KINDS)
    assert steps(world.engine, one.operation_id)[-1].detail == waiting.detail
    clock.now += 121.0
    tick(world, KINDS)
    assert operation(world.engine, one.operation_id).state == "needs_human"


def test_an_operation_that_breaks_when_it_is_looked_at_keeps_no_other_one(world: ControlContext) -> None:
    """Its game is gone from the store: a person is asked about it, and the others are looked at."""
    broken, whole = paused(world, 0), paused(world, 1)
    tick(world, KINDS)
    with world.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM games WHERE game_key = 'g00'")
    tick(world, KINDS)
    states = {each.operation_id: each.state for each in list_operations(world.engine)}
    assert states == {broken.operation_id: "needs_human", whole.operation_id: "verifying"}

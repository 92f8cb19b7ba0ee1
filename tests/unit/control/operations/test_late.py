"""An operation that waited too long needs a person, or what it waited for: whichever comes first."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Engine

from listeners.sample import Lane
from pipeline.control.controller import KINDS
from pipeline.control.operations import groups, moves, pauses, retirement
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.control.roles import CONTROLLER
from pipeline.health.facts.placing import placing
from pipeline.settings.tree import Paths, Settings
from pipeline.store import audit
from pipeline.store.assignments import read_assignments
from pipeline.store.database.states import OperationState
from pipeline.store.groups import Group, create, read_groups
from pipeline.store.operations import Intent, Operation, change, open_by_target, operation, submit
from pipeline.store.processes.runs import begin_run, end_run
from tests.unit.control.operations.move_world import ALIVE, Drivers
from tests.unit.store.leases_world import SECONDS


@pytest.fixture
def drivers(engine: Engine) -> Drivers:
    return Drivers(engine)


@pytest.fixture
def world(drivers: Drivers, tmp_path: Path) -> ControlContext:
    return ControlContext(Settings(), drivers.store, Paths(tmp_path))


def move(drivers: Drivers) -> Intent:
    target = "b" if drivers.group_of("g1") == "a" else "a"
    return moves.plan({"g1": target}, read_assignments(drivers.store), ALIVE).intent("ann", "")


def decision(kind: str) -> Callable[[Drivers], Intent]:
    def intent(drivers: Drivers) -> Intent:
        return pauses.intent(kind, pauses.plan(kind, ["g1"], read_assignments(drivers.store), {}), "ann", "")

    return intent


def retire(drivers: Drivers) -> Intent:
    facts = retirement.plan("retire", ["g1"], read_assignments(drivers.store))
    return retirement.intent("retire", facts, "ann", "why")


def restart(drivers: Drivers) -> Intent:
    return groups.intent("restart", groups.plan("restart", ["d"], read_groups(drivers.store)), "ann", "why")


REQUESTS: Final[Mapping[str, Callable[[Drivers], Intent]]] = {
    "move": move, "pause": decision("pause"), "retire": retire, "restart": restart,
}  # fmt: skip


def run_late(drivers: Drivers, world: ControlContext, intent: Intent) -> Operation:
    """Request it, and let its time pass while the drivers live and do nothing."""
    submitted = submit(drivers.store, intent)
    for _ in range(8):
        tick(world, KINDS)
        drivers.clock.now += SECONDS
        for lease in drivers.leases.values():
            lease.renew()
    late = operation(drivers.store, submitted.operation_id)
    assert late.state == "needs_human"
    assert tick(world, KINDS) == 0, "there is nothing to do, and its effect is not there"
    assert operation(drivers.store, submitted.operation_id) == late
    return late


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.proves("D10")
def test_what_comes_late_ends_the_operation_without_a_person(
    drivers: Drivers, world: ControlContext, kind: str
) -> None:
    """D10: a driver that comes back does what it was asked; its operation ends and its games are free."""
    create(drivers.store, Group("d", backend="local"), "ann", "", placing())
    run_id = begin_run(drivers.store, "d")
    assert run_id is not None
    late = run_late(drivers, world, REQUESTS[kind](drivers))
    end_run(drivers.store, run_id, "exit code 0", died=False)
    for _ in range(3):
        for name in "abc":
            drivers.boundary(name, Lane.PAUSED if kind == "pause" else Lane.RUN)
        tick(world, KINDS)
    found = operation(drivers.store, late.operation_id)
    assert found.state == ("verifying" if kind == "restart" else "succeeded"), found.outcome
    assert bool(open_by_target(drivers.store, late.targets)) == (kind == "restart")
    went_on = [each for each in audit.entries(drivers.store) if each.action == "resume operation"]
    assert {(each.actor, each.operation_id) for each in went_on} == {(CONTROLLER, late.operation_id)}
    assert audit.verify(drivers.store).intact


def test_what_broke_stays_a_persons(drivers: Drivers, world: ControlContext) -> None:
    """One that met a bug waits for nothing: that its effect is there does not say that it may go on."""
    submitted = submit(drivers.store, decision("pause")(drivers))
    tick(world, KINDS)
    change(
        drivers.store,
        operation(drivers.store, submitted.operation_id),
        OperationState.NEEDS_HUMAN,
        "It cannot go on: KeyError: 7",
    )
    for name in "abc":
        drivers.boundary(name, Lane.PAUSED)
    tick(world, KINDS)
    assert operation(drivers.store, submitted.operation_id).state == "needs_human"

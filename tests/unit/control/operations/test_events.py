"""The controller notes events of each game of a move, each as soon as it is seen."""

from pathlib import Path

import pytest

from pipeline.control.controller import KINDS
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.settings.tree import Paths, Settings
from pipeline.store.assignments import reassign
from pipeline.store.operation_events import read_events
from pipeline.store.operations import Operation
from tests.unit.control.operations.move_world import Drivers, drivers, others, state, submitted

__all__ = ["drivers"]  # a fixture


@pytest.fixture
def world(drivers: Drivers, tmp_path: Path) -> ControlContext:
    return ControlContext(Settings(), drivers.store, Paths(tmp_path))


def noted(drivers: Drivers, begun: Operation, key: str) -> dict[str, str]:
    found = read_events(drivers.store, [begun.operation_id], f"game:{key}").get(begun.operation_id, [])
    return {each.name: each.detail for each in found}


def test_each_game_of_a_move_has_its_own_events(drivers: Drivers, world: ControlContext) -> None:
    """A game that is level has all four, though the operation still waits for another game's old driver."""
    first = str(drivers.group_of("g1"))
    other = next(key for key in ("g2", "g3", "g4", "g5", "g6") if drivers.group_of(key) != first)
    second = str(drivers.group_of(other))
    (target,) = set(others(drivers, "g1")) - {second}
    begun = submitted(drivers, {"g1": target, other: target})
    tick(world, KINDS)
    assert noted(drivers, begun, "g1") == {"assign": f"{first} → {target}, epoch 2"}
    for name in (first, target):
        drivers.boundary(name)
        tick(world, KINDS)
    assert noted(drivers, begun, "g1") == {
        "assign": f"{first} → {target}, epoch 2",
        "release": f"{first} let go",
        "acquire": f"{target} took it",
        "verify": f"{target} is level, at seq 9",
    }
    assert noted(drivers, begun, other).keys() == {"assign"}
    assert state(drivers, begun) == "running"
    for name in (second, target):
        drivers.boundary(name)
        tick(world, KINDS)
    assert noted(drivers, begun, other).keys() == {"assign", "release", "acquire", "verify"}
    assert state(drivers, begun) == "succeeded"


def test_a_game_that_was_moved_on_gets_no_more_events(drivers: Drivers, world: ControlContext) -> None:
    """Its later events belong to the later move."""
    source, (target, last) = str(drivers.group_of("g1")), others(drivers, "g1")
    begun = submitted(drivers, {"g1": target})
    tick(world, KINDS)
    with drivers.store.begin() as connection:
        reassign(connection, {"g1": (2, last)}, {})
    drivers.boundary(source)
    tick(world, KINDS)
    assert noted(drivers, begun, "g1").keys() == {"assign"}

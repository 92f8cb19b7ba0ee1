"""Chess, whose moves nobody declared, and operations about them, which a controller carries out."""

from concurrent.futures import wait

from pipeline.control.controller import KINDS
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.data.repair.rebuild import rebuild
from pipeline.lake.delta.log import exists
from pipeline.lake.delta.opening import open_table
from pipeline.store.games import Game
from pipeline.store.operations import Operation, operation
from tests.tables.registering_world import registry
from tests.tables.shapes_world import GAME, KEY, table
from tests.tables.value_world import ValueWorld

CHESS = Game(KEY, GAME)


def refused(world: ValueWorld) -> list[str]:
    """Return the reasons of the rows in quarantine."""
    if not exists(world.paths.quarantine):
        return []
    held: list[str] = open_table(world.paths.quarantine).to_pyarrow_table(columns=["reason"])["reason"].to_pylist()
    return held


def context(world: ValueWorld) -> ControlContext:
    return ControlContext(world.settings, world.engine, world.paths)


def carried_out(world: ValueWorld, begun: Operation) -> Operation:
    of_controller = context(world)
    for _ in range(8):
        tick(of_controller, KINDS)
        wait(list(of_controller.background_tasks._begun.values()))
    return operation(world.engine, begun.operation_id)


def rebuilt(world: ValueWorld) -> None:
    rebuild(world.paths, world.environment, world.engine, registry(world).snapshot, CHESS)


def rebuild_is_the_same(world: ValueWorld) -> None:
    before = table(world)
    rebuilt(world)
    assert table(world) == before


def is_clean(world: ValueWorld) -> bool:
    """Whether every row of bronze is in the table or in quarantine, once, with bronze's values."""
    checked = world.check()
    assert checked.values is not None
    return checked.ok and checked.values.mismatches == 0

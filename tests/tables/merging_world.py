"""Chess, whose moves had several kinds of values at one key; merges of their columns, and each way to its table."""

from pathlib import Path
from typing import Any, Final

from pipeline.control.operations.definition import OperationProposal
from pipeline.control.operations.merged_columns import propose_merge
from pipeline.data.repair.rebuild import rebuild
from pipeline.data.variations.registering import Registrar
from pipeline.store.operations import Operation, submit
from tests.tables.choices_world import carried_out
from tests.tables.registering_world import arrive, drive, registry, require_kept, world_of
from tests.tables.repair_world import CHESS
from tests.tables.shapes_world import GAME, by_tasks, one_by_one, table, types, without_nulls
from tests.tables.value_world import ValueWorld

OWN: Final = ("_seq", "_pos", "_event_time", "_event_id", "_source_time", "_type", "_schema_id")


def mixed(folder: Path) -> ValueWorld:
    """Chess, whose moves had numbers as x, then texts, and y with and without a fraction."""
    made = world_of(folder, [("move", b'{"x":1,"y":1}'), ("move", b"{}")])
    drive(made)
    arrive(made, [("move", b'{"x":"a","y":2.5}'), ("move", b'{"x":[1,"b"]}'), ("move", b'{"x":{"k":5}}')])
    drive(made)
    return made


def values(world: ValueWorld) -> list[dict[str, Any]]:
    """Each row's values that are not null, without those of columns of our own."""
    rows = map(without_nulls, table(world))
    return [{name: value for name, value in row.items() if name not in OWN} for row in rows]


def proposed(world: ValueWorld, column: str, of_type: str | None = None) -> OperationProposal:
    return propose_merge(world.engine, world.paths, GAME, column, of_type, "ann", "one column")


def merged(world: ValueWorld, column: str, of_type: str | None = None) -> Operation:
    done = carried_out(world, submit(world.engine, proposed(world, column, of_type).intent))
    assert done.state == "succeeded", done.outcome
    return done


def chosen(world: ValueWorld, *choice: str, of_type: str = "move") -> None:
    """Register a choice, as an operation does before it rebuilds."""
    Registrar(world.engine, world.paths.bronze, world.environment).choose(CHESS, of_type, choice)


def require_laws(world: ValueWorld, folder: Path) -> None:
    """Compare the table with each other way to it."""
    rows = [without_nulls(row) for row in table(world)]
    assert by_tasks(world, folder / "at-once", ()) == rows, "one task reads all rows"
    assert by_tasks(world, folder / "cut", (1, 3)) == rows, "tasks read pieces"
    assert one_by_one(world, folder / "alone") == rows, "a task reads each row"
    kinds = types(world)
    require_kept(world)
    rebuild(world.paths, world.environment, world.engine, registry(world).snapshot, CHESS)
    assert ([without_nulls(row) for row in table(world)], types(world)) == (rows, kinds), "a rebuild"
    balance = world.check()
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches, balance.values.rows) == ((), 0, len(rows))

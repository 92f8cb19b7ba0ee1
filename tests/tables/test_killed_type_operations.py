"""The first event type of a game is nested and flattened once, wherever its controller was killed."""

from itertools import count
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.control import proposals
from pipeline.control.controller import KINDS
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import tick
from pipeline.control.operations.nested_types import propose_nesting
from pipeline.data.contracts.further_types import game_types
from pipeline.data.verify.balance import verify
from pipeline.data.verify.values import Wanted
from pipeline.health.facts.placing import placing
from pipeline.lake.delta.opening import open_table
from pipeline.store import audit
from pipeline.store.database.states import OperationKind
from pipeline.store.games import generations, register_group
from pipeline.store.operations import Operation, operation, submit
from tests.tables.killed_world import brought_on, fated
from tests.tables.repair_world import CHESS, World, copied, good, make_world
from tests.tables.types_world import SOLD, accept, come, event


def ends(world: World, begun: Operation, number: int = 0) -> list[str]:
    """Let a controller bring an operation on until it dies at its n-th point; return the points it came to."""
    with fated(world.engine, number) as fate:
        context = ControlContext(world.settings, world.engine, world.paths)
        brought_on(context, lambda each: tick(each, KINDS), begun.operation_id)
    return fate.passed


def nests(world: World) -> Operation:
    return submit(world.engine, propose_nesting(world.engine, CHESS.key, "ann", "one column for each type").intent)


def flattens(world: World, nested: Operation) -> Operation:
    undo = proposals.undo(world.settings, world.engine, operation(world.engine, nested.operation_id), "ann", "not so")
    return submit(world.engine, undo.intent)


@pytest.fixture
def before(tmp_path: Path) -> World:
    """Chess with two rows of its first type and one of another in its table."""
    made = make_world(tmp_path / "before")
    register_group(made.engine, "a", placing())
    (sold,) = come(made, SOLD)
    accept(made, "Sold")
    made.ingest(good(1), event(sold, item="bow", price=5), good(3))
    made.split()
    return made


def require_done(world: World, begun: Operation, column: str, generation: int) -> None:
    """Require all rows with their values in the one column, a new generation, and nothing left to do.

    A rebuild that was killed before its step was recorded is made again.
    """
    done = operation(world.engine, begun.operation_id)
    assert done.state == "succeeded", done.outcome
    fields = [each.name for each in open_table(world.paths.table(CHESS.key)).schema().fields]
    assert sorted(each for each in fields if not each.startswith("_")) == [column, "sold"]
    points = [row[column]["points"] if column == "m" else row["points"] for row in world.contents() if row[column]]
    assert points == [1, 3, 4]
    assert generations(world.engine)[CHESS.key] in {generation, generation + 1}
    balance = verify(
        world.paths, world.environment, generations(world.engine), wanted=Wanted(world.registry.snapshot())
    )
    assert balance.values is not None
    assert (balance.problems, balance.values.mismatches) == ((), 0)
    assert audit.verify(world.engine).unended == ()
    assert ends(world, begun) == [], "it has ended"


@pytest.mark.parametrize("kind", [OperationKind.NEST_TYPE, OperationKind.FLATTEN_TYPE])
@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
@pytest.mark.proves("G240")
def test_a_controller_killed_between_any_two_effects_moves_the_columns_once(
    before: World, tmp_path: Path, kind: OperationKind, stride: int
) -> None:
    """Laws L5, L12: the next controller ends the operation in a new generation, and a second one is refused."""
    is_nesting = kind == OperationKind.NEST_TYPE
    column, generation = ("m", 2) if is_nesting else ("points", 3)
    nested = None if is_nesting else nests(before)
    if nested is not None:
        ends(before, nested)
    for number in count(1, stride):
        world = copied(before, tmp_path / str(number))
        begun = nests(world) if nested is None else flattens(world, nested)
        is_killed = len(ends(world, begun, number)) >= number
        world.ingest(good(4))
        world.split()  # a pass lands rows meanwhile, with whichever place the columns have now
        ends(world, begun)
        require_done(world, begun, column, generation)
        types = game_types(world.registry.snapshot(), CHESS.key)
        assert [each.struct for each in types if "t.M" in each.names] == ["m" if is_nesting else None]
        if is_nesting:
            with pytest.raises(Refused):
                nests(world)
        world.engine.dispose()
        if not is_killed:
            break

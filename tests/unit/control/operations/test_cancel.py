"""A person ends an operation before it is done: where nothing was begun, or where it only waits, and nowhere else."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import Refused
from pipeline.control.controller import KINDS
from pipeline.control.operations import moves
from pipeline.control.operations.definition import ControlContext
from pipeline.control.operations.executor import cancel, close, require_undoable, tick
from pipeline.settings.tree import Paths, Settings
from pipeline.store import audit
from pipeline.store.assignments import read_assignments
from pipeline.store.database.states import OperationState
from pipeline.store.operations import Operation, begin_step, change, open_by_target, operation, steps
from tests.unit.control.operations.move_world import ALIVE, Drivers, drivers, others, state, submitted

__all__ = ["drivers"]  # a fixture


@pytest.fixture
def world(drivers: Drivers, tmp_path: Path) -> ControlContext:
    return ControlContext(Settings(), drivers.store, Paths(tmp_path))


def cancelled(drivers: Drivers, begun: Operation) -> Operation:
    return cancel(drivers.store, operation(drivers.store, begun.operation_id), "bob", "too late")


@pytest.mark.proves("G103")
def test_what_nobody_has_begun_is_never_done(drivers: Drivers, world: ControlContext) -> None:
    """It ends as cancelled, its games are free, the audit log has both acts, and no later look takes it up."""
    source = str(drivers.group_of("g1"))
    ended = cancelled(drivers, submitted(drivers, {"g1": others(drivers, "g1")[0]}))
    assert (ended.state, ended.outcome) == ("cancelled", "Cancelled by bob: too late. Nothing was done.")
    tick(world, KINDS)
    assert drivers.group_of("g1") == source
    assert open_by_target(drivers.store, ["game:g1"]) == {}
    reported = [(each.actor, each.action, each.phase, each.outcome) for each in audit.entries(drivers.store)]
    assert reported == [
        ("ann", "move", "begun", None), ("bob", "cancel", "begun", None),
        ("ann", "move", "ended", "cancelled"), ("bob", "cancel", "ended", "succeeded"),
    ]  # fmt: skip
    assert audit.verify(drivers.store).intact
    with pytest.raises(Refused, match="has done nothing, so there is nothing to undo"):
        require_undoable(drivers.store, ended)


def test_what_only_waits_ends_and_what_was_done_is_taken_back(drivers: Drivers, world: ControlContext) -> None:
    """A move whose games are assigned already says so; undo asks for the way back, which is done like any other."""
    source, (target, _) = str(drivers.group_of("g1")), others(drivers, "g1")
    begun = submitted(drivers, {"g1": target})
    tick(world, KINDS)
    ended = cancelled(drivers, begun)
    assert ended.outcome is not None
    assert ended.outcome.startswith("Cancelled by bob: too late. What was done stays: assign; `turnout ops undo")
    assert [(each.name, each.state) for each in steps(drivers.store, ended.operation_id)] == [
        ("assign", "done"),
        ("release", "failed"),
    ]
    assert drivers.group_of("g1") == target
    require_undoable(drivers.store, ended)
    back = moves.undo(ended, read_assignments(drivers.store), ALIVE)
    assert [(each.game_key, each.target) for each in back.moves] == [("g1", source)]


def test_a_step_at_work_is_not_interrupted(drivers: Drivers, world: ControlContext) -> None:
    """While a controller assigns nobody can say that nothing was done, so nobody cancels."""
    begun = change(drivers.store, submitted(drivers, {"g1": others(drivers, "g1")[0]}), OperationState.RUNNING)
    begin_step(drivers.store, begun, "assign")
    with pytest.raises(Refused, match="its step assign is running and cannot be interrupted"):
        cancelled(drivers, begun)
    assert state(drivers, begun) == "running"
    tick(world, KINDS)
    assert cancelled(drivers, begun).state == "cancelled"


def test_what_has_ended_or_needs_a_person_is_not_cancelled(drivers: Drivers) -> None:
    """Each has its own way out, and the sentence names it; so has what was changed since it was seen."""
    seen = submitted(drivers, {"g1": others(drivers, "g1")[0]})
    waits = change(drivers.store, seen, OperationState.NEEDS_HUMAN, "Look.")
    with pytest.raises(Refused, match="end it with `turnout ops close"):
        cancelled(drivers, waits)
    with pytest.raises(Refused, match="was changed while you looked at it"):
        cancel(drivers.store, replace(seen), "bob", "too late")
    close(drivers.store, waits, "bob", "looked")
    with pytest.raises(Refused, match="has ended: it is failed"):
        cancelled(drivers, waits)

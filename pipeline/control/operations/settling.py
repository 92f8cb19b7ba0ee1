"""Operations that register something about a game, and wait until its driver writes by it.

Rows that a pass refused while it still had the earlier schema set would be left behind by a replay that comes too soon.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from listeners.sample import Lane
from pipeline.base.texts import join_limited
from pipeline.control.operations.definition import (
    Act,
    ControlContext,
    Level,
    OperationDefinition,
    Propose,
    StepDefinition,
    StepResult,
    of_one_game,
)
from pipeline.control.operations.tries import looked
from pipeline.control.roles import Role
from pipeline.data.repair.landed_stops import require_no_stop
from pipeline.health.facts.liveness import read_group_liveness
from pipeline.store.assignments import read_assignments
from pipeline.store.database.states import OperationKind
from pipeline.store.games import find, known_names
from pipeline.store.operations import Operation, steps
from pipeline.store.schema_versions import newest_registrations

_SETTLE_PASSES: Final = 2.0  # triggers until a pass with the earlier schema set has ended
_LOOK_SECONDS: Final = 3600.0  # a game's whole table may be read
_NOT_READ: Final = frozenset({Lane.PAUSED, Lane.QUARANTINED})


def registering(
    kind: OperationKind, register: Act, facts: Callable[[ControlContext, Operation], Mapping[str, Any]],
    done: Callable[[Operation], str], propose: Propose, unchanged: str, inverse: OperationKind, *more: StepDefinition,
    level: Level = 1,
) -> OperationDefinition:  # fmt: skip
    """Return the definition of a kind that registers something and settles; `more` steps come after that.

    Where one of them is a rebuild, which landed rows would stop, the operation ends before it registers anything.
    """
    rebuilds = any(each.name == "rebuild" for each in more)
    given = (
        *((StepDefinition("look", _look, _LOOK_SECONDS),) if rebuilds else ()),
        StepDefinition("register", register, 30.0),
        StepDefinition("settle", _settle, 300.0, verifies=not more, looks=True),
    )
    return OperationDefinition(
        kind, Role.OPERATOR, of_one_game(level), (*given, *more), facts, done, inverse, propose=propose,
        unchanged=unchanged,
    )  # fmt: skip


def _look(context: ControlContext, asked: Operation) -> StepResult:
    """Look for landed rows that break a rule which stops their stream."""

    def look() -> str:
        schemas, known = context.registry.snapshot(), known_names(context.engine)
        for game in (find(key, known) for key in asked.parameters["games"]):
            require_no_stop(context.paths.table(game.key), schemas, game)
        return "No landed row stops the rebuild."

    return looked(context, asked, look, "Landed rows are compared with rules that stop the stream.", keep=False)


def _settle(context: ControlContext, asked: Operation) -> StepResult:
    """Wait until the game's driver, where one runs, writes its rows by the new schema set.

    A driver that has just started does not know it before its first pass: then two triggers are enough.
    """
    began = max(each.ended_at or 0.0 for each in steps(context.engine, asked.operation_id) if each.name == "register")
    until = began + _SETTLE_PASSES * context.settings.demux.trigger_seconds
    assignments, numbers = context.read(read_assignments), newest_registrations(context.engine)
    groups = read_group_liveness(context.engine, context.settings.metrics)
    waiting = []
    for key in asked.parameters["games"]:
        if (assignment := assignments.get(key)) is None:
            continue  # no row of it has come yet
        group = groups.get(assignment.group or "")
        if group is None or not group.liveness.is_live or assignment.lane in _NOT_READ:
            continue  # no driver reads its rows, and the next one begins with the newest set
        if assignment.schema_set is None:
            has_settled = (assignment.reported_at or 0.0) > until
        else:
            has_settled = assignment.schema_set >= numbers.get(key, 0)
        if not has_settled:
            waiting.append(key)
    if waiting:
        return StepResult("waiting", f"The driver of {join_limited(waiting)} still writes by the earlier schema set.")
    return StepResult("done", "Passes use the new schema set.")

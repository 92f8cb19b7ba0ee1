"""Retires games and restores them: what a retired game sends stays in bronze and is counted; no group carries it.

Its name stays a game, so it is not onboarded again, its chain goes on, and once restored it catches up from its cursor.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited
from pipeline.control.operations.definition import (
    ControlContext,
    Level,
    Offer,
    OperationDefinition,
    OperationProposal,
    StepDefinition,
    StepResult,
    intent_of,
    of_one_game,
)
from pipeline.control.operations.facts import GameFacts
from pipeline.control.operations.moves import release
from pipeline.control.roles import Role
from pipeline.health.facts.placing import placing_by
from pipeline.store import assignments as store
from pipeline.store.assignments import AssignmentConflict, GameAssignment, read_assignments
from pipeline.store.database.states import OperationKind
from pipeline.store.games import assign_waiting
from pipeline.store.operations import Operation, lock_operation

_RELEASE_SECONDS: Final = 120.0  # as long as a move waits for it
_SEEN_SECONDS: Final = 300.0
intent: Final = partial(intent_of, "game")


def plan(kind: str, keys: Sequence[str], assignments: Mapping[str, GameAssignment]) -> dict[str, Any]:
    """Return what an operation is about, game key → its group and the epoch of its assignment.

    Games it would change nothing of are left out.

    Raises:
        Refused: a game does not exist.
    """
    unknown = sorted(set(keys) - assignments.keys())
    if unknown:
        raise Refused(f"No such game: {join_limited(unknown)}. `turnout games list` shows those there are.")
    chosen = [key for key in sorted(set(keys)) if _changes(kind, retired=assignments[key].retired_at is not None)]
    return {key: [assignments[key].group, assignments[key].epoch] for key in chosen}


def _changes(kind: str, *, retired: bool) -> bool:
    """Return whether an operation would change anything of a game."""
    return retired == (kind == OperationKind.RESTORE)


def render_preview(kind: str, facts: Mapping[str, Any], assignments: Mapping[str, GameAssignment]) -> list[str]:
    """Return what an operation does, as lines for people."""
    lines = []
    for key in facts:
        behind = "cursor unknown" if assignments[key].cursor_seq is None else f"cursor {assignments[key].cursor_seq}"
        lines.append(f"{key}: {assignments[key].group or 'no group'}, {behind} of {assignments[key].last_seq}")
    what = {
        OperationKind.RETIRE: "No group carries them until a restore; their rows stay in bronze.",
        OperationKind.RESTORE: "Each gets a group and catches up from its table's cursor.",
    }
    return [*lines, f"{len(facts)} to {kind}. {what[OperationKind(kind)]}"]


def _propose(
    kind: OperationKind, engine: Engine, names: Sequence[str], actor: str, reason: str, undoes: str | None
) -> OperationProposal:
    assignments = read_assignments(engine)
    facts = plan(kind, names, assignments)
    if kind == OperationKind.RESTORE and undoes is None and (live := sorted(set(names) - facts.keys())):
        raise Refused(f"Not retired, so nothing was restored: {join_limited(live)}.")
    return OperationProposal(intent(kind, facts, actor, reason, undoes), render_preview(kind, facts, assignments))


def _facts(context: ControlContext, operation: Operation) -> Mapping[str, Any]:
    return plan(operation.kind, operation.parameters["games"], context.read(read_assignments))


def _retire(context: ControlContext, operation: Operation) -> StepResult:
    return _change(context, operation, "retired")


def _restore(context: ControlContext, operation: Operation) -> StepResult:
    progress = _change(context, operation, "restored")
    if progress.state == "done":
        assign_waiting(context.engine, placing_by(context.settings))
    return progress


def _change(context: ControlContext, operation: Operation, verb: str) -> StepResult:
    change = store.retire if operation.kind == OperationKind.RETIRE else store.restore
    try:
        with context.engine.begin() as connection:
            lock_operation(connection, operation)
            change(connection, {key: epoch for key, (_, epoch) in operation.preview.items()})
    except AssignmentConflict as moved:
        return StepResult("failed", str(moved))
    return StepResult("done", f"{len(operation.preview)} {verb}.")


def _verify(context: ControlContext, operation: Operation) -> StepResult:
    """Check whether a driver reports each, and each runs, has caught up, is not to run or waits for a schema."""
    assignments = context.read(read_assignments)
    homeless = [
        key for key in operation.preview if assignments[key].group is None and assignments[key].retired_at is None
    ]
    if homeless:  # the controller gives it one at each look, where there is room
        return StepResult("waiting", f"There is no group yet for {len(homeless)}: {join_limited(homeless)}.")
    unseen = [key for key in operation.preview if not _is_back(assignments[key], operation)]
    if unseen:
        return StepResult("waiting", f"{len(unseen)} not caught up yet: {join_limited(unseen)}.")
    return StepResult("done", store.render_waits(assignments[key] for key in operation.preview))


def _is_back(assignment: GameAssignment, operation: Operation) -> bool:
    if assignment.retired_at is not None:
        return True  # another request retired it again since: the last one wins
    reported = (
        assignment.reported_group == assignment.group and (assignment.reported_at or 0.0) > operation.requested_at
    )
    return reported and assignment.is_settled


def _done(verb: str, operation: Operation) -> str:
    return f"{verb}: {join_limited(operation.parameters['games'])}."


def _define(
    kind: OperationKind, level: Level, verb: str, unchanged: str, offer: Offer[GameFacts], inverse: OperationKind,
    *steps: StepDefinition,
) -> OperationDefinition:  # fmt: skip
    return OperationDefinition(
        kind, Role.MOVER, of_one_game(level), steps, _facts, partial(_done, verb), inverse,
        propose=partial(_propose, kind), unchanged=unchanged, of_game=offer,
    )  # fmt: skip


RETIRE: Final = _define(
    OperationKind.RETIRE, 2, "Retired", "is retired already",
    Offer(lambda _: None, "No group carries it until it is restored; its rows stay in bronze."),
    OperationKind.RESTORE,
    StepDefinition("retire", _retire, 30.0),
    StepDefinition("release", release, _RELEASE_SECONDS, verifies=True, looks=True),
)  # fmt: skip
RESTORE: Final = _define(
    OperationKind.RESTORE, 1, "Restored", "is not retired",
    Offer(
        lambda facts: None if _changes(OperationKind.RESTORE, retired=facts.retired) else "It is not retired.",
        "It gets a group, and catches up from its table's cursor.", of_retired=True,
    ),
    OperationKind.RETIRE,
    StepDefinition("restore", _restore, 30.0),
    StepDefinition("verify", _verify, _SEEN_SECONDS, verifies=True, looks=True, reports=True),
)  # fmt: skip

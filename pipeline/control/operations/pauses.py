"""Pauses and resumes streams, and lets failed ones try again: it is decided, and done when their drivers report it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from listeners.sample import Lane
from pipeline.control.operations.executor import (
    ControlContext,
    OperationDefinition,
    StepDefinition,
    StepResult,
    join_limited,
)
from pipeline.errors import Refused
from pipeline.store.assignments import GameAssignment, read_assignments, require_carried
from pipeline.store.operations import Intent, Operation, lock_operation
from pipeline.store.stream_control import Desired, StreamControl, ask_retry_within, ask_within, decided

_SEEN_SECONDS: Final = 120.0
_NOTHING: Final = StreamControl()


def plan(
    kind: str, keys: Sequence[str], assignments: Mapping[str, GameAssignment], decisions: Mapping[str, StreamControl]
) -> dict[str, Any]:
    """Return what an operation is about, game key → what is decided now; games it would change nothing of are left out.

    Raises:
        Refused: a game does not exist, or is retired.
    """
    unknown = sorted(set(keys) - assignments.keys())
    if unknown:
        raise Refused(f"No such game: {join_limited(unknown)}. `turnout games list` shows those there are.")
    require_carried(keys, assignments)
    chosen = {key: decisions.get(key, _NOTHING) for key in sorted(set(keys))}
    if kind == "retry":  # how often it has failed may change every second
        return {key: "stopped" for key, each in chosen.items() if each.parked_at is not None or each.failures}
    left = "running" if kind == "pause" else "paused"
    return {key: each.desired for key, each in chosen.items() if each.desired == left}


def intent(kind: str, facts: Mapping[str, Any], actor: str, reason: str, undoes: str | None = None) -> Intent:
    """Return the operation to ask for; `undoes` is the one it is the inverse of."""
    targets = tuple(f"game:{key}" for key in facts)
    return Intent(kind, targets, actor, reason, {"games": sorted(facts)}, facts, undoes=undoes)


def render_preview(kind: str, facts: Mapping[str, Any], assignments: Mapping[str, GameAssignment]) -> list[str]:
    """Return what an operation does, as lines for people."""
    lines = [f"{key}: {assignments[key].lane or 'nothing reported'} in group {assignments[key].group}" for key in facts]
    return [*lines, f"{len(facts)} to {kind}. No other stream is touched."]


def _facts(context: ControlContext, operation: Operation) -> Mapping[str, Any]:
    keys = operation.parameters["games"]
    if operation.kind == "retry":
        plan("retry", keys, context.read(read_assignments), {})
        return dict.fromkeys(keys, "stopped")
    return plan(operation.kind, keys, context.read(read_assignments), context.read(decided))


def _decide(context: ControlContext, operation: Operation) -> StepResult:
    desired: Desired = "paused" if operation.kind == "pause" else "running"
    with context.engine.begin() as connection:
        lock_operation(connection, operation)
        for key in operation.parameters["games"]:
            if operation.kind == "retry":
                ask_retry_within(connection, key, operation.actor)
            else:
                ask_within(connection, key, operation.actor, desired=desired)
    return StepResult("done", f"Decided for {len(operation.parameters['games'])}.")


def _verify(context: ControlContext, operation: Operation) -> StepResult:
    assignments = context.read(read_assignments)
    unseen = [key for key in operation.parameters["games"] if not _is_reported(operation, assignments[key])]
    if unseen:
        return StepResult("waiting", f"No driver has reported {len(unseen)} yet: {join_limited(unseen)}.")
    return StepResult("done", "Their drivers report it.")


def _is_reported(operation: Operation, seat: GameAssignment) -> bool:
    if (seat.reported_at or 0.0) <= operation.requested_at or seat.reported_group != seat.group:
        return False
    if operation.kind == "pause":
        return seat.lane == Lane.PAUSED
    return seat.lane != (Lane.PAUSED if operation.kind == "resume" else Lane.QUARANTINED)


def _done(verb: str, operation: Operation) -> str:
    return f"{verb}: {join_limited(operation.parameters['games'])}."


def _kind(name: str, verb: str) -> OperationDefinition:
    steps = (
        StepDefinition("decide", _decide, 30.0),
        StepDefinition("verify", _verify, _SEEN_SECONDS, verifies=True, looks=True),
    )
    return OperationDefinition(name, steps, _facts, partial(_done, verb))


KINDS: Final = {
    each.name: each for each in (_kind("pause", "Paused"), _kind("resume", "Resumed"), _kind("retry", "Tried again"))
}
INVERSE: Final = {"pause": "resume", "resume": "pause"}

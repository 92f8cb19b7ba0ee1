"""Pauses and resumes streams, and lets failed ones try again: it is decided, and done when their drivers report it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Engine

from listeners.sample import Lane
from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited
from pipeline.control.operations.definition import (
    Change,
    ControlContext,
    Offer,
    OperationDefinition,
    OperationProposal,
    StepDefinition,
    StepResult,
    intent_of,
    of_one_game,
)
from pipeline.control.operations.facts import GameFacts
from pipeline.control.roles import Role
from pipeline.store.assignments import GameAssignment, read_assignments, require_carried
from pipeline.store.database.states import OperationKind, StreamDesired
from pipeline.store.operation_events import TargetEvent
from pipeline.store.operations import Intent, Operation, lock_operation
from pipeline.store.stream_control import StreamControl, decided, submit_control_within, submit_retry_within

_SEEN_SECONDS: Final = 120.0
_NOTHING: Final = StreamControl()
_LEFT: Final[Mapping[str, StreamDesired]] = {OperationKind.PAUSE: "running", OperationKind.RESUME: "paused"}
intent: Final = partial(intent_of, "game")


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
    # How often a stream has failed may change every second, so that is no part of what a retry is about.
    return {
        key: "stopped" if kind == OperationKind.RETRY else each.desired
        for key, each in chosen.items()
        if _changes(kind, each)
    }


def _changes(kind: str, decision: StreamControl) -> bool:
    """Return whether an operation would change anything of a game."""
    if kind == OperationKind.RETRY:
        return decision.parked_at is not None or decision.failures > 0
    return decision.desired == _LEFT[kind]


def render_preview(kind: str, facts: Mapping[str, Any], assignments: Mapping[str, GameAssignment]) -> list[str]:
    """Return what an operation does, as lines for people."""
    lines = [f"{key}: {assignments[key].lane or 'nothing reported'} in group {assignments[key].group}" for key in facts]
    return [*lines, f"{len(facts)} to {kind}. No other stream is touched."]


def _propose(
    kind: OperationKind, engine: Engine, names: Sequence[str], actor: str, reason: str, undoes: str | None
) -> OperationProposal:
    assignments = read_assignments(engine)
    facts = plan(kind, names, assignments, decided(engine))
    return OperationProposal(intent(kind, facts, actor, reason, undoes), render_preview(kind, facts, assignments))


def _facts(context: ControlContext, operation: Operation) -> Mapping[str, Any]:
    keys = operation.parameters["games"]
    if operation.kind == OperationKind.RETRY:
        plan(operation.kind, keys, context.read(read_assignments), {})
        return dict.fromkeys(keys, "stopped")
    return plan(operation.kind, keys, context.read(read_assignments), context.read(decided))


def _decide(context: ControlContext, operation: Operation) -> StepResult:
    desired: StreamDesired = "paused" if operation.kind == OperationKind.PAUSE else "running"
    with context.engine.begin() as connection:
        lock_operation(connection, operation)
        for key in operation.parameters["games"]:
            if operation.kind == OperationKind.RETRY:
                submit_retry_within(connection, key, operation.actor)
            else:
                submit_control_within(connection, key, operation.actor, desired=desired)
    return StepResult("done", f"Decided for {len(operation.parameters['games'])}.")


def _verify(context: ControlContext, operation: Operation) -> StepResult:
    assignments = context.read(read_assignments)
    unseen = [key for key in operation.parameters["games"] if not _is_reported(operation, assignments[key])]
    seen = tuple(
        TargetEvent(f"game:{key}", "verify", f"group {assignments[key].group} reports lane {assignments[key].lane}")
        for key in operation.parameters["games"]
        if key not in unseen
    )
    if unseen:
        return StepResult("waiting", f"No driver has reported {len(unseen)} yet: {join_limited(unseen)}.", seen)
    return StepResult("done", "Their drivers report it.", seen)


def _is_reported(operation: Operation, assignment: GameAssignment) -> bool:
    if (assignment.reported_at or 0.0) <= operation.requested_at or assignment.reported_group != assignment.group:
        return False
    if operation.kind == OperationKind.PAUSE:
        return assignment.lane == Lane.PAUSED
    return assignment.lane != (Lane.PAUSED if operation.kind == OperationKind.RESUME else Lane.QUARANTINED)


def _done(verb: str, operation: Operation) -> str:
    return f"{verb}: {join_limited(operation.parameters['games'])}."


def _obstacle(kind: OperationKind, unchanged: str, facts: GameFacts) -> str | None:
    return None if _changes(kind, facts.decision) else f"It {unchanged}."


def _obstacle_to_retry(facts: GameFacts) -> str | None:
    if facts.group is None:
        return "No group carries it yet, so there is no stream to try again."
    if facts.silence is not None:
        return f"Group {facts.group} cannot take it up: {facts.silence}."
    if not _changes(OperationKind.RETRY, facts.decision):
        lane = "and nothing was reported about it" if facts.lane is None else f"and its lane is {facts.lane}"
        return f"There is no failure to try again after, {lane}."
    return None


def _changed(was: str, then: str, intended: Intent) -> list[Change]:
    return [Change(f"game:{key}", was, then) for key in intended.preview]


def _define(
    kind: OperationKind, verb: str, offer: Offer[GameFacts], unchanged: str, inverse: OperationKind | None = None
) -> OperationDefinition:
    steps = (
        StepDefinition("decide", _decide, 30.0),
        StepDefinition("verify", _verify, _SEEN_SECONDS, verifies=True, looks=True),
    )
    return OperationDefinition(
        kind, Role.OPERATOR, of_one_game(1), steps, _facts, partial(_done, verb), inverse,
        propose=partial(_propose, kind), unchanged=unchanged, of_game=offer,
        changes=partial(_changed, *_WAS_AND_THEN[kind]),
    )  # fmt: skip


def _between(
    kind: OperationKind, inverse: OperationKind, verb: str, unchanged: str, touches: str
) -> OperationDefinition:
    offer = Offer(partial(_obstacle, kind, unchanged), touches, (inverse,), needs_driver=True)
    return _define(kind, verb, offer, unchanged, inverse)


_WAS_AND_THEN: Final[Mapping[OperationKind, tuple[str, str]]] = {
    OperationKind.PAUSE: ("running", "paused"),
    OperationKind.RESUME: ("paused", "running"),
    OperationKind.RETRY: ("stopped after failures", "running again, with all attempts"),
}
PAUSE: Final = _between(
    OperationKind.PAUSE, OperationKind.RESUME, "Paused", "is paused already",
    "Nothing more lands in its table until it is resumed.",
)  # fmt: skip
RESUME: Final = _between(
    OperationKind.RESUME, OperationKind.PAUSE, "Resumed", "is not paused", "It catches up from its table's cursor."
)
RETRY: Final = _define(
    OperationKind.RETRY, "Tried again",
    Offer(
        _obstacle_to_retry, "Lets its stream run again at once, with all of its attempts; no other stream is touched.",
        (OperationKind.RESTART,), repairs=True,
    ),
    "has no failure to try again after",
)  # fmt: skip

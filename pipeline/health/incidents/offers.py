"""What is offered of a finding: who is at its mend, and no act that cannot be done now or was done just now. Pure.

Called by `judging.py` for each finding; pages and commands add nothing.
"""

from dataclasses import replace
from typing import Final

from pipeline.health.incidents.causes import CONTROLLER_WORD, Acting, Finding
from pipeline.health.incidents.evidence import DoneOperation, GameWindow, GroupWindow, OpenOperation
from pipeline.health.incidents.shared import CONTROLLER, open_operation
from pipeline.health.incidents.texts import MAX_NAME, cut
from pipeline.health.verdicts.upkeep import duration
from pipeline.store.database.states import OperationKind

DONE_SECONDS: Final = 600.0
"""Seconds after its success in which the same act is not offered again, unless what it mends has changed since."""

_BESIDE: Final = frozenset(
    {
        OperationKind.ACCESS, OperationKind.PAUSE, OperationKind.RETIRE, OperationKind.KEEP_VIEWS,
        OperationKind.DROP_VIEWS, OperationKind.PIN_VARIATIONS, OperationKind.UNPIN_VARIATIONS,
        OperationKind.PAUSE_DERIVED, OperationKind.RESUME_DERIVED, OperationKind.REPAIR_DERIVED,
    }
)  # fmt: skip
"""Operations that mend no stream."""


def offered(finding: Finding, window: GameWindow, group: GroupWindow | None, now: float) -> Finding:
    """Add who works on a finding of a game, and drop an action that is not possible or useful now."""
    if (operation := _at_it(finding, window, group)) is not None:
        idle = None if group is None else group.seen.no_controller
        acting = None if operation.is_stuck or idle is not None else _acting(operation)
        waits = () if idle is None else (f"{idle}, so {operation.kind} {operation.operation_id[:8]} waits",)
        evidence = (*finding.evidence, *waits)
        return replace(finding, action=open_operation(operation), acting=acting, evidence=evidence)
    kind = None if finding.action is None else finding.action.kind
    last = next((each for each in done_for(window, group) if each.kind == kind), None)
    if kind is None or last is None or now - last.ended_at > DONE_SECONDS or _is_due_again(last, window, group):
        return finding
    return replace(finding, action=None, evidence=(*finding.evidence, succeeded(last, now)))


def done_for(window: GameWindow, group: GroupWindow | None) -> tuple[DoneOperation, ...]:
    """Return the operations about a game and its group that succeeded a short while ago, the newest first."""
    of_group = () if group is None else group.seen.done
    return tuple(sorted((*window.seen.done, *of_group), key=lambda each: -each.ended_at))


def succeeded(operation: DoneOperation, now: float) -> str:
    """Say when an operation succeeded."""
    return f"{operation.kind} by {_who(operation.actor)} succeeded {duration(now - operation.ended_at)} ago"


def _at_it(finding: Finding, window: GameWindow, group: GroupWindow | None) -> OpenOperation | None:
    """Return the open operation that works on a finding: of a group only one about it, or one of the controller's."""
    own, of_group = window.seen.operation, None if group is None else group.seen.operation
    is_of_group = group is not None and finding.scope == f"group {group.seen.name}"
    if is_of_group and own is not None and own.actor != CONTROLLER:
        own = None
    return next((each for each in (own, of_group) if each is not None and each.kind not in _BESIDE), None)


def _acting(operation: OpenOperation) -> Acting:
    who = _who(operation.actor)
    does = f"{operation.kind} {operation.operation_id[:8]} by {who} is under way"
    return Acting(who, does, operation.requested_at)


def _who(actor: str) -> str:
    return CONTROLLER_WORD if actor == CONTROLLER else cut(actor, MAX_NAME)


def _is_due_again(last: DoneOperation, window: GameWindow, group: GroupWindow | None) -> bool:
    """Return whether what an act mends has changed since: a failure, a schema version or the end of a driver is new."""
    failure, schema = window.seen.failure, window.seen.schema
    if last.kind == OperationKind.RETRY:
        return failure is not None and (failure.parked_at or 0.0) > last.ended_at
    if last.kind == OperationKind.REPLAY:
        return schema is not None and schema.registered_at > last.requested_at
    if last.kind in {OperationKind.START, OperationKind.RESTART} and group is not None:
        driver = group.seen.liveness
        return not driver.is_live and (driver.since or 0.0) > last.ended_at
    return False

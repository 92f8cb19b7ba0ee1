"""What is offered of a finding: who is at its mend, and no act that cannot be done now or was done just now. Pure.

Called by `judging.py` for each finding; pages and commands add nothing.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from listeners.status import Status
from pipeline.health.incidents.causes import CONTROLLER_WORD, Acting, Finding
from pipeline.health.incidents.evidence import DoneOperation, Evidence, GameWindow, GroupWindow, OpenOperation
from pipeline.health.incidents.shared import CONTROLLER, open_operation
from pipeline.health.incidents.texts import MAX_NAME, cut
from pipeline.health.verdicts.upkeep import duration
from pipeline.store.database.states import OperationKind

DONE_SECONDS: Final = 600.0
"""Seconds after its success in which the same act is not offered again, unless what it mends has changed since."""

_MOST_DONE: Final = 2  # operations that are named as what mended

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
        acting = None if operation.is_stuck or idle is not None else acting_on(operation)
        waits = () if idle is None else (f"{idle}, so {operation.kind} {operation.operation_id[:8]} waits",)
        evidence = (*finding.evidence, *waits)
        return replace(finding, action=open_operation(operation), acting=acting, evidence=evidence)
    kind = None if finding.action is None else finding.action.kind
    last = next((each for each in done_for(window, group) if each.kind == kind), None)
    if kind is None or last is None or now - last.ended_at > DONE_SECONDS or _is_due_again(last, window, group):
        return finding
    return replace(finding, action=None, evidence=(*finding.evidence, succeeded(last, now)))


def acting_on(operation: OpenOperation) -> Acting:
    """Return who works on what an open operation mends."""
    return Acting(_who(operation.actor), f"{_named(operation)} is under way", operation.requested_at)


def acted_on(operation: OpenOperation, how: str, ended_at: float) -> Acting:
    """Return the same of an operation that has ended since, until a look judges its effect; `how` is its state."""
    return Acting(_who(operation.actor), f"{_named(operation)} is over ({how}), and its effect is judged", ended_at)


def done_for(window: GameWindow, group: GroupWindow | None) -> tuple[DoneOperation, ...]:
    """Return the operations about a game and its group that succeeded a short while ago, the newest first."""
    of_group = () if group is None else group.seen.done
    return tuple(sorted((*window.seen.done, *of_group), key=lambda each: -each.ended_at))


def was_done(finding: Finding, since: float, window: GameWindow, group: GroupWindow | None) -> bool:
    """Return whether the operation that a finding's action plans has succeeded since then."""
    kind = None if finding.action is None else finding.action.kind
    return any(each.kind == kind and each.ended_at >= since for each in done_for(window, group))


def recovery(games: Collection[str], had: Collection[str], since: float, evidence: Evidence) -> tuple[str, ...]:
    """Return what was done since then for the games that had a cause, and which of `games` start or are not level yet.

    A stream that starts is not level and not late: nothing is known of it before a row has landed, or none waits.
    """
    windows = [evidence.games[key] for key in had if key in evidence.games]
    done = {each: None for one in windows for each in done_for(one, evidence.groups.get(one.seen.group or ""))}
    newest = sorted((each for each in done if each.ended_at >= since), key=lambda one: -one.ended_at)
    said = [succeeded(each, evidence.now) for each in newest[:_MOST_DONE]]
    seen = [evidence.games[key].seen for key in games]
    late = [each for each in seen if each.status != Status.STARTING]
    oldest = max((each.backlog_seconds for each in late if each.backlog_seconds is not None), default=0.0)
    age = f"; the oldest row has waited {duration(oldest)}" if oldest >= 1 else ""
    starting = len(seen) - len(late)  # a text stays until the next look, and a start may end at once
    games = "1 game was" if starting == 1 else f"{starting:,} games were"
    said += [f"{games} starting at the last look"] if starting else []
    return (*said, *([f"{_games_are(len(late))} not level yet{age}"] if late else []))


def _games_are(count: int) -> str:
    return "1 game is" if count == 1 else f"{count:,} games are"


def succeeded(operation: DoneOperation, now: float) -> str:
    """Say when an operation succeeded."""
    return f"{operation.kind} by {_who(operation.actor)} succeeded {duration(now - operation.ended_at)} ago"


def _at_it(finding: Finding, window: GameWindow, group: GroupWindow | None) -> OpenOperation | None:
    """Return the open operation that works on a finding: on one of a group's driver only one of the group's.

    What the controller does about a game counts as well.
    """
    own, of_group = window.seen.operation, None if group is None else group.seen.operation
    is_of_games = "{}" in finding.pattern  # which share it, such as a full disk
    is_of_group = group is not None and finding.scope == f"group {group.seen.name}" and not is_of_games
    if is_of_group and own is not None and own.actor != CONTROLLER:
        own = None
    return next((each for each in (own, of_group) if each is not None and each.kind not in _BESIDE), None)


def _named(operation: OpenOperation) -> str:
    return f"{operation.kind} {operation.operation_id[:8]} by {_who(operation.actor)}"


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

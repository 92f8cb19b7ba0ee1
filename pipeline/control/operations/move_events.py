"""What became of each game of a move: let go by the old driver, taken by the new one, level. Pure.

All three are looked for in each look, whatever step the move is in: of many games the first are level while the last
are still with the old driver.
"""

from collections.abc import Iterator, Mapping

from pipeline.store.assignments import GameAssignment
from pipeline.store.operation_events import TargetEvent
from pipeline.store.operations import Operation


def assigned(operation: Operation) -> tuple[TargetEvent, ...]:
    """Return that each game has its new group."""
    return tuple(
        TargetEvent(f"game:{key}", "assign", f"{source or 'no group'} → {group}, epoch {epoch + 1}")
        for key, (source, group, epoch) in operation.preview.items()
    )


def seen(operation: Operation, assignments: Mapping[str, GameAssignment], *, leases: bool) -> tuple[TargetEvent, ...]:
    """Return what can be seen of the games of a move now; nothing of games that were assigned again since."""
    return tuple(
        event
        for key, (source, group, epoch) in operation.preview.items()
        if (assignment := assignments.get(key)) is not None and assignment.epoch == epoch + 1
        for event in _of_game(operation, assignment, source, group, leases=leases)
    )


def _of_game(
    operation: Operation, assignment: GameAssignment, source: str | None, group: str, *, leases: bool
) -> Iterator[TargetEvent]:
    target = f"game:{assignment.game_key}"
    reports = assignment.reported_group == group and (assignment.reported_at or 0.0) > operation.requested_at
    if leases and (source is None or assignment.held_by != source):
        yield TargetEvent(target, "release", f"{source} let go" if source else "no driver held it")
    if assignment.held_by == group if leases else reports:
        yield TargetEvent(target, "acquire", f"{group} took it")
    if reports and assignment.is_settled:
        waits = f"; {assignment.waits_for}" if assignment.waits_for else ""
        cursor = "nothing of it yet" if assignment.cursor_seq is None else f"at seq {assignment.cursor_seq}"
        yield TargetEvent(target, "verify", f"{group} is level, {cursor}{waits}")

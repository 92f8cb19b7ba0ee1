"""Brings operations on, step by step: each step is repeated until it is done, so a killed controller loses nothing.

A step does its work or waits for an effect; both may be done again at any time, by this process or another one. However
many wait, a tick takes them in turn, and looks whether they still wait with as many statements as for one of them. One
that waited too long needs a person, and goes on by itself should its effect come after all.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from pipeline.base.errors import Refused
from pipeline.base.names import is_said
from pipeline.control import roles
from pipeline.control.operations import registry
from pipeline.control.operations.definition import (
    CHANGED,
    UNDO,
    Act,
    ControlContext,
    OperationDefinition,
    StepDefinition,
    StepResult,
)
from pipeline.store import audit
from pipeline.store.database.engine import StoreUnread
from pipeline.store.database.states import OperationState
from pipeline.store.operation_events import TargetEvent, note_events
from pipeline.store.operations import (
    Operation,
    OperationConflict,
    Step,
    begin_step,
    change,
    end_early,
    end_step,
    hash_of,
    note_waits,
    open_ids,
    steps,
    with_journals,
)
from pipeline.store.operations import operation as find
from pipeline.store.processes.leases import store_time

_log = logging.getLogger("turnout")
_NOW: Final = ""  # among the turns: the number of this tick
_MAX_LOOKED_AT: Final = 1_000  # operations in one tick; the next one begins with those after them
_MAX_ADVANCED: Final = 100  # of them, which take statements of their own
UNDO_SECONDS: Final = 86_400.0
"""The time after its end in which an operation may be undone."""

_MAX_MESSAGE: Final = 500  # characters of an error that are kept


class Extension(Protocol):
    """What a package above this one adds to the controller; made once, with its context.

    Its class has `DEFINITIONS`, what all processes know of its kinds; only the controller knows their steps.
    """

    @property
    def kinds(self) -> Mapping[str, OperationDefinition]:
        """Kinds of operation, by name."""

    def tick(self) -> str | None:
        """Do what is due, without waiting for anything; return what alarms it."""

    def stop(self) -> None:
        """Begin nothing any more."""


def advance(context: ControlContext, kind: OperationDefinition, operation: Operation) -> Operation:
    """Bring an operation as far as it goes now.

    Raises:
        OperationConflict: another controller has changed it meanwhile.
    """
    if operation.state == OperationState.PLANNED:
        operation = _begin(context, kind, operation)
    if operation.state not in {OperationState.RUNNING, OperationState.VERIFYING}:
        return operation
    done = {each.name for each in steps(context.engine, operation.operation_id) if each.state == "done"}
    for step in kind.steps:
        if step.name in done:
            continue
        if step.verifies and operation.state == OperationState.RUNNING:
            operation = change(context.engine, operation, OperationState.VERIFYING)
        number = begin_step(context.engine, operation, step.name)
        progress = _attempt(context, step, operation)
        note_events(context.engine, [(operation.operation_id, each) for each in progress.seen])
        if progress.state == "waiting":
            return _wait(context, step, operation, number, progress)
        end_step(context.engine, operation, number, progress.state, progress.message)
        if progress.state == "failed":
            return change(context.engine, operation, OperationState.FAILED, progress.message)
    details = {each.name: each.detail for each in steps(context.engine, operation.operation_id) if each.state == "done"}
    reported = [details[step.name] for step in kind.steps if step.reports]
    outcome = " ".join(filter(None, [kind.done(operation), *reported]))
    return change(context.engine, operation, OperationState.SUCCEEDED, outcome)


def tick(context: ControlContext, kinds: Mapping[str, OperationDefinition]) -> int:
    """Bring operations on that can go on by themselves, in turn; return how many of those are still open."""
    still_open = advanced = 0
    journals = with_journals(context.engine, _next_in_turn(context))
    waiting, arrived = _look(context, kinds, journals)
    for operation, _ in journals:
        if operation.is_stuck and operation.operation_id not in arrived:
            pass  # it is a person's
        elif operation.operation_id in waiting:
            still_open += 1
        elif advanced < _MAX_ADVANCED:
            advanced += 1
            still_open += _advance_one(context, kinds, operation)
        else:
            still_open += 1
            continue  # it stays among those that are looked at next
        context.turns[operation.operation_id] = context.turns[_NOW]
    return still_open


def _next_in_turn(context: ControlContext) -> list[str]:
    """Return the operations to look at: those first that were never looked at, then those that waited longest."""
    turns = context.turns
    there = open_ids(context.engine)
    for gone in turns.keys() - set(there) - {_NOW}:
        del turns[gone]
    turns[_NOW] = turns.get(_NOW, 0) + 1
    return sorted(there, key=lambda each: turns.get(each, 0))[:_MAX_LOOKED_AT]


def _look(
    context: ControlContext,
    kinds: Mapping[str, OperationDefinition],
    journals: Sequence[tuple[Operation, Sequence[Step]]],
) -> tuple[set[str], set[str]]:
    """Return which operations wait and are in their time, and which need a person though their effect has come.

    Nothing is to do for the first. All share what is read, which may be older than a write of one of them. So only that
    an operation still waits is believed; one that may go on looks for itself.
    """
    waiting, arrived, notes = set[str](), set[str](), []
    seen: list[tuple[str, TargetEvent]] = []
    found = [(operation, _unseen(kinds, operation, journal)) for operation, journal in journals]
    looking = [(operation, *unseen) for operation, unseen in found if unseen is not None]
    if not looking:
        return waiting, arrived
    now, together = store_time(context.engine), replace(context, shared={})
    for operation, line, step, look in looking:
        progress = _attempt_look(together, look, operation)
        seen += [(operation.operation_id, each) for each in (() if progress is None else progress.seen)]
        if operation.is_stuck:
            arrived |= {operation.operation_id} if progress is not None and progress.state == "done" else set()
        elif _is_in_time(progress, now - line.started_at, step.limit(together, operation)):
            waiting.add(operation.operation_id)
            if progress is not None and progress.message != line.detail:
                notes.append((operation.operation_id, line.number, progress.message))
    note_waits(context.engine, notes)
    note_events(context.engine, seen)
    return waiting, arrived


def _is_in_time(progress: StepResult | None, waited: float, limit: float) -> bool:
    return progress is not None and progress.state == "waiting" and waited <= limit


def _unseen(
    kinds: Mapping[str, OperationDefinition], operation: Operation, journal: Sequence[Step]
) -> tuple[Step, StepDefinition, Act] | None:
    """Return the line in which an operation waits, or has waited too long, its step, and what looks for its effect."""
    done = {each.name for each in journal if each.state == "done"}
    kind = kinds.get(operation.kind)
    step = None if kind is None else next((each for each in kind.steps if each.name not in done), None)
    line = next((each for each in reversed(journal) if step is not None and each.name == step.name), None)
    if step is None or line is None or not operation.targets:  # its preview was edited
        return None
    is_late = operation.is_stuck
    look = step.act if step.looks else step.seen if is_late else step.idle
    # Where its time is over the step has failed; where it broke it still runs, and a person is to look why.
    return None if look is None or line.state != ("failed" if is_late else "running") else (line, step, look)


def _attempt_look(context: ControlContext, look: Act, operation: Operation) -> StepResult | None:
    try:
        return look(context, operation)
    except SQLAlchemyError:
        raise
    except Exception:  # noqa: BLE001 - whatever is wrong with it is found, and reported, when it looks for itself
        return None


def _advance_one(context: ControlContext, kinds: Mapping[str, OperationDefinition], operation: Operation) -> bool:
    """Bring one operation on; return whether it is still open."""
    kind = kinds.get(operation.kind)
    try:
        if kind is None:
            change(
                context.engine, operation, OperationState.FAILED, f"This version knows no operation {operation.kind!r}."
            )
            return False
        if operation.is_stuck:
            operation = resume(context.engine, operation, roles.CONTROLLER, "Its effect arrived after all.")
        return advance(context, kind, operation).is_open
    except OperationConflict:
        return True  # another controller has it
    except (SQLAlchemyError, StoreUnread) as error:
        _log.warning("operation %s waits for the control store: %s", operation.operation_id[:8], error)
        return True
    except Exception as error:  # noqa: BLE001 - it stands in the operation's outcome; the others must go on
        _log.exception("operation %s cannot go on", operation.operation_id[:8])
        _hand_to_person(context.engine, operation, error)
        return False


def resume(engine: Engine, operation: Operation, actor: str, reason: str = "") -> Operation:
    """Resume an operation that needed a person where it stopped, with an entry in the audit log.

    Raises:
        Refused: it does not wait for a person.
        OperationConflict: another writer has changed it since it was read.
    """
    _require_waiting(operation)
    return change(engine, operation, OperationState.RUNNING, by=_act(operation, actor, "resume operation", reason))


def close(engine: Engine, operation: Operation, actor: str, reason: str) -> Operation:
    """End an operation that needed a person: a person has dealt with it, as its outcome and the audit log record.

    Raises:
        Refused: it does not wait for a person, or no reason is given.
        OperationConflict: another writer has changed it since it was read.
    """
    _require_waiting(operation)
    _require_reason(reason)
    by = _act(operation, actor, "close", reason)
    return change(engine, operation, OperationState.FAILED, f"Closed by {actor}: {reason}", by)


def cancel(engine: Engine, operation: Operation, actor: str, reason: str) -> Operation:
    """End an operation early, with its outcome and an entry in the audit log; finished steps stay done.

    Only where nothing was begun, or where it only waits for an effect.

    Raises:
        Refused: it has ended, waits for a person, does what must not be interrupted, or was changed meanwhile; or no
            reason is given.
    """
    _require_reason(reason)
    name = operation.operation_id[:8]
    if not operation.is_open:
        raise Refused(
            f"Operation {name} has ended: it is {operation.state}. `turnout ops undo` takes back what it did."
        )
    if operation.is_stuck:
        raise Refused(f"Operation {name} waits for a person: end it with `turnout ops close {name}`.")
    kind = registry.find(operation.kind)
    may_stop = {step.name for step in kind.steps if step.looks or step.verifies} if kind else set()

    def outcome(done: list[str]) -> str:
        stays = f"What was done stays: {', '.join(done)}" if done else "Nothing was done"
        back = f"; `turnout ops undo {name}` takes it back" if done and kind and kind.inverse else ""
        return f"Cancelled by {actor}: {reason}. {stays}{back}."

    try:
        return end_early(engine, operation, may_stop, outcome, _act(operation, actor, "cancel", reason))
    except OperationConflict:
        raise Refused(f"Operation {name} was changed while you looked at it. Look again and retry.") from None


def has_effect(engine: Engine, operation: Operation) -> bool:
    """Return whether an operation has succeeded, or has done a step before it was cancelled, closed or failed."""
    if operation.state == OperationState.SUCCEEDED:
        return True
    return any(each.state == "done" for each in steps(engine, operation.operation_id))


def require_undoable(engine: Engine, operation: Operation) -> None:
    """Go on only where an operation may be undone.

    Raises:
        Refused: it has not ended, has done nothing, ended too long ago, or its kind has no inverse.
    """
    name = operation.operation_id[:8]
    kind = registry.find(operation.kind)
    if kind is not None and kind.undone_by != UNDO:
        raise Refused(f"Operation {name} cannot be undone here: run `{kind.undone_by} {name}`.")
    if kind is None or kind.inverse is None:
        raise Refused(f"Operation {name} is a {operation.kind}, which has no inverse.")
    if operation.ended_at is None:
        first = "Resume or close" if operation.is_stuck else "Cancel"
        raise Refused(
            f"Operation {name} is {operation.state}: only one that has ended can be undone. {first} it first."
        )
    if not has_effect(engine, operation):
        raise Refused(f"Operation {name} is {operation.state} and has done nothing, so there is nothing to undo.")
    seconds = store_time(engine) - operation.ended_at
    if seconds > UNDO_SECONDS:
        raise Refused(
            f"Operation {name} ended {seconds / 3600:.0f} hours ago: undo is for the first {UNDO_SECONDS / 3600:.0f}. "
            "Plan it again."
        )


def _act(operation: Operation, actor: str, action: str, reason: str) -> audit.Act:
    return audit.Act(actor, action, operation.targets, operation.operation_id, {"reason": reason})


def _require_reason(reason: str) -> None:
    if not is_said(reason):
        raise Refused("Enter a reason. It is kept in the audit log.")


def _require_waiting(operation: Operation) -> None:
    if not operation.is_stuck:
        raise Refused(f"Operation {operation.operation_id[:8]} does not wait for a person: it is {operation.state}.")


def _hand_to_person(engine: Engine, operation: Operation, error: Exception) -> None:
    """Set an operation aside that meets a bug of ours, so that the others go on."""
    problem = f"It cannot go on: {type(error).__name__}: {error}"[:_MAX_MESSAGE]
    try:
        change(engine, find(engine, operation.operation_id), OperationState.NEEDS_HUMAN, problem)
    except (OperationConflict, Refused, SQLAlchemyError):
        return  # the next tick finds it as it is, or gone


def _begin(context: ControlContext, kind: OperationDefinition, operation: Operation) -> Operation:
    """Begin, if what the actor was shown is still so."""
    try:
        roles.require_current(context.settings, context.engine, operation.actor, kind.role, kind.kind)
        facts = kind.facts(context, operation)
    except StoreUnread:
        raise
    except Refused as refused:
        return change(context.engine, operation, OperationState.FAILED, f"Nothing was done: {refused}")
    if hash_of(facts) != operation.preview_hash:
        return change(context.engine, operation, OperationState.FAILED, CHANGED)
    return change(context.engine, operation, OperationState.RUNNING)


def _attempt(context: ControlContext, step: StepDefinition, operation: Operation) -> StepResult:
    try:
        return step.act(context, operation)
    except StoreUnread:
        raise
    except Refused as refused:
        return StepResult("failed", str(refused))


def _wait(
    context: ControlContext, step: StepDefinition, operation: Operation, number: int, progress: StepResult
) -> Operation:
    """Note what a step waits for; after its time ask a person, who finds the step ended and may let it begin again."""
    journal = {each.number: each for each in steps(context.engine, operation.operation_id)}
    waited = store_time(context.engine) - journal[number].started_at
    if waited <= step.limit(context, operation):
        end_step(context.engine, operation, number, "running", progress.message)
        return operation
    message = f"{progress.message} Timed out after {waited:.0f} s."
    end_step(context.engine, operation, number, "failed", message)
    return change(context.engine, operation, OperationState.NEEDS_HUMAN, message)

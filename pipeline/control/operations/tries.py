"""Tries of work that may kill the process that does it: each is a step of its own in the operation's journal."""

import os
import socket
from collections.abc import Callable
from typing import Any, Final

from pipeline.base.errors import Refused
from pipeline.control.operations.definition import ControlContext, StepResult
from pipeline.store.operations import Operation, begin_step, end_step, steps

_TRIES: Final = 3  # a row that kills its reader must not kill controllers without end
_PERHAPS_A_ROW: Final = (
    "perhaps a row kills who reads it. Start the game's group, which finds such a row and puts it into quarantine; "
    "then ask again."
)


def worked(
    context: ControlContext,
    operation: Operation,
    work: Callable[[], str],
    meanwhile: str,
    perhaps: str = _PERHAPS_A_ROW,
) -> StepResult:
    """Begin the work where it is not being done in this process, and tell when it is done.

    Each process that begins it leaves a step of its own in the journal, so that one that dies of it is not forgotten.
    `meanwhile` stands there until the work notes how far it is. `perhaps` ends the sentence of a work that each of its
    tries died of: why that may be, and what to do.
    """
    name = operation.operation_id
    if not context.background_tasks.contains(name):
        _begin_try(context, operation, perhaps)
        context.background_tasks.submit(name, work)
    try:
        message = context.background_tasks.pop_result(name)
    except Exception as error:
        _end_try(context, operation, "failed", f"{type(error).__name__}: {error}"[:500])
        raise
    if message is None:
        return StepResult("waiting", context.background_tasks.noted(name) or meanwhile)
    _end_try(context, operation, "done", message)
    return StepResult("done", message)


def looked(
    context: ControlContext, operation: Operation, look: Callable[[], str], meanwhile: str, *, keep: bool
) -> StepResult:
    """Return the result of background work, between ticks; with `keep` it stays for the next call.

    So one that took longer than its step is taken once it is there.
    """
    name = f"{operation.operation_id} see"
    context.background_tasks.submit(name, look)
    if keep:
        return StepResult("done" if context.background_tasks.has_ended(name) else "waiting", meanwhile)
    message = context.background_tasks.pop_result(name)
    return StepResult("waiting", meanwhile) if message is None else StepResult("done", message)


def _begin_try(context: ControlContext, operation: Operation, perhaps: str) -> None:
    _end_try(context, operation, "failed", "The controller that did it has ended.")
    before = sum(each.name.startswith("try ") for each in steps(context.engine, operation.operation_id))
    if before >= _TRIES:
        raise Refused(f"It was begun {before} times and never ended: {perhaps}")
    begin_step(context.engine, operation, f"try {before + 1}", f"By pid {os.getpid()} on {socket.gethostname()}.")


def _end_try(context: ControlContext, operation: Operation, state: Any, message: str) -> None:
    for each in steps(context.engine, operation.operation_id):
        if each.name.startswith("try ") and each.state == "running":
            end_step(context.engine, operation, each.number, state, message)

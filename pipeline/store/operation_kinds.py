"""The kinds of operations and how they stand, as the control store keeps them; `control.operations` defines each."""

from enum import StrEnum
from typing import Final


class OperationKind(StrEnum):
    """What an operation does."""

    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    REPLAY = "replay"
    DEDUPE = "dedupe"
    REBUILD = "rebuild"
    RETIRE = "retire"
    RESTORE = "restore"
    MOVE = "move"
    ISOLATE = "isolate"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    ACCESS = "access"


class OperationState(StrEnum):
    """How an operation stands."""

    PLANNED = "planned"  # nothing was done yet
    RUNNING = "running"  # steps are being taken
    VERIFYING = "verifying"  # all is done, its effect is not seen yet
    NEEDS_HUMAN = "needs_human"  # it cannot go on by itself
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"  # a person ended it before it was done


OPEN: Final = (
    OperationState.PLANNED,
    OperationState.RUNNING,
    OperationState.VERIFYING,
    OperationState.NEEDS_HUMAN,
)
"""The states in which an operation may still act; its targets belong to it."""

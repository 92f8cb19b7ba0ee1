"""What the controller revokes by itself: one operation per principal and game, tried with back-off until it is seen.

The operation is written from the ledger alone, so no catalog that is away keeps it from being there. Each try plans
again, and has the principal for itself only while it lasts: in between, people may grant to that principal.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import Engine

from grants.applying import ledger, proposals
from grants.model import Securable, folded
from grants.planning.entitlements import AccessIntent, Cell
from pipeline.control.operations.definition import describe_open
from pipeline.control.operations.executor import resume
from pipeline.control.roles import CONTROLLER
from pipeline.errors import Transient
from pipeline.store import audit
from pipeline.store.held_targets import hold, release
from pipeline.store.operations import Intent, Operation, OperationConflict, TargetsBusy, open_by_target, submit
from pipeline.store.processes.leases import store_time

_FIRST_PAUSE: Final = 30.0  # seconds after a first failed try; doubled after each more
_LONGEST_PAUSE: Final = 3_600.0
_BUSY_PAUSE: Final = 2.0  # where another operation has the principal: a hundred expiries of one take minutes
_RESUMED_AFTER: Final = 600.0  # seconds after which one that a bug of ours stopped is tried again
_LONGEST_TARGET: Final = 80


class Unfinished(Transient):
    """A try has not ended all; the sentence has why, and when the next one is."""


class PrincipalBusy(Transient):
    """Another operation changes the same principal's access now."""


def is_expiry(operation: Operation) -> bool:
    """Return whether the controller revokes by itself."""
    return operation.actor == CONTROLLER


def submit_expired(engine: Engine, schema: Securable) -> None:
    """Write an operation for each principal and game whose access is over, where none is open."""
    now = store_time(engine)
    over: dict[Cell, list[ledger.Held]] = {}
    for each in ledger.held(engine):
        if each.entitlement.is_over(now):
            over.setdefault(each.entitlement.cell, []).append(each)
    busy = open_by_target(engine, [target(cell) for cell in over]) if over else {}
    for cell, held in sorted(over.items()):
        known = busy.get(target(cell))
        if known is None:
            _submit(engine, schema, cell, held)
        elif known.stuck_since is not None and now - known.stuck_since > _RESUMED_AFTER:
            _resume(engine, known)


def target(cell: Cell) -> str:
    """Return the lock of one principal's expiry in one game."""
    text = f"expiry:{cell[1]} {cell[0]}"
    if len(text) <= _LONGEST_TARGET and text.isprintable():
        return text
    return f"expiry:{hashlib.sha256(text.encode()).hexdigest()}"


def _submit(engine: Engine, schema: Securable, cell: Cell, held: list[ledger.Held]) -> None:
    last = max(held, key=lambda each: each.until or 0.0)  # of what was revoked and what has expired it ends both
    intent = AccessIntent(last.principal, last.game_key, read=False, until=last.until, reason="expired")
    expired = "Access expired." if last.revoked_at is None else "Revoked before, and not seen removed."
    names = audit.requested([asdict(intent)], lambda key: f"{schema.full_name}.{key}")
    parameters = {"intents": [asdict(intent)], "games": [last.game_key], **audit.kept(names)}
    wanted = Intent(proposals.KIND, (target(cell),), CONTROLLER, expired, parameters, {"effects": []})
    try:
        submit(engine, wanted)
    except TargetsBusy:  # another controller was first
        return


def _resume(engine: Engine, operation: Operation) -> None:
    try:
        resume(engine, operation, CONTROLLER, "Access that is over is still there.")
    except OperationConflict:
        return


@contextmanager
def principal_held(engine: Engine, operation: Operation) -> Iterator[None]:
    """Let no other operation change the principal's access in the block.

    Raises:
        PrincipalBusy: another one does.
    """
    lock = proposals.target(principal_of(operation))
    other = hold(engine, operation, lock)
    if other is not None:
        raise PrincipalBusy(f"It waits for {describe_open(other)}.")
    try:
        yield
    finally:
        release(engine, operation, lock)


def principal_of(operation: Operation) -> str:
    """Return whose access an expiry ends."""
    intent: Mapping[str, Any] = operation.parameters["intents"][0]
    return str(intent["principal"])


def describe(operation: Operation) -> str:
    """Return the outcome of an expiry."""
    intent: Mapping[str, Any] = operation.parameters["intents"][0]
    return f"By itself: the grant of {folded(intent['principal'])} on {intent['key']} was over, and is revoked."


class Tries:
    """When each expiry is tried next: known to this process alone, so another one tries at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing that failed."""
        self._clock = clock
        self._failed: dict[str, tuple[int, float, str]] = {}  # operation → tries, time of the next one, sentence

    def resting(self, operation_id: str) -> str | None:
        """Return what an operation waits for before its next try; None: it is due."""
        _, due_at, sentence = self._failed.get(operation_id, (0, 0.0, ""))
        return sentence if self._clock() < due_at else None

    def failed(self, operation_id: str, problem: Exception | str) -> Unfinished:
        """Note a try that failed; return what to raise."""
        if isinstance(problem, PrincipalBusy):
            tries, pause, sentence = self._failed.get(operation_id, (0, 0.0, ""))[0], _BUSY_PAUSE, str(problem)
        else:
            tries = self._failed.get(operation_id, (0, 0.0, ""))[0] + 1
            pause = min(_FIRST_PAUSE * 2 ** min(tries - 1, 10), _LONGEST_PAUSE)
            done = "Tried once." if tries == 1 else f"Tried {tries} times."
            sentence = f"{problem} {done} The next try is {pause:.0f} s after the last."
        self._failed[operation_id] = (tries, self._clock() + pause, sentence)
        return Unfinished(sentence)

    def forget(self, operation_id: str) -> None:
        """Forget an operation that is done."""
        self._failed.pop(operation_id, None)

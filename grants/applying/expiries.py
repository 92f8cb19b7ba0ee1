"""What the controller changes by itself: an operation for all of a principal's games whose access is over at a look.

The operation is written from the ledger alone, so no catalog that is away keeps it from being there. It is tried with
back-off until all of it is seen. Each try plans again what is still there, and has the principal for itself only while
it lasts: in between, people may grant to that principal. What ends later is another operation, which waits for none.
Silver and gold tables get and lose the grants of their games so, too.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Engine

from grants.applying import ledger, proposals
from grants.catalog import Catalog
from grants.model import Securable, folded
from grants.planning.entitlements import AccessIntent, Cell, Entitlement, expired
from pipeline.base.errors import Refused, Transient
from pipeline.control.operations.definition import ControlContext, describe_open
from pipeline.control.operations.executor import resume
from pipeline.control.roles import CONTROLLER
from pipeline.store import audit
from pipeline.store.held_targets import hold, release
from pipeline.store.operations import Intent, Operation, OperationConflict, TargetsBusy, read_open, submit
from pipeline.store.processes.leases import store_time

_FIRST_PAUSE: Final = 30.0  # seconds after a first failed try; doubled after each more
_LONGEST_PAUSE: Final = 3_600.0
_BUSY_PAUSE: Final = 2.0  # where another operation has the principal
_RESUMED_AFTER: Final = 600.0  # seconds after which one that a bug of ours stopped is tried again
_FOLLOWS: Final = "A silver or gold table follows its game's grants."
_LEFT: Final = "The table's stream is no longer in force."
_LONGEST_TARGET: Final = 80
_MAX_GAMES: Final = 100  # of an operation: its principal is held for all of them
_MAX_SUBMITTED: Final = 50  # operations at a look, which the controller's loop waits for


class Unfinished(Transient):
    """A try has not ended all; the sentence has why, and when the next one is."""


class PrincipalBusy(Transient):
    """Another operation changes the same principal's access now."""


def is_automatic(operation: Operation) -> bool:
    """Return whether the controller changes access by itself: ends what is over, or follows games' grants."""
    is_own = operation.kind == proposals.KIND and operation.actor == CONTROLLER
    return is_own and proposals.AUTHORISED_BY not in operation.parameters


def follows(operation: Operation) -> bool:
    """Return whether the controller lets grants of silver and gold tables follow those of their games by it."""
    return is_automatic(operation) and bool(operation.parameters["intents"][0].get("follow"))


def submit_expired(engine: Engine, schema: Securable) -> None:
    """Write operations for what is over and in no open operation: a few of them, and the next look goes on."""
    over = ledger.over(engine)
    if not over:
        return
    now, covered, at_work = store_time(engine), set[Cell](), set[str]()
    with engine.connect() as connection:
        still_open = read_open(connection)
    for each in still_open:
        if is_automatic(each):
            covered |= {intent.cell for intent in proposals.intents_of(each.parameters["intents"]) if not intent.follow}
            if each.stuck_since is not None and now - each.stuck_since > _RESUMED_AFTER:
                _resume(engine, each)
        elif not each.is_stuck:
            at_work.update(each.targets)
    waiting, revoked = list[Entitlement](), set[Cell]()
    for held in over:
        if held.revoked_at is not None and proposals.target(held.principal) in at_work:
            continue  # what revokes it looks for it itself
        if held.entitlement.cell not in covered:
            waiting.append(held.entitlement)
            revoked |= {held.entitlement.cell} if held.revoked_at is not None else set()
    parts = list[list[AccessIntent]]()
    for _, of_one in groupby(expired(waiting, now), key=lambda each: each.cell[0]):
        intents = list(of_one)
        parts += [intents[begin : begin + _MAX_GAMES] for begin in range(0, len(intents), _MAX_GAMES)]
    for part in parts[:_MAX_SUBMITTED]:
        is_revoked = any(each.cell in revoked for each in part)
        _submit(engine, schema, part, "Revoked before, and not seen removed." if is_revoked else "Access expired.")


def submit_following(engine: Engine, schema: Securable, intents: Sequence[AccessIntent]) -> None:
    """Write operations for what `following.due` returns and no open operation has: a few, the next look goes on."""
    if not intents:
        return
    with engine.connect() as connection:
        still_open = [each for each in read_open(connection) if is_automatic(each)]
    covered = {
        (intent.cell, intent.follow, intent.read)
        for each in still_open
        for intent in proposals.intents_of(each.parameters["intents"])
    }
    waiting = [each for each in intents if (each.cell, each.follow, each.read) not in covered]
    parts = list[list[AccessIntent]]()
    for _, of_one in groupby(sorted(waiting, key=_whose), key=_whose):
        some = list(of_one)
        parts += [some[begin : begin + _MAX_GAMES] for begin in range(0, len(some), _MAX_GAMES)]
    for part in parts[:_MAX_SUBMITTED]:
        _submit(engine, schema, part, _FOLLOWS if part[0].follow else _LEFT)


def _whose(intent: AccessIntent) -> tuple[str, bool, str]:
    return intent.cell[0], intent.follow, intent.key


def target(cell: Cell, *, follow: bool = False) -> str:
    """Return the lock of one principal's expiry in one game, or of what follows there; neither waits for the other."""
    what = "follow" if follow else "expiry"
    text = f"{what}:{cell[1]} {cell[0]}"
    if len(text) <= _LONGEST_TARGET and text.isprintable():
        return text
    return f"{what}:{hashlib.sha256(text.encode()).hexdigest()}"


def _submit(engine: Engine, schema: Securable, intents: Sequence[AccessIntent], reason: str) -> None:
    trees = [asdict(each) for each in intents]
    names = audit.requested(trees, lambda key: f"{schema.full_name}.{key}")
    parameters = {"intents": trees, "games": sorted(each.key for each in intents), **audit.kept(names)}
    targets = tuple(sorted(target(each.cell, follow=each.follow) for each in intents))
    wanted = Intent(proposals.KIND, targets, CONTROLLER, reason, parameters, {"effects": []})
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
    """Return the outcome of an expiry, or of what follows games' grants."""
    first, *others = operation.parameters["intents"]
    if follows(operation):
        count = f"{1 + len(others)} silver and gold tables" if others else first["key"]
        return f"By itself: what {folded(first['principal'])} reads of {count} is as the grants of the games."
    if operation.reason == _LEFT:
        return f"By itself: grants of {folded(first['principal'])} on tables that left force are revoked."
    if others:
        return (
            f"By itself: grants of {folded(first['principal'])} on {1 + len(others)} games were over, and are revoked."
        )
    return f"By itself: the grant of {folded(first['principal'])} on {first['key']} was over, and is revoked."


def propose(context: ControlContext, catalog: Catalog, operation: Operation) -> tuple[proposals.AccessProposal, str]:
    """Plan what of an expiry is still there, and return what cannot be planned now, as sentences.

    A game that is refused keeps no other one open.

    Raises:
        Refused: nothing of it can be planned.
        CatalogUnavailable: the catalog cannot be read.
    """
    engine, access, paths = context.engine, context.settings.access, context.paths
    managed = ledger.managed(engine)
    kept = {each.cell for each in managed.entitlements} | {
        (each.principal, each.securable.path[-1]) for each in managed.given
    }
    asked = proposals.intents_of(operation.parameters["intents"])
    intents = [each for each in asked if each.follow or each.cell in kept]
    inputs = proposals.read_inputs(engine, catalog, access, paths, intents)

    def planned(some: Sequence[AccessIntent]) -> proposals.AccessProposal:
        made = proposals.propose(paths, inputs, some)
        proposals.require_permitted(engine, context.settings, catalog, made, operation)
        return made

    try:
        return planned(intents), ""
    except Refused:
        if len(intents) <= 1:
            raise
    possible, refused = list[AccessIntent](), list[str]()
    for each in intents:
        try:
            planned([each])
            possible.append(each)
        except Refused as problem:
            refused.append(str(problem))
    if not possible:
        raise Refused(refused[0])
    return planned(possible), " ".join(dict.fromkeys(refused[:3]))


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

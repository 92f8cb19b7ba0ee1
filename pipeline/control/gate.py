"""The one gate to what a person does: the role at this moment, a reason for what disturbs, an entry in the audit log.

What is no operation is entered by `acting`, or by `permit` where the store writes the act and its entry in one
transaction. The controller checks the role of an operation again when it begins.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import is_said
from pipeline.control.acts import DirectAct
from pipeline.control.operations import registry
from pipeline.control.operations.definition import Level, of_one_game
from pipeline.control.roles import Role, require_current
from pipeline.settings.tree import Settings
from pipeline.store import audit, operations
from pipeline.store.operations import Intent, Operation

_ACTS: Final = {str(each): each for each in DirectAct}


def role_of(act: str) -> Role:
    """Return the role that a kind of operation, or another act, needs."""
    return _ACTS[act].role if act in _ACTS else registry.role_of(act)


def level(intent: Intent) -> Level:
    """Return how much an intent disturbs, which decides what a person must enter before it is submitted."""
    if intent.kind in _ACTS:
        return 2 if _ACTS[intent.kind].needs_reason or intent.parameters.get("effects") else 1
    known = registry.find(intent.kind)
    return (of_one_game(2) if known is None else known.weigh)(intent)


def submit(settings: Settings, engine: Engine, intent: Intent) -> Operation:
    """Write an operation and that it has begun; submitted twice under one key it is one operation.

    Raises:
        Refused: the actor has not the role for it, it disturbs and has no reason, or a target belongs to another
            operation.
    """
    require_current(settings, engine, intent.actor, role_of(intent.kind), intent.kind)
    require_reason(intent)
    return operations.submit(engine, intent)


def require_reason(intent: Intent) -> None:
    """Go on only where an operation has a reason, or disturbs too little to need one.

    Raises:
        Refused: it has none.
    """
    known = registry.find(intent.kind)
    if level(intent) > 1 and not is_said(intent.reason) and not (known and known.has_own_reasons):
        raise Refused(f"Say why you {intent.kind}: --reason TEXT. It is kept in the audit log.")


def permit(
    settings: Settings, engine: Engine, actor: str, act: DirectAct, reason: str = "", effects: Sequence[str] = ()
) -> None:
    """Authorise a direct act; the caller has the store write it and its audit entry in one transaction.

    `effects` is what it does to drivers and games, in sentences.

    Raises:
        Refused: the actor has not the role for it, or it disturbs and has no reason.
    """
    require_current(settings, engine, actor, act.role, act)
    if (effects or act.needs_reason) and not is_said(reason):
        raise Refused(" ".join([*effects[:1], "Enter a reason. It is kept in the audit log."]))


def require_role(settings: Settings, engine: Engine, actor: str, kind: str) -> None:
    """Go on only where an actor has the role for a kind of operation, to act on a submitted one.

    Raises:
        Refused: they have not.
    """
    require_current(settings, engine, actor, role_of(kind), kind)


def note_look(engine: Engine, act: audit.Act) -> None:
    """Write a look at data into the audit log before it is read.

    No role alone decides what a person may see, so the caller has decided it.
    """
    with audit.acting(engine, act):
        pass


@contextmanager
def acting(settings: Settings, engine: Engine, kind: DirectAct, act: audit.Act) -> Iterator[None]:
    """Authorise a direct act (`kind`), and audit it: as begun before the block, as ended after it, also where it fails.

    Raises:
        Refused: as `permit`. Then nothing is written.
    """
    permit(settings, engine, act.actor, kind, str(act.detail.get("reason") or ""))
    with audit.acting(engine, act):
        yield

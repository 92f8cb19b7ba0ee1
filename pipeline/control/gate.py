"""The one gate to what a person does: the role at this moment, a reason for what disturbs, an entry in the audit log.

What is no operation is entered by `acting`, or by `permit` where the store writes the act and its entry in one
transaction. The controller checks the role of an operation again when it begins.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Engine

from pipeline.control.roles import ACCESS, require_current
from pipeline.errors import Refused
from pipeline.names import is_said
from pipeline.settings import Settings
from pipeline.store import audit, operations
from pipeline.store.operations import Intent, Operation

_REASONED: Final = frozenset({"accept a gap", "remove a group", "set a priority"})
"""Acts that are no operations and always need a reason."""


def submit(settings: Settings, engine: Engine, intent: Intent) -> Operation:
    """Write an operation and that it has begun; submitted twice under one key it is one operation.

    Raises:
        Refused: the actor has not the role for it, it disturbs and has no reason, or a target belongs to another
            operation.
    """
    from pipeline.control.disruption import require_reason  # it loads libraries of tables, which no act needs

    require_current(settings, engine, intent.actor, intent.kind)
    if intent.kind != ACCESS:  # each grant in it has a reason of its own
        require_reason(intent)
    return operations.ask(engine, intent)


def permit(
    settings: Settings, engine: Engine, actor: str, kind: str, reason: str = "", effects: Sequence[str] = ()
) -> None:
    """Let an actor do what is no operation; the caller has the store write it and its audit entry in one transaction.

    `effects` is what it does to drivers and games, in sentences.

    Raises:
        Refused: the actor has not the role for it, or it disturbs and has no reason.
    """
    require_current(settings, engine, actor, kind)
    if (effects or kind in _REASONED) and not is_said(reason):
        raise Refused(" ".join([*effects[:1], "Enter a reason. It is kept in the audit log."]))


@contextmanager
def acting(settings: Settings, engine: Engine, kind: str, act: audit.Act) -> Iterator[None]:
    """Let the act's actor do in the block what is no operation (`kind`, as roles call it).

    The audit log has it as begun before, and as ended after, also where the block fails.

    Raises:
        Refused: as `permit`. Then nothing is written.
    """
    permit(settings, engine, act.actor, kind, str(act.detail.get("reason") or ""))
    with audit.acting(engine, act):
        yield

"""The one gate to what a person does: the role at this moment, a reason for what disturbs, an entry in the audit log.

Acts that are written together with their entry, such as a change of a group, ask `roles.require_current` and write both
in one transaction. The controller checks the role of an operation again when it begins.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine

from pipeline.control.roles import ACCESS, require_current
from pipeline.settings import Settings
from pipeline.store import audit, operations
from pipeline.store.operations import Intent, Operation


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


@contextmanager
def acting(
    settings: Settings, engine: Engine, actor: str, kind: str, targets: Sequence[str], detail: Mapping[str, Any]
) -> Iterator[None]:
    """Let an actor do in the block what is no operation; the audit log has it as begun before, and as ended after.

    Raises:
        Refused: the actor has not the role for it. Then nothing is written.
    """
    require_current(settings, engine, actor, kind)
    with audit.acting(engine, audit.Act(actor, kind, tuple(targets), detail=detail)):
        yield

"""Targets that an open operation has only for a while, beside those that are its own until it ends."""

from sqlalchemy import Engine, delete, insert, select

from pipeline.store import audit
from pipeline.store.database.tables import operation_targets
from pipeline.store.operations import Operation, lock_operation, open_by_target


def hold(engine: Engine, operation: Operation, target: str) -> Operation | None:
    """Take a target for an open operation, or return the other open operation that has it. Idempotent.

    Raises:
        OperationConflict: another writer has changed the operation since it was read.
    """
    with engine.begin() as connection:
        audit.lock_log(connection)  # as for a submit: of two that want the target the second one sees the first
        lock_operation(connection, operation)
        row = connection.execute(select(operation_targets).where(operation_targets.c.target == target)).first()
        if row is None:
            values = {"target": target, "operation_id": operation.operation_id}
            connection.execute(insert(operation_targets).values(values))
        if row is None or row.operation_id == operation.operation_id:
            return None
    return open_by_target(engine, [target]).get(target, operation)


def release(engine: Engine, operation: Operation, target: str) -> None:
    """Give up a target that an operation has; nothing where it has it not."""
    own = (operation_targets.c.target == target) & (operation_targets.c.operation_id == operation.operation_id)
    with engine.begin() as connection:
        connection.execute(delete(operation_targets).where(own))

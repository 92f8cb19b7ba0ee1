"""Ends an operation before it is done: in one transaction with the look at its journal, so no step begins meanwhile."""

from collections.abc import Callable, Collection

from sqlalchemy import Engine, delete, select, update

from pipeline.errors import Refused
from pipeline.store import audit
from pipeline.store.leases import store_now
from pipeline.store.operations import Operation, lock_operation
from pipeline.store.operations import operation as find
from pipeline.store.states import OPEN, OperationState
from pipeline.store.tables import operation_steps, operation_targets, operations


def end_early(
    engine: Engine, operation: Operation, may_stop: Collection[str], outcome: Callable[[list[str]], str], by: audit.Act
) -> Operation:
    """End an operation before it is done, unless a step runs that is not in `may_stop`.

    `outcome` gets the names of the steps that are done.

    Raises:
        Refused: such a step runs.
        OperationConflict: the operation was changed after it was read.
    """
    steps_of = operation_steps.c.operation_id == operation.operation_id
    with engine.begin() as connection:
        audit.lock_log(connection)
        audit.begin(connection, by)
        lock_operation(connection, operation)  # so no step begins or acts until this is written
        journal = connection.execute(select(operation_steps).where(steps_of).order_by(operation_steps.c.number)).all()
        stuck = [each.name for each in journal if each.state == "running" and each.name not in may_stop]
        if stuck:
            raise Refused(
                f"Operation {operation.operation_id[:8]} cannot be cancelled now: its step {stuck[0]} is running and "
                "cannot be interrupted. Wait for its end; follow it with `turnout ops show`."
            )
        running = steps_of & (operation_steps.c.state == "running")
        connection.execute(update(operation_steps).where(running).values(state="failed", ended_at=store_now()))
        connection.execute(delete(operation_targets).where(operation_targets.c.operation_id == operation.operation_id))
        values = {
            "state": OperationState.CANCELLED,
            "outcome": outcome([each.name for each in journal if each.state == "done"]),
            "version": operation.version + 1, "ended_at": store_now(),
        }  # fmt: skip
        own_row = operations.c.operation_id == operation.operation_id
        connection.execute(update(operations).where(own_row, operations.c.state.in_(OPEN)).values(values))
        audit.end(connection, operation.act(), OperationState.CANCELLED)
        audit.end(connection, by, "succeeded")
    return find(engine, operation.operation_id)

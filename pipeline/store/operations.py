"""Operations: what people requested, kept until it is done, with a journal of its steps.

A requester writes one row and leaves; the controller does the work. Every change is a compare-and-set on the row's
version, so of two that act on one operation the second finds out and does nothing.
"""

import hashlib
import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, Row, bindparam, case, delete, func, insert, select, update

from pipeline.base.errors import Conflict, Refused
from pipeline.base.texts import join_limited
from pipeline.store import audit
from pipeline.store.database.id_prefix import read_by_prefix
from pipeline.store.database.states import OPEN, OperationState, StepState
from pipeline.store.database.tables import operation_steps, operation_targets, operations
from pipeline.store.processes.leases import store_now


class OperationConflict(Conflict):
    """Another writer has changed an operation since it was read; nothing was changed."""


class TargetsBusy(Refused):
    """Targets of a submitted operation belong to another open one."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What a person requests, and what they were shown of it."""

    kind: str
    targets: tuple[str, ...]  # ids such as game:KEY or group:NAME
    actor: str
    reason: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    preview: Mapping[str, Any] = field(default_factory=dict)
    idempotency_key: str = field(default_factory=lambda: uuid.uuid4().hex)
    undoes: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One line of an operation's journal."""

    number: int  # from 1
    name: str
    state: StepState
    detail: str
    started_at: float  # Unix seconds by the store's clock, as all times here
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation as it stands in the store."""

    operation_id: str
    kind: str
    state: OperationState
    targets: tuple[str, ...]
    parameters: Mapping[str, Any]
    actor: str
    reason: str
    preview: Mapping[str, Any]
    preview_hash: str
    undoes: str | None
    outcome: str | None
    requested_at: float
    ended_at: float | None
    version: int
    stuck_since: float | None = None  # when it began to need a person; None: it needs none, or nobody knows

    @property
    def is_open(self) -> bool:
        """Whether it may still act."""
        return self.state in OPEN

    @property
    def is_stuck(self) -> bool:
        """Whether it waits for a person."""
        return self.state == OperationState.NEEDS_HUMAN

    def act(self) -> audit.Act:
        """Return what the audit log says of it."""
        detail = {"parameters": self.parameters, "preview": self.preview_hash, "reason": self.reason}
        if self.undoes is not None:
            detail["undoes"] = self.undoes
        return audit.Act(self.actor, self.kind, self.targets, self.operation_id, detail)


def hash_of(preview: Mapping[str, Any]) -> str:
    """Return a short hash of what a person is shown; the same content has the same one."""
    text = json.dumps(preview, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def submit(engine: Engine, intent: Intent) -> Operation:
    """Write an operation, and that it has begun into the audit log; asked twice under one key it is one operation.

    Raises:
        TargetsBusy: one of its targets belongs to another open operation.
        Refused: the key was used for something else.
    """
    operation = Operation(
        operation_id=uuid.uuid4().hex, kind=intent.kind, state=OperationState.PLANNED,
        targets=tuple(sorted(set(intent.targets))), parameters=intent.parameters, actor=intent.actor,
        reason=intent.reason, preview=intent.preview,
        preview_hash=hash_of(intent.preview), undoes=intent.undoes, outcome=None, requested_at=0.0, ended_at=None,
        version=1,
    )  # fmt: skip
    with engine.begin() as connection:
        audit.lock_log(connection)  # so another request of the same moment waits here, and sees this one then
        known = connection.execute(
            select(operations).where(operations.c.idempotency_key == intent.idempotency_key)
        ).first()
        if known is not None:
            return _same(_operation(known), operation)
        _require_free(connection, operation.targets)
        connection.execute(insert(operations).values(_values(operation, intent.idempotency_key)))
        taken = [{"target": target, "operation_id": operation.operation_id} for target in operation.targets]
        if taken:
            connection.execute(insert(operation_targets), taken)
        audit.begin(connection, operation.act())
        return _read(connection, operation.operation_id)


def change(
    engine: Engine, operation: Operation, state: OperationState, outcome: str | None = None, by: audit.Act | None = None
) -> Operation:
    """Bring an operation into another state; where that is an end, its targets are free and the audit log is closed.

    `by` is the act of a person who has it changed: it stands in the audit log if the change is made.

    Raises:
        OperationConflict: another writer has changed it since it was read.
    """
    with engine.begin() as connection:
        ends = state not in OPEN
        if ends or by is not None:
            audit.lock_log(connection)
        if by is not None:
            audit.begin(connection, by)
        as_read = (operations.c.operation_id == operation.operation_id) & (operations.c.version == operation.version)
        ended = {"ended_at": store_now()} if ends else {}
        stuck_since = store_now() if state == OperationState.NEEDS_HUMAN else None
        changes = {"state": state, "outcome": outcome, "stuck_since": stuck_since, **ended}
        values = {**changes, "version": operations.c.version + 1}
        if not operation.is_open or not connection.execute(update(operations).where(as_read).values(values)).rowcount:
            raise OperationConflict(operation.operation_id)
        if ends:
            done = operation_targets.c.operation_id == operation.operation_id
            connection.execute(delete(operation_targets).where(done))
            audit.end(connection, operation.act(), state)
        if by is not None:
            audit.end(connection, by, "succeeded")
        return _read(connection, operation.operation_id)


def begin_step(engine: Engine, operation: Operation, name: str, detail: str = "") -> int:
    """Write that a step begins, before it does; return its number. A step of this name that still runs goes on.

    Raises:
        OperationConflict: another writer has changed the operation since it was read, or has done the step.
    """
    own_steps = operation_steps.c.operation_id == operation.operation_id
    with engine.begin() as connection:
        lock_operation(connection, operation)
        journal = connection.execute(select(operation_steps).where(own_steps, operation_steps.c.name == name)).all()
        if any(each.state == "done" for each in journal):
            raise OperationConflict(operation.operation_id)
        number = next((each.number for each in journal if each.state == "running"), None)
        if number is None:
            number = int(connection.scalar(select(func.max(operation_steps.c.number)).where(own_steps)) or 0) + 1
            row = {"operation_id": operation.operation_id, "number": number, "name": name, "detail": detail}
            connection.execute(insert(operation_steps).values({**row, "state": "running", "started_at": store_now()}))
        return int(number)


def lock_operation(connection: Connection, operation: Operation) -> None:
    """Let nobody else change an operation until the caller's transaction ends: call it first.

    What a step writes beside this, no controller writes that stood still while another one went on.

    Raises:
        OperationConflict: another writer has changed it since it was read.
    """
    as_read = (operations.c.operation_id == operation.operation_id) & (operations.c.version == operation.version)
    if not connection.execute(update(operations).where(as_read).values(version=operation.version)).rowcount:
        raise OperationConflict(operation.operation_id)


def end_step(engine: Engine, operation: Operation, number: int, state: StepState, detail: str) -> None:
    """Write how a step ended, or with `running` what it waits for."""
    own_step = (operation_steps.c.operation_id == operation.operation_id) & (operation_steps.c.number == number)
    ended = {} if state == "running" else {"ended_at": store_now()}
    with engine.begin() as connection:
        connection.execute(
            update(operation_steps)
            .where(own_step, operation_steps.c.state == "running")
            .values(state=state, detail=detail, **ended)
        )


def note_waits(engine: Engine, waits: Sequence[tuple[str, int, str]]) -> None:
    """Write what running steps (operation, number) wait for, all of them in one statement."""
    own_step = (operation_steps.c.operation_id == bindparam("of")) & (operation_steps.c.number == bindparam("step"))
    query = update(operation_steps).where(own_step, operation_steps.c.state == "running")
    rows = [{"of": operation_id, "step": number, "detail": detail} for operation_id, number, detail in waits]
    if rows:
        with engine.begin() as connection:
            connection.execute(query.values(detail=bindparam("detail")), rows)


def operation(engine: Engine, operation_id: str) -> Operation:
    """Return an operation by its id, or by the first characters of it where they are of one only.

    Raises:
        Refused: there is none, or there are several.
    """
    hint = "`turnout ops list` lists the latest."
    return _operation(read_by_prefix(engine, operations.c.operation_id, operation_id, "operation", hint))


def read_open(connection: Connection) -> list[Operation]:
    """Return every operation that has not ended: those that need a person first, then the newest.

    All counts of open operations are of these: one whose preview was edited needs a person, whatever its column says.
    """
    query = (
        select(operations)
        .where(operations.c.state.in_(OPEN))
        .order_by(operations.c.requested_at.desc(), operations.c.operation_id)
    )
    return sorted(map(_operation, connection.execute(query)), key=lambda each: not each.is_stuck)


def list_operations(engine: Engine, *, only_open: bool = False, limit: int = 100) -> list[Operation]:
    """Return operations: those that need a person first, then the open ones, then the newest."""
    if only_open:
        with engine.connect() as connection:
            return read_open(connection)[:limit]
    urgency = case(
        (operations.c.state == OperationState.NEEDS_HUMAN, 0),
        (operations.c.state.in_(OPEN), 1),
        else_=2,
    )
    query = select(operations).order_by(urgency, operations.c.requested_at.desc(), operations.c.operation_id)
    with engine.connect() as connection:
        listed = [_operation(row) for row in connection.execute(query.limit(limit))]
    return sorted(listed, key=lambda each: (not each.is_stuck, not each.is_open))


def ended_of(engine: Engine, requested_at: Collection[float]) -> list[Operation]:
    """Return the operations that were requested at these moments (Unix seconds) and have ended."""
    query = select(operations).where(operations.c.requested_at.in_(requested_at), operations.c.state.not_in(OPEN))
    with engine.connect() as connection:
        return [_operation(row) for row in connection.execute(query)]


def open_ids(engine: Engine) -> list[str]:
    """Return the ids of the open operations, the oldest first."""
    query = select(operations.c.operation_id).where(operations.c.state.in_(OPEN))
    with engine.connect() as connection:
        return list(connection.scalars(query.order_by(operations.c.requested_at, operations.c.operation_id)))


def with_journals(engine: Engine, operation_ids: Sequence[str]) -> list[tuple[Operation, list[Step]]]:
    """Return those of these operations that are open, in this order, with their journals."""
    with engine.connect() as connection:
        rows = connection.execute(select(operations).where(operations.c.operation_id.in_(operation_ids)))
        by_id = {row.operation_id: _operation(row) for row in rows}
        journals = _journals(connection, operation_ids)
    known = (by_id[each] for each in operation_ids if each in by_id)
    return [(each, journals.get(each.operation_id, [])) for each in known if each.is_open]


def about_target(engine: Engine, target: str, limit: int) -> list[tuple[Operation, list[Step]]]:
    """Return the newest operations that name a target, also those that have ended, with their journals."""
    named = operations.c.targets.contains(json.dumps(target), autoescape=True)
    query = select(operations).where(named).order_by(operations.c.requested_at.desc(), operations.c.operation_id)
    with engine.connect() as connection:
        found = [_operation(row) for row in connection.execute(query.limit(limit))]
        journals = _journals(connection, [each.operation_id for each in found])
    return [(each, journals.get(each.operation_id, [])) for each in found]


def _journals(connection: Connection, operation_ids: Sequence[str]) -> dict[str, list[Step]]:
    own_steps = operation_steps.c.operation_id.in_(operation_ids)
    columns = [operation_steps.c[name] for name in Step.__slots__]
    query = select(operation_steps.c.operation_id, *columns).where(own_steps).order_by(operation_steps.c.number)
    journals: dict[str, list[Step]] = {}
    for operation_id, *step in connection.execute(query):
        journals.setdefault(operation_id, []).append(Step(*step))
    return journals


def steps(engine: Engine, operation_id: str) -> list[Step]:
    """Return an operation's journal in its order."""
    columns = [operation_steps.c[name] for name in Step.__slots__]
    query = select(*columns).where(operation_steps.c.operation_id == operation_id).order_by(operation_steps.c.number)
    with engine.connect() as connection:
        return [Step(*row) for row in connection.execute(query)]


def open_by_target(engine: Engine, targets: Sequence[str]) -> dict[str, Operation]:
    """Return the open operations that these targets belong to, by target."""
    query = select(operation_targets.c.target, operations).join(
        operations, operations.c.operation_id == operation_targets.c.operation_id
    )
    with engine.connect() as connection:
        rows = connection.execute(query.where(operation_targets.c.target.in_(targets))).all()
    return {row.target: _operation(row) for row in rows}


def submitted_under(engine: Engine, keys: Sequence[str]) -> dict[str, Operation]:
    """Return the operations that were submitted under these idempotency keys, by key."""
    query = select(operations).where(operations.c.idempotency_key.in_(keys))
    with engine.connect() as connection:
        return {row.idempotency_key: _operation(row) for row in connection.execute(query)}


def succeeded_with(engine: Engine, kind: str, step: str, detail: str) -> list[Operation]:
    """Return the operations of a kind that succeeded, and of which a step says exactly this, the oldest first."""
    said = (operation_steps.c.name == step) & (operation_steps.c.detail == detail)
    ended = (operations.c.kind == kind) & (operations.c.state == OperationState.SUCCEEDED)
    of_step = operation_steps.c.operation_id == operations.c.operation_id
    query = select(operations).join(operation_steps, of_step).where(ended & said).order_by(operations.c.requested_at)
    with engine.connect() as connection:
        return [_operation(row) for row in connection.execute(query)]


def undone(engine: Engine) -> dict[str, str]:
    """Return which operation undid another one, or is doing so: the id of the latter → that of the newest undo."""
    query = select(operations.c.undoes, operations.c.operation_id).where(operations.c.undoes.is_not(None))
    has_effect = operations.c.state.in_((*OPEN, OperationState.SUCCEEDED))
    with engine.connect() as connection:
        rows = connection.execute(query.where(has_effect).order_by(operations.c.requested_at)).all()
    return {row.undoes: row.operation_id for row in rows}


def last_durations(engine: Engine, target: str) -> dict[str, float]:
    """Return how many seconds the newest success of each kind took, of those that were about this target alone."""
    succeeded = (operations.c.targets == json.dumps([target])) & (operations.c.state == OperationState.SUCCEEDED)
    query = select(operations.c.kind, operations.c.requested_at, operations.c.ended_at).where(succeeded)
    with engine.connect() as connection:
        rows = connection.execute(query.order_by(operations.c.ended_at)).all()
    return {row.kind: row.ended_at - row.requested_at for row in rows}


def _require_free(connection: Connection, targets: Sequence[str]) -> None:
    busy = connection.execute(select(operation_targets).where(operation_targets.c.target.in_(targets))).all()
    if busy:
        others = join_limited(busy, 3, lambda row: f"{row.target} to {row.operation_id[:8]}")
        raise TargetsBusy(
            f"{len(busy)} of {len(targets)} targets belong to another open operation: {others}. "
            "Wait for it, or see `turnout ops show`."
        )


def _same(known: Operation, wanted: Operation) -> Operation:
    if (known.kind, known.targets, known.parameters) != (wanted.kind, wanted.targets, wanted.parameters):
        raise Refused(
            f"The idempotency key of operation {known.operation_id[:8]}, a {known.kind}, is in use. Use a new one."
        )
    return known


def _read(connection: Connection, operation_id: str) -> Operation:
    return _operation(connection.execute(select(operations).where(operations.c.operation_id == operation_id)).one())


def _operation(row: Row[Any]) -> Operation:
    """Return a row; without targets and preview if the preview is not the one that the actor was shown."""
    values = {name: getattr(row, name) for name in Operation.__slots__}
    values |= {name: json.loads(values[name]) for name in ("targets", "parameters", "preview")}
    values["state"] = OperationState(row.state)
    if hash_of(values["preview"]) != row.preview_hash:
        values |= {"targets": (), "parameters": {}, "preview": {}}
        if row.state in OPEN:
            problem = "Its preview was edited in the control store. Close the operation, and submit it again."
            values |= {"state": OperationState.NEEDS_HUMAN, "outcome": problem}
    return Operation(**{**values, "targets": tuple(values["targets"])})


def _values(operation: Operation, idempotency_key: str) -> dict[str, Any]:
    return {
        "operation_id": operation.operation_id,
        "idempotency_key": idempotency_key,
        "kind": operation.kind,
        "state": operation.state,
        "targets": json.dumps(operation.targets),
        "parameters": json.dumps(operation.parameters),
        "actor": operation.actor,
        "reason": operation.reason,
        "preview": json.dumps(operation.preview),
        "preview_hash": operation.preview_hash,
        "undoes": operation.undoes,
        "requested_at": store_now(),
        "version": operation.version,
    }


def end_early(
    engine: Engine, seen: Operation, may_stop: Collection[str], outcome: Callable[[list[str]], str], by: audit.Act
) -> Operation:
    """End an operation before it is done, unless a step runs that is not in `may_stop`.

    `outcome` gets the names of the steps that are done.

    Raises:
        Refused: such a step runs.
        OperationConflict: the operation was changed after it was read.
    """
    steps_of = operation_steps.c.operation_id == seen.operation_id
    with engine.begin() as connection:
        audit.lock_log(connection)
        audit.begin(connection, by)
        lock_operation(connection, seen)  # so no step begins or acts until this is written
        journal = connection.execute(select(operation_steps).where(steps_of).order_by(operation_steps.c.number)).all()
        stuck = [each.name for each in journal if each.state == "running" and each.name not in may_stop]
        if stuck:
            raise Refused(
                f"Operation {seen.operation_id[:8]} cannot be cancelled now: its step {stuck[0]} is running and "
                "cannot be interrupted. Wait for its end; follow it with `turnout ops show`."
            )
        running = steps_of & (operation_steps.c.state == "running")
        connection.execute(update(operation_steps).where(running).values(state="failed", ended_at=store_now()))
        connection.execute(delete(operation_targets).where(operation_targets.c.operation_id == seen.operation_id))
        values = {
            "state": OperationState.CANCELLED,
            "outcome": outcome([each.name for each in journal if each.state == "done"]),
            "version": seen.version + 1, "ended_at": store_now(),
        }  # fmt: skip
        own_row = operations.c.operation_id == seen.operation_id
        connection.execute(update(operations).where(own_row, operations.c.state.in_(OPEN)).values(values))
        audit.end(connection, seen.act(), OperationState.CANCELLED)
        audit.end(connection, by, "succeeded")
    return operation(engine, seen.operation_id)

"""Registrations that wait for a second person, and their decisions, in the control store; writes no audit entry.

Called by `proposals` of this room, which does. A request is kept for ever with its plan, for pages and commands; its
definition goes with the decision, so that nobody fills the store with rejected ones.
"""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, case, insert, select, update

from pipeline.base.errors import Conflict, Refused
from pipeline.base.names import GameKey, game_key, is_said
from pipeline.data.contracts.policies import Policies
from pipeline.data.contracts.registrations import Registration
from pipeline.store.database.engine import writing
from pipeline.store.database.id_prefix import read_by_prefix
from pipeline.store.database.states import RequestState
from pipeline.store.database.tables import schema_requests
from pipeline.store.processes.leases import store_now
from pipeline.store.writers import lock

_MOST_OPEN: Final = 50  # per requester, so that nobody floods the list
_COLUMNS: Final = tuple(each for each in schema_requests.c if each.name != "definition")  # a list reads no definitions
_HINT: Final = "`turnout schemas requests` lists them."


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """A registration that a person requested, and what was decided."""

    request_id: str
    requester: str
    game_key: GameKey
    game: str  # the exact name; data, as format and message are
    format: str
    message: str
    policies: Policies
    plan: tuple[str, ...]  # the lines that the requester was shown; raw texts are in them
    plan_hash: str
    reason: str
    state: RequestState
    requested_at: float  # Unix seconds by the store's clock, as all times here
    decided_by: str | None
    decision_reason: str | None
    decided_at: float | None
    version: int | None  # of the game, which came of it
    continues: str | None = None  # the event type that was renamed to the message's, as the requester says
    new_type: bool = False  # the requester accepts the message's event type as a further one of the game
    repeated: bool = False  # it waited already when the same was requested again
    definition: bytes = field(default=b"", repr=False)  # empty in a list, and once it is decided

    @property
    def registration(self) -> Registration:
        """Return what is registered once it is approved: exactly the plan that was shown, in the requester's name."""
        return Registration(
            self.game, self.message, self.definition, self.policies, self.plan_hash, self.format, self.requester,
            self.continues, self.new_type,
        )  # fmt: skip


class SchemaRequestConflict(Conflict, Refused):
    """Another person has decided a request since it was read; the message says who, so it is shown as a refusal."""


def submit(
    engine: Engine, registration: Registration, plan_hash: str, lines: Sequence[str], requester: str, reason: str
) -> SchemaRequest:
    """Write a request.

    While one by the same requester for the same waits, that one is returned as `repeated`, and nothing is written.

    Raises:
        Refused: no reason is given, or the requester has too many that are not decided yet.
    """
    if not is_said(reason):
        raise Refused("A second person must approve this: enter a reason for them. Nothing was requested.")
    table = schema_requests
    policies = json.dumps(dict(registration.policies.chosen), sort_keys=True)
    values = {
        "game_key": game_key(registration.game), "game": registration.game, "format": registration.format,
        "message": registration.message, "definition": registration.definition, "policies": policies,
        "plan_hash": plan_hash, "continues": registration.continues, "new_type": int(registration.new_type),
    }  # fmt: skip
    with writing(engine) as connection:
        lock(connection)
        own = (table.c.requester == requester) & (table.c.state == "asked")
        same = own
        for column, value in values.items():
            same &= table.c[column].is_not_distinct_from(value)
        if (row := connection.execute(select(table).where(same)).first()) is not None:
            return replace(_read(row), repeated=True)
        if len(connection.execute(select(table.c.request_id).where(own)).all()) >= _MOST_OPEN:
            raise Refused(f"{_MOST_OPEN} of your requests still wait. Withdraw some, or ask the people who approve.")
        request_id = uuid.uuid4().hex
        shown = {"plan": json.dumps(list(lines)), "reason": reason, "requester": requester, "state": "asked"}
        connection.execute(insert(table).values(request_id=request_id, requested_at=store_now(), **values, **shown))
        return _one(connection, request_id)


def decide(
    connection: Connection,
    request: SchemaRequest,
    state: RequestState,
    actor: str,
    reason: str,
    version: int | None = None,
) -> SchemaRequest:
    """Write a decision in the caller's transaction, which holds the lock of the store's numbers.

    Raises:
        SchemaRequestConflict: another person has decided meanwhile.
    """
    table = schema_requests
    still_open = (table.c.request_id == request.request_id) & (table.c.state == "asked")
    decision = {
        "state": state, "decided_by": actor, "decision_reason": reason, "version": version, "definition": b"",
    }  # fmt: skip
    if not connection.execute(update(table).where(still_open).values(decided_at=store_now(), **decision)).rowcount:
        raise already_decided(_one(connection, request.request_id))
    return _one(connection, request.request_id)


def already_decided(request: SchemaRequest) -> SchemaRequestConflict:
    """Return the refusal of a second decision."""
    by = request.decided_by
    return SchemaRequestConflict(
        f"Request {request.request_id[:8]} was {request.state} by {by!r}. Nothing was changed."
    )


def request(engine: Engine, request_id: str) -> SchemaRequest:
    """Return a request with its definition, by its id or a unique prefix.

    Raises:
        Refused: there is none, or there are several.
    """
    return _read(read_by_prefix(engine, schema_requests.c.request_id, request_id, "request", _HINT))


def list_requests(engine: Engine, limit: int = 100) -> list[SchemaRequest]:
    """Return requests without definitions: open ones first, oldest first; then decided ones, newest first."""
    table = schema_requests
    waits = case((table.c.state == "asked", 0), else_=1)
    turn = case((table.c.state == "asked", table.c.requested_at), else_=-table.c.requested_at)
    with engine.connect() as connection:
        rows = connection.execute(select(*_COLUMNS).order_by(waits, turn, table.c.request_id).limit(limit)).all()
    return [_read(row) for row in rows]


def _one(connection: Connection, request_id: str) -> SchemaRequest:
    return _read(connection.execute(select(schema_requests).where(schema_requests.c.request_id == request_id)).one())


def _read(row: Row[Any]) -> SchemaRequest:
    values = row._asdict()
    policies = Policies(tuple(sorted(json.loads(row.policies).items())))
    definition = bytes(values.pop("definition", b""))
    return SchemaRequest(
        **{
            **values,
            "new_type": bool(row.new_type),
            "policies": policies,
            "plan": tuple(json.loads(row.plan)),
            "definition": definition,
        }
    )

"""Requests for access and their decisions; nothing changes before an access admin approves."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, case, insert, select, update

from grants.model import folded
from pipeline.base.errors import Conflict, Refused
from pipeline.base.names import is_said
from pipeline.control.roles import same_person
from pipeline.store import audit
from pipeline.store.database.id_prefix import read_by_prefix
from pipeline.store.database.states import RequestState
from pipeline.store.database.tables import access_requests
from pipeline.store.processes.leases import store_now

_MAX_OPEN: Final = 50  # per requester, so that nobody floods the list
_HOW: Final = ("adopt", "revert")


@dataclass(frozen=True, slots=True)
class Request:
    """What a person requests."""

    request_id: str
    requester: str
    intents: Sequence[Mapping[str, Any]]
    reason: str
    state: RequestState
    decided_by: str | None
    decision_reason: str | None
    operation_id: str | None  # what came of it
    requested_at: float  # Unix seconds by the store's clock, as all times here
    decided_at: float | None
    version: int
    repeated: bool = False  # it waited already when the same was requested again


class RequestConflict(Conflict, Refused):
    """Another person has decided a request since it was read; the message says who, so it is shown as a refusal."""


def submit(engine: Engine, requester: str, intents: Sequence[Mapping[str, Any]], reason: str) -> Request:
    """Write a request, with its entry in the audit log.

    While one by the same requester for the same waits, that one is returned as `repeated`, and nothing is written: a
    second click, or a call that is made again because its answer was lost, asks for nothing more.

    Raises:
        Refused: no reason is given, or the requester has too many that are not decided yet.
    """
    if not is_said(reason):
        raise Refused("Enter a reason for the access admin.")
    request_id, wanted = uuid.uuid4().hex, _cells(intents)
    detail = {"request": request_id, "reason": reason, **audit.kept(audit.requested(intents))}
    act = audit.Act(requester, "request access", _targets(intents), None, detail)
    with engine.begin() as connection:
        audit.lock_log(connection)
        own_waiting = (access_requests.c.requester == requester) & (access_requests.c.state == "asked")
        waiting = [_read(row) for row in connection.execute(select(access_requests).where(own_waiting))]
        for each in waiting:
            if _cells(each.intents) == wanted:
                return replace(each, repeated=True)
        if len(waiting) >= _MAX_OPEN:
            raise Refused(f"{_MAX_OPEN} of your requests are still open. Withdraw some, or ask an access admin.")
        audit.begin(connection, act)
        connection.execute(
            insert(access_requests).values(
                request_id=request_id, requester=requester, intents=json.dumps(list(intents)), reason=reason,
                state="asked", requested_at=store_now(), version=1,
            )
        )  # fmt: skip
        audit.end(connection, act, "succeeded")
        return _one(connection, request_id)


def describe(wanted: Request) -> str:
    """Report the outcome of a request."""
    name = wanted.request_id[:8]
    if wanted.repeated:
        return f"Already requested as {name}, with its first reason; it waits for an access admin."
    return f"Requested as {name}; it waits for an access admin. Nothing has changed yet."


def decide(
    engine: Engine,
    request: Request,
    state: RequestState,
    actor: str,
    decision_reason: str,
    operation_id: str | None = None,
) -> Request:
    """Decide about a request and audit it.

    Raises:
        Refused: who decides is who asked (that one may only withdraw), or no reason is given for a rejection.
        RequestConflict: another person has decided meanwhile.
    """
    if same_person(actor, request.requester) != (state == "withdrawn"):
        raise Refused(
            "You cannot decide on your own request; ask another access admin."
            if state != "withdrawn"
            else f"Only {request.requester!r} can withdraw this request. Reject it instead."
        )
    if state == "rejected" and not is_said(decision_reason):
        raise Refused("Enter a reason for the rejection; the requester sees it.")
    detail = {"request": request.request_id, "requester": request.requester, "decision_reason": decision_reason}
    detail |= audit.kept(audit.requested(request.intents))
    act = audit.Act(actor, f"{state} a request", _targets(request.intents), operation_id, detail)
    as_read = (access_requests.c.request_id == request.request_id) & (access_requests.c.version == request.version)
    values = {
        "state": state, "decided_by": actor, "decision_reason": decision_reason, "operation_id": operation_id,
        "decided_at": store_now(), "version": request.version + 1,
    }  # fmt: skip
    with engine.begin() as connection:
        audit.lock_log(connection)
        audit.begin(connection, act)
        still_open = as_read & (access_requests.c.state == "asked")
        if not connection.execute(update(access_requests).where(still_open).values(values)).rowcount:
            now = _one(connection, request.request_id)
            raise RequestConflict(f"This request was {now.state} by {now.decided_by!r} meanwhile. Nothing was changed.")
        audit.end(connection, act, "succeeded")
        return _one(connection, request.request_id)


def request(engine: Engine, request_id: str) -> Request:
    """Return a request by its id or a unique prefix.

    Raises:
        Refused: there is none, or there are several.
    """
    hint = "`turnout grants requests` lists them."
    return _read(read_by_prefix(engine, access_requests.c.request_id, request_id, "request", hint))


def list_requests(engine: Engine, limit: int = 100) -> list[Request]:
    """Return requests: open ones first, oldest first; then decided ones, newest first."""
    waits = case((access_requests.c.state == "asked", 0), else_=1)
    turn = case(
        (access_requests.c.state == "asked", access_requests.c.requested_at), else_=-access_requests.c.requested_at
    )
    with engine.connect() as connection:
        rows = connection.execute(select(access_requests).order_by(waits, turn).limit(limit)).all()
    return [_read(row) for row in rows]


def _cells(intents: Sequence[Mapping[str, Any]]) -> frozenset[tuple[Any, ...]]:
    """Return the identity of a request: principals, games and end, without the reason."""
    return frozenset(
        (
            folded(each["principal"]),
            each["key"],
            each["read"],
            each.get("until"),
            *(each.get(how, False) for how in _HOW),
        )
        for each in intents
    )


def _targets(intents: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(sorted({f"game:{each['key']}" for each in intents}))


def _one(connection: Connection, request_id: str) -> Request:
    return _read(connection.execute(select(access_requests).where(access_requests.c.request_id == request_id)).one())


def _read(row: Row[Any]) -> Request:
    return Request(**{**row._asdict(), "intents": json.loads(row.intents)})

"""Closed days that a person asks to open again, and what another person decided; writes no audit entry.

A request names the revision that it opens. So it says nothing any more once the ledger has the next one, and a control
store that was restored from an older copy opens no day twice: the ledger keeps who reopened it.
"""

import uuid
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, Row, case, insert, select, update

from pipeline.base.errors import Conflict, Refused
from pipeline.store.database.engine import writing
from pipeline.store.database.id_prefix import read_by_prefix
from pipeline.store.database.report_tables import book_reopenings
from pipeline.store.database.states import RequestState
from pipeline.store.processes.leases import store_now

_MOST_OPEN: Final = 50  # per requester, so that nobody floods the list
_HINT: Final = "`turnout books requests` lists them."


@dataclass(frozen=True, slots=True)
class Reopening:
    """A request to open a closed day again; times are Unix seconds by the store's clock."""

    request_id: str
    requester: str
    game_key: str
    day: int  # its begin, microseconds since 1970
    day_seconds: int
    revision: int
    reason: str
    state: RequestState
    requested_at: float
    decided_by: str | None
    decision_reason: str | None
    decided_at: float | None
    repeated: bool = False  # it waited already when the same was requested again


class ReopeningConflict(Conflict, Refused):
    """Another person has decided meanwhile; the message says who, so it is shown as a refusal."""


def submit(
    engine: Engine, key: str, day: int, day_seconds: int, revision: int, requester: str, reason: str
) -> Reopening:
    """Write a request; while the same by the same person waits, that one is returned as `repeated`.

    Raises:
        Refused: the requester has too many that are not decided yet.
    """
    table = book_reopenings
    values = {"game_key": key, "day": day, "day_seconds": day_seconds, "revision": revision}
    with writing(engine) as connection:
        own = (table.c.requester == requester) & (table.c.state == "asked")
        open_ones = [_read(row) for row in connection.execute(select(table).where(own))]
        for each in open_ones:
            if (each.game_key, each.day, each.revision) == (key, day, revision):
                return replace(each, repeated=True)
        if len(open_ones) >= _MOST_OPEN:
            raise Refused(f"{_MOST_OPEN} of your requests still wait. Withdraw some, or ask the people who approve.")
        request_id = uuid.uuid4().hex
        asked = {"requester": requester, "reason": reason, "state": "asked", "requested_at": store_now()}
        connection.execute(insert(table).values(request_id=request_id, **values, **asked))
        return _one(connection, request_id)


def decide(engine: Engine, wanted: Reopening, state: RequestState, actor: str, reason: str) -> Reopening:
    """Write a decision; of two people who decide the first one counts.

    Raises:
        ReopeningConflict: another person has decided meanwhile.
    """
    table = book_reopenings
    still_open = (table.c.request_id == wanted.request_id) & (table.c.state == "asked")
    decision = {"state": state, "decided_by": actor, "decision_reason": reason, "decided_at": store_now()}
    with writing(engine) as connection:
        if not connection.execute(update(table).where(still_open).values(decision)).rowcount:
            found = _one(connection, wanted.request_id)
            raise ReopeningConflict(
                f"Request {found.request_id[:8]} was {found.state} by {found.decided_by!r}. Nothing was changed."
            )
        return _one(connection, wanted.request_id)


def request(engine: Engine, request_id: str) -> Reopening:
    """Return a request by its id or a unique prefix.

    Raises:
        Refused: there is none, or there are several.
    """
    return _read(read_by_prefix(engine, book_reopenings.c.request_id, request_id, "request", _HINT))


def list_requests(engine: Engine, limit: int = 100) -> list[Reopening]:
    """Return requests: open ones first, oldest first; then decided ones, newest first."""
    table = book_reopenings
    waits = case((table.c.state == "asked", 0), else_=1)
    turn = case((table.c.state == "asked", table.c.requested_at), else_=-table.c.requested_at)
    with engine.connect() as connection:
        rows = connection.execute(select(table).order_by(waits, turn, table.c.request_id).limit(limit)).all()
    return [_read(row) for row in rows]


def approved(engine: Engine, key: str | None = None) -> list[Reopening]:
    """Return the approved requests of a game, or of all; those whose revision is no longer the newest say nothing."""
    table = book_reopenings
    wanted: ColumnElement[bool] = table.c.state == "approved"
    if key is not None:
        wanted &= table.c.game_key == key
    with engine.connect() as connection:
        return [_read(row) for row in connection.execute(select(table).where(wanted).order_by(table.c.decided_at))]


def _one(connection: Connection, request_id: str) -> Reopening:
    return _read(connection.execute(select(book_reopenings).where(book_reopenings.c.request_id == request_id)).one())


def _read(row: Row[Any]) -> Reopening:
    return Reopening(**row._asdict())

"""The audit log: what people had done, in a table that is only ever appended to, each entry bound to the one before.

An act is written before it is done and closed after it, so that one without an end is one of which nobody knows how it
ended. The hashes show what was changed or taken out later by someone who could not write the rest again; who keeps the
newest hash elsewhere can show even that.
"""

import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Connection, Engine, Row, select, true, update

from pipeline.base.actor import current_user
from pipeline.base.errors import Refused
from pipeline.store.database.states import AuditPhase
from pipeline.store.database.tables import audit, audit_head
from pipeline.store.processes.leases import store_now

_HEAD: Final = (audit_head.c.day, audit_head.c.number, audit_head.c.at, audit_head.c.hash)
_NOTHING: Final = ("", 0, 0.0, "")  # the head of a log without entries
_ROWS: Final = 1_000  # read at once
_MAX_NUMBER: Final = (1 << 31) - 1  # the largest that PostgreSQL keeps there; the next entry has one more
_IS_NO_DAY: Final = (audit.c.day < "0") | (audit.c.day > "9999")


@dataclass(frozen=True, slots=True)
class Act:
    """What an actor does: written as begun, and again as ended."""

    actor: str
    action: str
    targets: tuple[str, ...]
    operation_id: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log."""

    day: str  # YYYY-MM-DD, UTC
    number: int  # within the day
    at: float  # Unix seconds by the store's clock, never earlier than the entry before
    actor: str
    executor: str
    action: str
    targets: tuple[str, ...]
    operation_id: str | None
    phase: AuditPhase
    outcome: str | None
    detail: Mapping[str, Any]
    hash: str
    defect: str | None = None  # why it is not what was written; targets and detail that cannot be read are empty

    @property
    def place(self) -> str:
        """Its name for people: day and number."""
        return f"{self.day} #{self.number}"

    def hash_after(self, previous: str) -> str:
        """Return the hash this entry has after another one's."""
        content = [
            previous, self.day, self.number, self.at, self.actor, self.executor, self.action, list(self.targets),
            self.operation_id, self.phase, self.outcome, dict(self.detail),
        ]  # fmt: skip
        return hashlib.sha256(_json(content).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """What a look at the whole log found."""

    entries: int
    head: str  # the newest hash; keep it elsewhere, and ask for it at the next look
    defects: tuple[str, ...]  # one sentence each
    unended: tuple[Entry, ...]  # acts that have begun and not ended

    @property
    def intact(self) -> bool:
        """Whether no entry was changed, taken out or slipped in."""
        return not self.defects


def lock_log(connection: Connection) -> None:
    """Let nobody else append until the caller's transaction ends: call it first, and do nothing slow after it."""
    connection.execute(update(audit_head).values(hash=audit_head.c.hash))


def begin(connection: Connection, act: Act) -> None:
    """Write an act before it is done, in the caller's transaction, which holds the log from here on.

    Raises:
        Refused: the log was changed by hand, so that nothing can be appended to it.
    """
    _append(connection, act, "begun", None)


def end(connection: Connection, act: Act, outcome: str) -> None:
    """Close an act, in the caller's transaction."""
    _append(connection, act, "ended", outcome)


@contextmanager
def acting(engine: Engine, act: Act) -> Iterator[None]:
    """Write an act that is no operation into the log before the block does it, and close it after.

    Where it cannot be written the block is not entered. A process that dies in the block leaves an act without an end.
    """
    with engine.begin() as connection:
        begin(connection, act)
    outcome = "failed"
    try:
        yield
        outcome = "succeeded"
    finally:
        with engine.begin() as connection:
            end(connection, act, outcome)


def entries(engine: Engine, since: str | None = None, until: str | None = None) -> Iterator[Entry]:
    """Return the entries of the days from `since` up to `until` (both YYYY-MM-DD and included), oldest first.

    A row that was changed so that it cannot be read is an entry with a `defect`; one of no day is in every list.
    """
    wanted = true() if since is None else audit.c.day >= since
    wanted &= true() if until is None else audit.c.day <= until
    return map(_entry, _rows(engine, wanted | _IS_NO_DAY))


def begun_of(engine: Engine, operation_ids: Sequence[str]) -> Iterator[Entry]:
    """Return the entries of operations (by their ids) from before they were done, oldest first."""
    begun = (audit.c.phase == "begun") & audit.c.operation_id.in_(operation_ids)
    return map(_entry, _rows(engine, begun)) if operation_ids else iter(())


def verify(engine: Engine, known: str | None = None) -> AuditVerdict:
    """Look whether every entry is what it was when it was written, and whether one of them has the `known` hash."""
    chain, seen = _Chain(known), None
    while True:
        before = chain.count
        for row in _rows(engine, chain.rest()):
            chain.add(row)
        with engine.connect() as connection:
            written = _newest_written(connection)
        if written == chain.last:
            break
        if chain.count == before and written == seen:  # nobody was writing while we read: it is not there
            chain.defects.append(_misplaced(written, chain.last))
            break
        seen = written
    if not chain.knows:
        chain.defects.append(
            f"no entry has the hash {known}: the log was rewritten, or the hash belongs to another log"
        )
    unended = tuple(entry for waiting in chain.begun.values() for entry in waiting)
    return AuditVerdict(chain.count, chain.hash, tuple(chain.defects), unended)


class _Chain:
    """The entries read so far, each checked against the one before."""

    last: tuple[Any, ...]  # place, time and hash of the last, as they were stored

    def __init__(self, known: str | None) -> None:
        self.last = _NOTHING
        self.count, self.hash, self.knows = 0, "", known is None
        self.defects: list[str] = []
        self.begun: dict[tuple[Any, ...], list[Entry]] = {}
        self._known = known
        self._last = ("", 0)

    def rest(self) -> ColumnElement[bool]:
        """Return the SQL condition of later entries."""
        if not self.count:
            return true()
        day, number, *_ = self.last
        after: ColumnElement[bool] = (audit.c.day > day) | ((audit.c.day == day) & (audit.c.number > number))
        return after

    def add(self, row: Row[Any]) -> None:
        entry = _entry(row)
        day, number = self._last
        expected = 1 if entry.day != day else number + 1
        if entry.number != expected:
            self.defects.append(f"{entry.day}: entries before {entry.number} are missing, from {expected} on")
        wrong = entry.defect
        if wrong is None and entry.hash != entry.hash_after(self.hash):
            wrong = "it, or the entry before it, is not what was written"
        if wrong is not None:
            self.defects.append(f"{entry.place}: {wrong}")
        self.knows |= entry.hash == self._known
        self._pair(entry)
        self.count, self.hash, self._last = self.count + 1, entry.hash, (entry.day, entry.number)
        self.last = (row.day, row.number, row.at, row.hash)

    def _pair(self, entry: Entry) -> None:
        """Put an act that begins with those that wait for their end, or take out the one that ends."""
        name: tuple[Any, ...] = (entry.actor, entry.action, entry.targets)
        if entry.operation_id is not None:
            name = (entry.operation_id,)
        if entry.phase == "begun":
            self.begun.setdefault(name, []).append(entry)
        elif self.begun.get(name):
            self.begun[name].pop()  # the last that began: what a person does about an operation lies within it


def _rows(engine: Engine, wanted: ColumnElement[bool]) -> Iterator[Row[Any]]:
    query = select(audit).where(wanted).order_by(audit.c.day, audit.c.number)
    with engine.connect() as connection:
        yield from connection.execution_options(yield_per=_ROWS).execute(query)


def _append(connection: Connection, act: Act, phase: AuditPhase, outcome: str | None) -> None:
    lock_log(connection)
    head_day, head_number, head_at, head_hash = _head(connection)
    at = max(float(connection.scalar(select(store_now())) or 0.0), head_at)  # a clock that goes back makes no older day
    day = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"
    number = head_number + 1 if head_day == day else 1
    described = (act.actor, _executor(), act.action, act.targets, act.operation_id)
    entry = Entry(day, number, at, *described, phase, outcome, act.detail, hash="")
    digest = entry.hash_after(head_hash)
    connection.execute(
        audit.insert().values(
            day=day, number=number, at=at, actor=act.actor, executor=entry.executor, action=act.action,
            targets=_json(list(act.targets)), operation_id=act.operation_id, phase=phase, outcome=outcome,
            detail=_json(dict(act.detail)), hash=digest,
        )
    )  # fmt: skip
    connection.execute(update(audit_head).values(day=day, number=number, at=at, hash=digest))


def _head(connection: Connection) -> tuple[str, int, float, str]:
    """Return place, time and hash of the newest entry; the caller holds the log.

    Raises:
        Refused: what was written last and the last entry are two things, so no entry can be bound to it.
    """
    newest = select(audit).order_by(audit.c.day.desc(), audit.c.number.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    last = _NOTHING if row is None else (row.day, row.number, row.at, row.hash)
    if _newest_written(connection) != last or (row is not None and _entry(row).defect is not None):
        raise Refused(
            "The audit log was edited and does not end with the last written entry, so turnout can record no act. "
            "Run `turnout audit verify`."
        )
    return last


def _newest_written(connection: Connection) -> tuple[Any, ...] | None:
    """Return place, time and hash of the entry that was written last, as the head has them; None without one head."""
    heads = connection.execute(select(*_HEAD)).all()
    return tuple(heads[0]) if len(heads) == 1 else None


def _misplaced(written: tuple[Any, ...] | None, last: tuple[Any, ...]) -> str:
    if written is None:
        return "audit_head must have one row, so the last entry is unknown"
    if written[3] != last[3]:
        return f"{written[0]} #{written[1]} is the newest written entry, but not the last of the log"
    return f"audit_head was changed: its day, number and time are {written[:3]}, those of the last entry {last[:3]}"


def _entry(row: Row[Any]) -> Entry:
    """Return a row's entry; a person may have edited targets and detail, so they are checked."""
    targets: tuple[str, ...] = ()
    detail: dict[str, Any] = {}
    defect = None
    try:
        targets, detail = _parsed(row)
    except (ValueError, RecursionError) as error:
        defect = f"its row is invalid and was edited: {error}"
    return Entry(**{**row._asdict(), "targets": targets, "detail": detail}, defect=defect)


def _parsed(row: Row[Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return targets and detail of a row; what no act can have is a ValueError, such as half a character."""
    if row.number >= _MAX_NUMBER:
        raise ValueError("number is too large")
    targets, detail = json.loads(row.targets), json.loads(row.detail)
    if type(targets) is not list or any(type(each) is not str for each in targets):
        raise ValueError("targets is not a list of texts")
    if type(detail) is not dict:
        raise ValueError("detail is not an object")
    _json([targets, detail]).encode()
    if (row.targets, row.detail) != (_json(targets), _json(detail)):  # the hash is over the values
        raise ValueError("targets or detail is not in turnout's form")
    return tuple(targets), detail


def _executor() -> str:
    return f"{current_user()}@{socket.gethostname()} pid {os.getpid()}"


def _json(value: Any) -> str:
    """Write a value in the one way it can be written."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


Verb = Literal["grant", "revoke", "adopt"]
_WHOSE: Final[Mapping[Verb, str]] = {"grant": "to", "revoke": "from", "adopt": "of"}
_KEPT_AS: Final = "changes"


@dataclass(frozen=True, slots=True)
class AccessChange:
    """One change for one principal; the game is empty where it is about privileges that no game needs."""

    verb: Verb
    principal: str
    game_key: str
    table: str = ""  # its full name; empty where nothing was read of the catalog yet

    def sentence(self, names: Mapping[str, str]) -> str:
        """Return the change for people; `names` are the games' by their keys."""
        key = self.game_key
        what = f"{names.get(key, key)} ({self.table or key})" if key else "privileges that no game needs"
        return f"{self.verb} {what} {_WHOSE[self.verb]} {self.principal}"


def requested(
    intents: Iterable[Mapping[str, Any]], table_of: Callable[[str], str] = lambda _: ""
) -> list[AccessChange]:
    """Return what intents request; each names a principal, a game's key, and whether to read it or to adopt that."""
    return [
        AccessChange(
            "adopt" if each.get("adopt") else "grant" if each["read"] else "revoke",
            each["principal"],
            each["key"],
            table_of(each["key"]),
        )
        for each in intents
    ]


def kept(changes: Iterable[AccessChange]) -> dict[str, Any]:
    """Return changes as the detail of an act, or the parameters of an operation, keeps them."""
    return {_KEPT_AS: [asdict(each) for each in changes]}


def changes_of(detail: Mapping[str, Any]) -> Sequence[AccessChange]:
    """Return what an entry's detail says of access; nothing where it is about something else, or was spoilt by hand."""
    parameters = detail.get("parameters")
    rows = (parameters if isinstance(parameters, Mapping) else detail).get(_KEPT_AS)
    return [change for row in (rows if isinstance(rows, list) else []) if (change := _read(row)) is not None]


def _read(row: Any) -> AccessChange | None:
    if not isinstance(row, Mapping):
        return None
    words = {name: row.get(name) for name in ("principal", "game_key", "table")}
    texts = {name: word for name, word in words.items() if isinstance(word, str)}
    verb = next((each for each in _WHOSE if each == row.get("verb")), None)
    return None if verb is None or texts.keys() != words.keys() else AccessChange(verb, **texts)

"""Running processes: who beats, where its metrics are, how it ended; and the newest bronze commits.

Times of processes and of what they report are the store's clock's, whatever the clocks of their machines say.
"""

import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import ColumnElement, Engine, RowMapping, case, delete, exists, func, select, update
from sqlalchemy.exc import IntegrityError

from listeners.process_kinds import GROUP
from listeners.sample import StreamState, TypeRows
from pipeline.store.database.engine import writing
from pipeline.store.database.states import ProcessState
from pipeline.store.database.tables import bronze_commits, drivers, leases, streams
from pipeline.store.processes.leases import store_now
from pipeline.store.rows import CLOCK_BOUND_SECONDS, BronzeCommit, Driver

_COMMITS_KEPT = 5_000
_rows: Final[dict[tuple[str, str], dict[str, Any]]] = {}  # what this process has said at its start, by kind and name
_COLUMNS: Final = {"group": "group_name"}  # of fields whose columns have other names
_STATE = {_COLUMNS.get(each.name, each.name): each.name for each in fields(StreamState)}
_LABELS: Final = {field: f"reported_{field}" for field in _STATE.values()}

_VALUES: Final = attrgetter(*(field for field in _STATE.values() if field != "updated_at"))

REPORTED: Final = tuple(streams.c[name].label(_LABELS[field]) for name, field in _STATE.items())
"""The columns of `streams` in a query beside other tables, from which `reported_in` makes a state."""


def start_driver(engine: Engine, kind: str, name: str, metrics_address: str | None, run_id: int | None = None) -> None:
    """Note that this process now drives the ingest or the group; its predecessor's row is taken over.

    `run_id` is the run that a controller started it for, None where it was started by hand; one that a controller has
    adopted meanwhile has its run in its lease.

    From where its queries read is known only of a predecessor on this machine, whose checkpoint they go on from.
    """
    row = _rows[kind, name] = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started_at": store_now(),
        "heartbeat_at": store_now(),
        "state": "starting",
        "error": None,
        "metrics_address": metrics_address,
        "frontier_seq": None,
        "run_id": run_id if run_id is not None else _adopted_as(kind, name),
    }
    is_here = drivers.c.host == row["host"]
    taken_over = {**row, "reads_from": case((is_here, drivers.c.reads_from), else_=None)}
    with writing(engine) as connection:
        if connection.execute(update(drivers).where(_is_of(kind, name)).values(taken_over)).rowcount:
            return
    with writing(engine) as connection:
        connection.execute(drivers.insert().values(kind=kind, name=name, **row))


def heartbeat(
    engine: Engine,
    kind: str,
    name: str,
    state: ProcessState,
    frontier_seq: int | None,
    error: str | None = None,
    reads_from: int | None = None,
) -> None:
    """Write a heartbeat; a process that was taken over by another no longer beats.

    One that holds its lease writes its row again where the store, as an older copy, has another process's.
    Without `reads_from`, the version of bronze that its queries read next, what it said last stays: versions grow.
    A running driver whose own clock differs from the store's reports that first: the ages that it measures are wrong.
    """
    with writing(engine) as connection:
        ahead = time.time() - connection.execute(select(store_now())).scalar_one()
        if state == "running" and abs(ahead) > CLOCK_BOUND_SECONDS:
            how = "ahead of" if ahead > 0 else "behind"
            skew = f"has a clock {abs(ahead):.0f} s {how} the control store's, so its ages are wrong"
            state, error = "skewed", f"{skew}\n{error}" if error else skew
        values = {"heartbeat_at": store_now(), "state": state, "frontier_seq": frontier_seq, "error": error}
        if reads_from is not None:
            values["reads_from"] = reads_from
        row = _rows.get((kind, name))
        done = connection.execute(update(drivers).where(_is_of(kind, name), _is_ours()).values(values)).rowcount
        if not done and row is not None:
            holds = exists().where(_is_own_lease(kind, name))
            connection.execute(update(drivers).where(_is_of(kind, name), holds).values({**row, **values}))


def _adopted_as(kind: str, name: str) -> Any:
    """Return, as SQL, the run that the lease of this very process names."""
    return select(leases.c.run_id).where(_is_own_lease(kind, name)).scalar_subquery()


def _is_own_lease(kind: str, name: str) -> ColumnElement[bool]:
    """Return the SQL condition that a lease is this very process's, and runs."""
    is_its = (leases.c.kind == kind) & (leases.c.name == name)
    is_ours = (leases.c.pid == os.getpid()) & (leases.c.host == socket.gethostname())
    return is_its & is_ours & (leases.c.expires_at > store_now())


@dataclass(frozen=True, slots=True)
class BronzeReader:
    """The queries of a group's driver, on whatever machine."""

    group: str
    reads_from: int | None  # the version of bronze that they read next; None: the driver has not said
    said_at: float  # when the driver last beat; Unix seconds


def bronze_readers(engine: Engine) -> list[BronzeReader]:
    """Return the position of each group that has a driver or had one, as a later driver may go on from there."""
    rows = select(drivers.c.name, drivers.c.host, drivers.c.reads_from, drivers.c.heartbeat_at)
    held = select(leases.c.name, leases.c.host).where(leases.c.kind == GROUP, leases.c.expires_at > store_now())
    with engine.connect() as connection:
        now = float(connection.execute(select(store_now())).scalar_one())
        host_of = {row.name: row.host for row in connection.execute(held)}
        said = connection.execute(rows.where(drivers.c.kind == GROUP)).all()
    # Where a driver of another machine has the lease, it goes on from a checkpoint of its own.
    known = {row.name: BronzeReader(row.name, *row[2:]) for row in said if host_of.get(row.name, row.host) == row.host}
    return [known.get(name) or BronzeReader(name, None, now) for name in sorted(known.keys() | host_of)]


def record_hung(engine: Engine, driver: Driver, why: str) -> None:
    """Write that a driver was killed for another one, if it is still the one that beat."""
    same = (drivers.c.pid == driver.pid) & (drivers.c.host == driver.host)
    values = {"state": "failed", "error": why}
    with writing(engine) as connection:
        connection.execute(update(drivers).where(_is_of(driver.kind, driver.name), same).values(values))


class StreamReports:
    """The states of a group's streams, as its driver reports them again and again.

    The row of a stream that has not changed gets its new time by one statement for all: 24 µs become 2.
    """

    def __init__(self, engine: Engine) -> None:
        """Begin without knowing what the store has."""
        self._engine = engine
        self._written: dict[str, tuple[Any, ...]] = {}  # by game key
        self._at: float | None = None  # when, as all of these rows have it; None: not known

    def write(self, states: Sequence[StreamState], *, is_news: bool = False) -> None:
        """Replace the observed state of these streams; does nothing where another process has taken over.

        What `is_news` is judged at once, see `newest_news`.
        """
        if not states:
            return
        group, values = states[0].group, {state.game_key: _VALUES(state) for state in states}
        is_known = self._at is not None and values.keys() == self._written.keys()
        before, at = (self._written, self._at) if is_known else ({}, None)
        changed = [state for state in states if before.get(state.game_key) != values[state.game_key]]
        self._written, self._at = values, None
        try:
            self._at = _replace(self._engine, group, _rows_of(changed), is_news=is_news, whole=(len(states), at))
        except (IntegrityError, _Touched):
            # Two groups reported one stream at the same moment, as after a move, or one has reported it since: again.
            self._at = _replace(self._engine, group, _rows_of(states), is_news=is_news)


def newest_news(engine: Engine) -> float | None:
    """Return when a driver last reported streams before their time, as judges look then; None: none ever did."""
    with engine.connect() as connection:
        at: float | None = connection.scalar(select(func.max(drivers.c.news_at)))
        return at


def reported_in(row: RowMapping) -> StreamState | None:
    """Return the state that a row with the columns `REPORTED` has, None where no driver ever reported the stream."""
    if row[_LABELS["game_key"]] is None:
        return None
    said = {field: row[label] for field, label in _LABELS.items()}
    said["refused"] = json.loads(said["refused"]) if said["refused"] else {}
    said["refused_at"] = json.loads(said["refused_at"]) if said["refused_at"] else {}
    types = json.loads(said["types"]) if said["types"] else {}
    said["types"] = {name: TypeRows(*rows) for name, rows in types.items()}
    return StreamState(**said)


class _Touched(Exception):
    """Rows are not as this driver left them."""


def _rows_of(states: Sequence[StreamState]) -> list[dict[str, Any]]:
    # Not asdict, which copies as deeply as it can: thirteen times the cost, at 1,000 streams and every heartbeat.
    rows = [{name: getattr(state, field) for name, field in _STATE.items()} for state in states]
    for row in rows:
        for name in ("refused", "types", "refused_at"):
            row[name] = json.dumps(dict(row[name])) if row[name] else None
    return rows


def _replace(
    engine: Engine,
    group: str,
    rows: list[dict[str, Any]],
    *,
    is_news: bool,
    whole: tuple[int, float | None] = (0, None),
) -> float | None:
    """Write rows again, and return the time that they have; None where another process has taken over.

    `whole` is how many rows the group's driver has written at one time: all of them get the new time.

    Raises:
        _Touched: they are not all there any more.
    """
    with writing(engine) as connection:
        # The driver's row is held first, so a successor that starts now waits, and its streams are written later.
        values = {"name": group, **({"news_at": store_now()} if is_news else {})}
        ours = connection.execute(update(drivers).where(_is_of(GROUP, group), _is_ours()).values(values)).rowcount
        if not ours and connection.scalar(select(drivers.c.pid).where(_is_of(GROUP, group))) is not None:
            return None  # last words of a process that another one has replaced
        now: float = connection.execute(select(store_now())).scalar_one()
        count, at = whole
        if at is not None:
            is_left = (streams.c.group_name == group) & (streams.c.updated_at == at)
            if connection.execute(update(streams).where(is_left).values(updated_at=now)).rowcount != count:
                raise _Touched
        if rows:
            connection.execute(delete(streams).where(streams.c.game_key.in_([row["game_key"] for row in rows])))
            connection.execute(streams.insert(), [{**row, "updated_at": now} for row in rows])
        return now


def _is_of(kind: str, name: str) -> ColumnElement[bool]:
    return (drivers.c.kind == kind) & (drivers.c.name == name)


def _is_ours() -> ColumnElement[bool]:
    return (drivers.c.pid == os.getpid()) & (drivers.c.host == socket.gethostname())


def record_commit(
    engine: Engine,
    seq: int,
    rows: int,
    refused: int,
    oldest_source_at: float | None,
    read_since: float | None = None,
) -> None:
    """Remember one bronze commit, so that the age of a backlog is known; only the newest are kept.

    Rows with a source time before `read_since` waited for ingest's start.
    """
    values = {
        "seq": seq,
        "rows": rows,
        "refused": refused,
        "oldest_source_at": oldest_source_at,
        "committed_at": time.time(),
        "read_since": read_since,
    }
    with writing(engine) as connection:
        connection.execute(
            delete(bronze_commits).where((bronze_commits.c.seq <= seq - _COMMITS_KEPT) | (bronze_commits.c.seq == seq))
        )
        connection.execute(bronze_commits.insert().values(values))


def last_commit(engine: Engine) -> int:
    """Return the last bronze commit that ingest reported, 0 for none."""
    with engine.connect() as connection:
        return connection.scalar(select(func.max(bronze_commits.c.seq))) or 0


def forget_commits(engine: Engine, after: int) -> None:
    """Delete what was reported of the bronze commits after a seq."""
    with writing(engine) as connection:
        connection.execute(delete(bronze_commits).where(bronze_commits.c.seq > after))


def commits_since(engine: Engine, seq: int) -> list[tuple[int, float]]:
    """Return (seq, committed at) of the remembered bronze commits from `seq` on, in order."""
    query = select(bronze_commits.c.seq, bronze_commits.c.committed_at).where(bronze_commits.c.seq >= seq)
    with engine.connect() as connection:
        return [(row.seq, row.committed_at) for row in connection.execute(query.order_by(bronze_commits.c.seq))]


def commits_between(engine: Engine, first: int, last: int) -> list[BronzeCommit]:
    """Return the remembered bronze commits of these seqs, both ends included."""
    table = bronze_commits.c
    query = select(table.seq, table.committed_at, table.read_since).where(table.seq.between(first, last))
    with engine.connect() as connection:
        return [BronzeCommit(*row) for row in connection.execute(query.order_by(table.seq))]

"""Opens the control store: SQLite in the environment's folder, any SQLAlchemy URL, or Lakebase; its transactions."""

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, inspect, make_url
from sqlalchemy.exc import (
    DBAPIError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from listeners.process_kinds import MAINTENANCE
from pipeline.base import private_files
from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.extensions import DATABASES, registered
from pipeline.base.failpoints import effect
from pipeline.settings.tree import Paths, Settings
from pipeline.store.database.migrate import migrate
from pipeline.store.database.ownership import MISSING_RIGHT
from pipeline.store.database.row_check import require_sound_rows
from pipeline.store.database.tables import drivers

_BUSY_TIMEOUT_SECONDS: Final = 30
_PROBE_MS: Final = 200  # a writer holds the lock for a few milliseconds
_PROBE: Final = {"busy_timeout": _PROBE_MS, "synchronous": 1}  # a write that is taken out again may be lost
_STRICT_SINCE: Final = (3, 37)  # https://sqlite.org/stricttables.html
_CONNECTIONS: Final = 5
DRIVER_CONNECTIONS: Final = 2
"""Hundreds of drivers share what a server has: Lakebase's smallest takes 104 connections, its largest 4,000."""

_READ_ONLY: Final = "25006"  # https://www.postgresql.org/docs/current/errcodes-appendix.html


class StoreUnread(Refused):
    """The control store is away: a refusal for people, and an outage for processes that wait for the store."""


_AWAY: Final = (OperationalError, InterfaceError, NoConnectionFree)

STORE_AWAY: Final = (*_AWAY, StoreUnread)
"""How a call ends whose store is away or whose connection is cut; the next call takes a new connection."""


def open_store(settings: Settings, paths: Paths, *, connections: int = _CONNECTIONS) -> Engine:
    """Open the control store and bring its tables to this version.

    On PostgreSQL this process keeps at most `connections` open, and twice as many while it needs them.

    Raises:
        Refused: the store cannot be reached, is not writable, was migrated by a newer turnout, or has a row that does
            not fit.
    """
    try:
        engine = _engine(settings.store.url or _own(paths), connections)
        if not settings.store.url:
            paths.root.mkdir(parents=True, exist_ok=True)
        if engine.dialect.name == "sqlite":
            _require_strict_tables()
            _make_private(_file_of(engine))
            event.listen(engine, "connect", _tune_sqlite)
        else:
            event.listen(engine, "handle_error", _away_where_read_only)
        _make_ready(engine)
    except (SQLAlchemyError, ImportError, OSError, Transient) as error:
        reason = str(getattr(error, "orig", None) or getattr(error, "strerror", None) or error).splitlines()[0]
        raise Refused(f"The control store cannot be opened: {reason}. Check the setting store.url.") from error
    return engine


def _make_ready(engine: Engine) -> None:
    try:
        migrate(engine)
        require_sound_rows(engine)
    except BaseException:
        engine.dispose()
        raise


def _require_strict_tables() -> None:
    if sqlite3.sqlite_version_info < _STRICT_SINCE:
        raise Refused(f"This Python has SQLite {sqlite3.sqlite_version}, and turnout needs 3.37. Use a newer Python.")


def require_store(settings: Settings, paths: Paths) -> None:
    """Go on only where the control store is there; makes none, and changes nothing.

    An empty store in the place of a lost one would be healthy, its audit log intact, and each of its lists empty.

    Raises:
        Refused: it was lost, or was never there.
    """
    try:
        lacks = find_lack(settings, paths)
    except (SQLAlchemyError, ImportError, Transient):
        return  # opening it says why it cannot be opened
    if lacks is not None:
        raise _missing(lacks)


def which_store(settings: Settings, paths: Paths) -> str:
    """Return which control store there is: a new file in the place of another one is another store.

    Raises:
        Refused: there is none; none is made.
    """
    if settings.store.url:
        return settings.store.url
    require_store(settings, paths)
    return f"{paths.control_db}#{paths.control_db.stat().st_ino}"


def find_lack(settings: Settings, paths: Paths) -> str | None:
    """Return why there is no control store, as a clause; None where there is one. Makes none, and changes nothing.

    Raises:
        SQLAlchemyError, ImportError, Transient: the database cannot be reached.
    """
    engine = _engine(settings.store.url or _own(paths))
    try:
        if engine.dialect.name == "sqlite":
            place = _file_of(engine)
            if not _is_there(place) and (place.is_file() or not place.exists()):
                return f"{place} {'is empty' if place.exists() else 'does not exist'}"
            return None  # opening it says whether it can be used
        with engine.connect() as connection:
            is_there = inspect(connection).has_table("games")
    finally:
        engine.dispose()
    return None if is_there else "the database of store.url has no turnout tables"


def reach(settings: Settings, paths: Paths) -> None:
    """Connect to the control store, and change nothing in it.

    Raises:
        SQLAlchemyError, ImportError, Transient: it cannot be reached, or is no database.
    """
    engine = _engine(settings.store.url or _own(paths))
    try:
        with engine.connect() as connection:
            inspect(connection).has_table("games")
    finally:
        engine.dispose()


def _missing(why: str) -> Refused:
    return Refused(
        f"The control store is missing: {why}. If it was lost, restore it from a copy. "
        "In a new environment, apply rules by `turnout games rules apply`, start ingest or `turnout simulate`; or name "
        "another environment."
    )


def _is_there(store: Path) -> bool:
    """Return whether there is more than an empty file, as a full disk leaves it; content may be in the log."""
    log = store.with_name(f"{store.name}-wal")
    return store.exists() and any(each.exists() and each.stat().st_size for each in (store, log))


def _file_of(engine: Engine) -> Path:
    """Return the file of a store of SQLite.

    Raises:
        Refused: it is in memory, where no other process sees it, or named by a URI, whose options decide its mode.
    """
    database = engine.url.database
    if not database or database == ":memory:" or database.startswith("file:"):
        raise Refused("store.url has no file. Give its path: sqlite:////folder/control.db.")
    return Path(database)


def _own(paths: Paths) -> URL:
    """Return where an environment's own store is: no text, in which a `?` of the folder's name would begin options."""
    return URL.create("sqlite", database=str(paths.control_db))


def _engine(url: str | URL, connections: int = 1) -> Engine:
    pool = {"pool_size": connections, "max_overflow": connections}
    if isinstance(url, str):
        for kind in registered(DATABASES):
            if kind.claims(url):
                engine: Engine = kind.open_engine(url, os.environ, **pool)
                return engine
    try:
        parts = make_url(url)
        if parts.host and "@" in f"{parts.host}{parts.database}":
            raise ValueError("a part of the password stands where the host is")
        return create_engine(parts, pool_pre_ping=True, **({} if parts.get_backend_name() == "sqlite" else pool))
    except ValueError as error:  # the text of SQLAlchemy's own parser may hold a part of the password
        raise Refused(
            "The control store cannot be opened: store.url is not an SQLAlchemy URL such as "
            "postgresql+psycopg://user:password@host:5432/database. Check its port, and escape the password."
        ) from error


def _make_private(database: Path) -> None:
    if database.exists() and not database.is_file():
        raise Refused(
            f"The control store cannot be opened: {database} is not a file. Move it away, or name another "
            "store with store.url."
        )
    private_files.make_file(database)  # SQLite gives its other files the same mode when it makes them
    for suffix in ("-wal", "-shm"):
        if (beside := Path(f"{database}{suffix}")).exists():
            private_files.make_file(beside)


def _away_where_read_only(context: ExceptionContext) -> OperationalError | None:
    """Take a server that only reads for a store that is away, and let its connection go.

    So a primary is while another takes its place: the next connection leads to that one.
    """
    original = context.original_exception
    if getattr(original, "sqlstate", None) != _READ_ONLY:
        return None
    context.is_disconnect = True
    return OperationalError(context.statement, None, original)


def _tune_sqlite(connection: Any, _record: Any) -> None:
    """Let several processes share the file: writers wait for each other, readers never do.

    Bytes that are no UTF-8, which an edit from another terminal leaves, are read as escapes: sqlite3 would raise the
    error by which it says that the store is away, and one such text would stop all supervision.
    """
    connection.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_SECONDS * 1000}")
    _use_wal(cursor)
    cursor.execute("PRAGMA synchronous=FULL")  # else a power cut takes what was acknowledged, such as a schema's id
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _use_wal(cursor: sqlite3.Cursor) -> None:
    """Let the file have a write-ahead log; where another process writes to a new one, SQLite fails without waiting."""
    end = time.monotonic() + _BUSY_TIMEOUT_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


@contextmanager
def reading() -> Iterator[None]:
    """Raise `Refused` where the control store cannot be read, with the reason; for a block, or as a decorator.

    Where the store is away, it is a `StoreUnread`.
    """
    try:
        yield
    except SQLAlchemyError as error:
        family = StoreUnread if isinstance(error, _AWAY) else Refused
        raise family(
            f"The control store cannot be read: {first_line(error)}. "
            "Check the setting store.url and that the store is up."
        ) from error


def refused_write(connection: Connection) -> str | None:
    """Return why the store takes no write at this moment, as its driver says; None where it does, or nobody knows.

    It commits a row of its own that it has taken out again: a lock alone says nothing of a disk that is full. A reader
    that may not write knows nothing. Call it without an open transaction of worth.
    """
    connection.rollback()
    is_sqlite = connection.dialect.name == "sqlite"
    usual = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in _PROBE if is_sqlite}
    try:
        if is_sqlite:
            _set_pragmas(connection, _PROBE)
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_PROBE_MS}")
            connection.exec_driver_sql("SET LOCAL synchronous_commit = local")  # a replica that is away answers never
        name = secrets.token_hex(16)  # a row that two readers share would make one wait for the other
        at = {"started_at": 0.0, "heartbeat_at": 0.0, "state": "stopped"}
        connection.execute(drivers.insert().values(kind=MAINTENANCE, name=name, pid=1, host="", **at))
        connection.execute(drivers.delete().where(drivers.c.kind == MAINTENANCE, drivers.c.name == name))
        connection.commit()
    except (OperationalError, InternalError) as error:
        return None if _lacks_right(connection, error) else str(error.orig).splitlines()[0]
    except ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) != MISSING_RIGHT:
            raise
    finally:
        connection.rollback()
        _set_pragmas(connection, usual)
    return None


def _set_pragmas(connection: Connection, values: Mapping[str, int]) -> None:
    for name, value in values.items():
        connection.exec_driver_sql(f"PRAGMA {name}={value}")


def _lacks_right(connection: Connection, error: DBAPIError) -> bool:
    """Return whether this reader may not write to SQLite's file, where its file system takes writes."""
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is None or code & 0xFF != sqlite3.SQLITE_READONLY:
        return False
    return not os.statvfs(_file_of(connection.engine).absolute().parent).f_flag & os.ST_RDONLY


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Give a connection whose changes are committed when the block ends, and taken back when it raises."""
    with effect("store_commit"), engine.begin() as connection:
        yield connection

"""Opens the control store: SQLite in the environment's folder, or any SQLAlchemy URL."""

from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import SQLAlchemyError

from pipeline import private_files
from pipeline.errors import Refused
from pipeline.settings import Paths, Settings
from pipeline.store.migrate import migrate

_BUSY_TIMEOUT_MS = 30_000


def open_store(settings: Settings, paths: Paths) -> Engine:
    """Open the control store and bring its tables to this version.

    Raises:
        Refused: the store cannot be reached, is not writable, or was migrated by a newer turnout.
    """
    url = settings.store.url or f"sqlite:///{paths.control_db}"
    try:
        engine = _engine(url)
        if not settings.store.url:
            paths.root.mkdir(parents=True, exist_ok=True)
        if engine.dialect.name == "sqlite":
            _make_private(engine.url.database)
            event.listen(engine, "connect", _tune_sqlite)
        migrate(engine)
    except (SQLAlchemyError, ImportError, OSError) as error:
        reason = str(getattr(error, "orig", None) or getattr(error, "strerror", None) or error).splitlines()[0]
        raise Refused(f"The control store cannot be opened: {reason}. Check the setting store.url.") from error
    return engine


def store_missing(paths: Paths) -> Refused:
    """Return the sentence for those who look at an environment whose control store in its folder is not there."""
    gone = "is empty" if paths.control_db.exists() else "does not exist"
    return Refused(
        f"The control store is not there: {paths.control_db} {gone}. If it was lost, restore it from a copy. "
        "In a new environment, start ingest or `turnout simulate`, or name another environment."
    )


def _engine(url: str) -> Engine:
    try:
        parts = make_url(url)
        if parts.host and "@" in f"{parts.host}{parts.database}":
            raise ValueError("a part of the password stands where the host is")
        return create_engine(parts, pool_pre_ping=True)
    except ValueError as error:  # the text of SQLAlchemy's own parser may hold a part of the password
        raise Refused(
            "The control store cannot be opened: store.url is no URL of SQLAlchemy's form, such as "
            "postgresql+psycopg://user:password@host:5432/database. Check its port, and escape signs in its password."
        ) from error


def _make_private(database: str | None) -> None:
    if not database or database == ":memory:" or database.startswith("file:"):
        return
    private_files.make_file(Path(database))  # SQLite gives its other files the same mode when it makes them
    for suffix in ("-wal", "-shm"):
        if (beside := Path(f"{database}{suffix}")).exists():
            private_files.make_file(beside)


def _tune_sqlite(connection: Any, _record: Any) -> None:
    """Let several processes share the file: writers wait for each other, readers never do.

    Bytes that are no UTF-8, which an edit from another terminal leaves, are read as escapes: sqlite3 would raise the
    error by which it says that the store is away, and one such text would stop all supervision.
    """
    connection.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()

"""Opens the control store: SQLite in the environment's folder, or any SQLAlchemy URL."""

from typing import Any

from sqlalchemy import Engine, create_engine, event, inspect, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateColumn

from pipeline.errors import Refused
from pipeline.settings import Paths, Settings
from pipeline.store.tables import metadata

_BUSY_TIMEOUT_MS = 30_000


def open_store(settings: Settings, paths: Paths) -> Engine:
    """Open the control store and create what is missing in it: tables, and columns that may be null.

    Raises:
        Refused: the store cannot be reached or is not writable.
    """
    url = settings.store.url or f"sqlite:///{paths.control_db}"
    if not settings.store.url:
        paths.root.mkdir(parents=True, exist_ok=True)
    try:
        engine = create_engine(url, pool_pre_ping=True)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _tune_sqlite)
        metadata.create_all(engine)
        _add_missing_columns(engine)
    except (SQLAlchemyError, ImportError) as error:
        reason = str(getattr(error, "orig", error)).splitlines()[0]
        raise Refused(f"The control store cannot be opened: {reason}. Check the setting store.url.") from error
    return engine


def _add_missing_columns(engine: Engine) -> None:
    """Bring a store of an earlier version up to date, where all that is new may be null."""
    there = inspect(engine).get_multi_columns()
    for table in metadata.sorted_tables:
        known = {column["name"] for column in there[None, table.name]}
        for column in table.columns:
            if column.name not in known:
                spelled = CreateColumn(column).compile(engine)
                with engine.begin() as connection:
                    connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {spelled}"))


def _tune_sqlite(connection: Any, _record: Any) -> None:
    """Let several processes share the file: writers wait for each other, readers never do."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()

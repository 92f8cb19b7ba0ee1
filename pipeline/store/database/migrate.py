"""Brings the control store's tables to what this version of turnout knows, by the migrations kept beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, inspect, text

from pipeline.base.errors import Refused
from pipeline.store.database.ownership import become_owner, is_shared_late, rights_explained, share

FIRST: Final = "r0026"
"""The first migration. Until 0.1.0 is released each change of a table raises it, so that an older store is refused."""

NEWEST: Final = FIRST
"""The migration that makes the tables what `tables.py` and `report_tables.py` say they are."""

_FOLDER: Final = Path(__file__).with_name("migrations")
_LOCK: Final = 7_021_962_114  # any number that nobody else locks in the same database


def migrate(engine: Engine) -> None:
    """Bring a store up to `NEWEST`; costs two statements where it is there already, on PostgreSQL four.

    Processes that start at the same moment wait for the first of them. On PostgreSQL the tables' owner migrates.

    Raises:
        Refused: a newer turnout has migrated the store, an unreleased build has made it, or this role lacks a right.
    """
    with engine.connect() as connection, rights_explained(connection):
        if _version(connection) == NEWEST and not is_shared_late(connection):
            return
    with _alone(engine) as connection, rights_explained(connection):
        current = _version(connection)
        if current != NEWEST:
            _require_older(connection, current)
            become_owner(connection)
            _upgrade(connection)
            share(connection)
        elif is_shared_late(connection):
            become_owner(connection)
            share(connection)


def _require_older(connection: Connection, current: str | None) -> None:
    if (current is None and inspect(connection).has_table("games")) or (current is not None and current < FIRST):
        raise Refused(
            "An unreleased build of turnout made this control store, which cannot be upgraded. Name a new "
            "environment with --env-dir, and let it ingest the source again."
        )
    if current is not None and current > NEWEST:
        raise Refused(
            f"A newer turnout migrated the control store to {current}; this version supports up to "
            f"{NEWEST}. Run the newer version, or name another store with store.url."
        )


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return version


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    config.attributes["connection"] = connection
    command.upgrade(config, NEWEST)


@contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that no other migration runs beside; it ends with the block, whole or not at all."""
    if engine.dialect.name == "sqlite":
        # Its driver opens no transaction for what defines tables, so we open one and tell SQLAlchemy of none.
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")
        return
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        yield connection

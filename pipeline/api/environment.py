"""An environment that is open: what all queries and acts of this plane work with.

Commands and pages open it, each in its own way. Nothing of this plane caches, draws or prints. Every query raises
`Refused` where the control store cannot be read, by the decorator `reading`.
"""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Engine, event
from sqlalchemy.exc import SQLAlchemyError

from pipeline.base.errors import Refused
from pipeline.control.roles import current
from pipeline.settings.tree import Paths, Roles, Settings
from pipeline.store.database.engine import open_store, require_store, which_store

__all__ = ["Engine", "OpenEnvironment", "make_impatient", "open_impatient", "read_roles", "which_store"]

_PATIENCE_MS: Final = 3_000  # of a reader with people before it, for a lock in the control store


@dataclass(frozen=True, slots=True)
class OpenEnvironment:
    """The settings, folders and control store of one environment."""

    settings: Settings
    paths: Paths
    engine: Engine


def open_impatient(settings: Settings, paths: Paths) -> Engine:
    """Return the engine of a control store that exists; its connections wait at most 3 s for a lock.

    Raises:
        Refused: the control store does not exist, or cannot be opened.
    """
    require_store(settings, paths)  # who only looks begins no environment
    engine = open_store(settings, paths)
    make_impatient(engine)
    return engine


def make_impatient(engine: Engine) -> None:
    """Let every new connection wait at most 3 s for a lock that another one holds."""

    @event.listens_for(engine, "connect")
    def hurry(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        sqlite = engine.dialect.name == "sqlite"
        cursor.execute(f"PRAGMA busy_timeout={_PATIENCE_MS}" if sqlite else f"SET lock_timeout = {_PATIENCE_MS}")
        cursor.close()
        connection.commit()

    engine.dispose()  # those that are open already


def read_roles(environment: OpenEnvironment) -> Roles:
    """Return the roles, groups replaced by their members; by nobody without a readable control store."""
    try:
        return current(environment.settings, environment.engine)
    except (SQLAlchemyError, Refused):
        return environment.settings.roles

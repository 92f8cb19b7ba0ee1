"""A store that is away."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError


@contextmanager
def away(engine: Engine) -> Iterator[list[str]]:
    """Make the control store unavailable; yields the attempted requests."""
    calls: list[str] = []

    def refuse(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        calls.append(statement)
        raise OperationalError(statement, parameters, sqlite3.OperationalError("database is locked"))

    event.listen(engine, "before_cursor_execute", refuse)
    try:
        yield calls
    finally:
        event.remove(engine, "before_cursor_execute", refuse)

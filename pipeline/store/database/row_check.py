"""Finds rows of the control store that do not fit their tables, as a restore or another tool may leave them.

SQLite lets a connection turn CHECKs off, and takes a table's definition as it stands in the file. PostgreSQL does not.
"""

from collections.abc import Iterator
from typing import Final

from sqlalchemy import CheckConstraint, Engine, Table, TextClause, select, text
from sqlalchemy.dialects import sqlite

from pipeline.base.errors import Refused
from pipeline.store.database.checked_table import metadata

_SQLITE: Final = sqlite.dialect()


def require_sound_rows(engine: Engine) -> None:
    """Go on only where every row fits its table; reads the whole file of a store of SQLite.

    Raises:
        Refused: one does not, and is named, or the file is damaged.
    """
    if engine.dialect.name != "sqlite":
        return
    with engine.connect() as connection:
        found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
        if found == "ok":
            return
        for table in metadata.sorted_tables:
            for name, misfit in _misfits(table):
                row = connection.execute(select(*table.primary_key).where(misfit).limit(1)).first()
                if row is not None:
                    key = ", ".join(
                        f"{each.name} {value!r:.80}" for each, value in zip(table.primary_key, row, strict=True)
                    )
                    raise Refused(
                        f"The control store has an invalid row: {name} in table {table.name}, where {key}. Correct "
                        "the row, or restore the store from a copy."
                    )
    raise Refused(f"The control store is damaged: {found}. Restore it from a copy.")


def _misfits(table: Table) -> Iterator[tuple[str, TextClause]]:
    """Return each thing that may be wrong with a row, and the SQL condition that it is."""
    for column in table.columns:
        storage = column.type.compile(_SQLITE).lower()
        missing = "" if column.nullable else f" OR {column.name} IS NULL"
        yield column.name, text(f"typeof({column.name}) NOT IN ('{storage}', 'null'){missing}")
    for check in table.constraints:
        if isinstance(check, CheckConstraint):
            yield str(check.name), text(f"NOT ({check.sqltext.compile(dialect=_SQLITE)})")

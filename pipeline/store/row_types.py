"""Values of wrong types in the control store: SQLite takes anything in any column, and reading them fails anywhere.

Called by what shows many rows, to leave such a row out and name it, and where a read has failed; never writes.
"""

import math
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Float,
    Integer,
    LargeBinary,
    Table,
    literal_column,
    not_,
    select,
    true,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import SQLAlchemyError

from pipeline.store.tables import metadata

_MAX_NAMED: Final = 3
_QUOTES: Final = sqlite.dialect().identifier_preparer


def well_typed(connection: Connection, table: Table) -> ColumnElement[bool]:
    """Return the SQL condition that each value of a row has its column's type; other databases than SQLite see to it.

    A row that an outer join has made of nulls is one.
    """
    return _well_typed(table) if connection.dialect.name == "sqlite" else true()


@lru_cache
def _well_typed(table: Table) -> ColumnElement[bool]:
    """Return it as text: as an expression that each read builds it took 2 of 7 ms, of 1,000 games."""
    return literal_column(f"({' AND '.join(map(_condition, table.columns))})", Boolean)


def mistyped_rows(connection: Connection, table: Table, *among: ColumnElement[bool]) -> dict[str, str]:
    """Return by the first column of its key why each row with a value of a wrong type cannot be read."""
    if connection.dialect.name != "sqlite":
        return {}
    found = {}
    for row in connection.execute(select(table).where(not_(well_typed(connection, table)), *among)):
        wrong = [
            f"{column.name} {value!r:.80}"
            for column, value in zip(table.columns, row, strict=True)
            if value is not None and not is_sound(value, _python_types(column))
        ]
        key = row[0] if isinstance(row[0], str) else f"{row[0]!r:.80}"
        found[key] = f"its row in table {table.name} of the control store is invalid: {', '.join(wrong)}. Correct it"
    return found


def mistyped_columns(engine: Engine) -> list[str]:
    """Name the columns with values of a wrong type, with how many there are; other databases than SQLite take none."""
    if engine.dialect.name != "sqlite":
        return []
    named = []
    for table in metadata.sorted_tables:
        columns = list(table.columns)
        counts = [literal_column(f"sum(NOT ({_condition(column)}))", Integer) for column in columns]
        try:
            with engine.connect() as connection:
                wrong = connection.execute(select(*counts).select_from(table)).one()
        except SQLAlchemyError:
            continue  # what cannot be read at all is reported where it is read
        found = zip(columns, wrong, strict=True)
        named += [f"{count} in column {column.name} of table {table.name}" for column, count in found if count]
    return named


def describe_mistyped(engine: Engine) -> str | None:
    """Say in a sentence which values have a wrong type; None where none has."""
    named = mistyped_columns(engine)
    if not named:
        return None
    more = f", and more in {len(named) - _MAX_NAMED} columns" if len(named) > _MAX_NAMED else ""
    values = "; ".join(named[:_MAX_NAMED]) + more
    return f"The control store contains values of a wrong type: {values}. Correct them."


def is_sound(value: object, types: tuple[type, ...]) -> bool:
    """Tell whether a value has one of these types; a number that is not finite is no measure, time or amount."""
    return isinstance(value, types) and not (isinstance(value, float) and not math.isfinite(value))


def _condition(column: Column[Any]) -> str:
    name = _QUOTES.format_column(column, use_table=True)
    infinite = f" AND {name} IS NOT 9e999 AND {name} IS NOT -9e999" if isinstance(column.type, Float) else ""
    return f"typeof({name}) IN {_storage_classes(column)}{infinite}"


def _python_types(column: Column[Any]) -> tuple[type, ...]:
    if isinstance(column.type, Integer):
        return (int,)
    if isinstance(column.type, Float):
        return (float, int)
    return (bytes,) if isinstance(column.type, LargeBinary) else (str,)


def _storage_classes(column: Column[Any]) -> tuple[str, ...]:
    if isinstance(column.type, Integer):
        return ("integer", "null")
    if isinstance(column.type, Float):
        return ("real", "integer", "null")
    return ("blob", "null") if isinstance(column.type, LargeBinary) else ("text", "null")

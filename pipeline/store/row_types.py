"""Values of wrong types in the control store: SQLite takes anything in any column, and reading them fails anywhere.

Called where a read has failed, to say which rows a person must correct; never writes.
"""

from typing import Any, Final

from sqlalchemy import Column, Engine, Float, Integer, LargeBinary, func, select
from sqlalchemy.exc import SQLAlchemyError

from pipeline.store.tables import metadata

_MAX_NAMED: Final = 3


def mistyped_columns(engine: Engine) -> list[str]:
    """Name the columns with values of a wrong type, with how many there are; other databases than SQLite take none."""
    if engine.dialect.name != "sqlite":
        return []
    named = []
    for table in metadata.sorted_tables:
        columns = list(table.columns)
        counts = [func.sum(func.typeof(column).not_in(_storage_classes(column)), type_=Integer) for column in columns]
        try:
            with engine.connect() as connection:
                wrong = connection.execute(select(*counts)).one()
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


def _storage_classes(column: Column[Any]) -> tuple[str, ...]:
    if isinstance(column.type, Integer):
        return ("integer", "null")
    if isinstance(column.type, Float):
        return ("real", "integer", "null")
    return ("blob", "null") if isinstance(column.type, LargeBinary) else ("text", "null")

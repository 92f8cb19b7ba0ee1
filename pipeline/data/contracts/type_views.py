"""A flat view for each event type of a game, as SQL for Unity Catalog and for DuckDB. Pure.

A JSON property's column and its side columns are one column there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pipeline.data.contracts.further_types import GameType
from pipeline.data.contracts.shape import table_schema
from pipeline.data.contracts.side_columns import joined_fields
from pipeline.data.contracts.structs import free_name

_OWN: Final = ("_seq", "_pos", "_schema_id", "_event_time", "_event_id", "_source_time", "_type")


@dataclass(frozen=True, slots=True)
class TypeView:
    """The view of one event type."""

    type: str
    name: str  # of the view
    unity_catalog: str  # a statement
    duckdb: str


def views(key: str, types: Sequence[GameType], table: tuple[str, str, str], folder: str) -> list[TypeView]:
    """Return a view for each type of a game that lands, or has landed.

    Args:
        key: the game's.
        types: its event types.
        table: catalog, schema and name of its table in Unity Catalog.
        folder: of its table, for DuckDB.
    """
    made: list[TypeView] = []
    for each in types:
        if each.state == "waits":
            continue
        used = [view.name.removeprefix(f"{key}__") for view in made]
        own = each.struct or free_name(each.name, used)
        name = f"{key}__{free_name(each.name, used) if own in used else own}"
        catalog, schema, own = (_quoted(part, "`") for part in table)
        unity = _view(f"{catalog}.{schema}.{_quoted(name, '`')}", _select(each, "`", f"{catalog}.{schema}.{own}"))
        duckdb = _view(_quoted(name, '"'), _select(each, '"', f"delta_scan({_text(folder)})"))
        made.append(TypeView(each.name, name, unity, duckdb))
    return made


def _view(name: str, query: str) -> str:
    return f"CREATE OR REPLACE VIEW {name} AS\n{query};"


def _select(of: GameType, quote: str, source: str) -> str:
    """Return the query of a type's rows with its fields as columns."""
    columns = table_schema(of.schemas)
    inside, begin = columns, ""
    if of.struct is not None:
        inside = columns.field(of.struct).type if of.struct in columns.names else ()
        begin = f"{_quoted(of.struct, quote)}."
    fields = [_column(each, quote, begin) for each in joined_fields(of.schemas, inside)]
    listed = ",\n  ".join([*_OWN, *fields])
    text = _text if quote == '"' else _spark_text
    return f"SELECT\n  {listed}\nFROM {source}\nWHERE _type IN ({', '.join(map(text, of.names))})"


def _column(held: Sequence[pa.Field], quote: str, begin: str) -> str:
    """Return a column of a view: one of the type's, or several that hold one property's values, as the wider type."""
    name = _quoted(held[0].name, quote)
    if len(held) == 1:
        return f"{begin}{name} AS {name}" if begin else name
    numbers = all(pa.types.is_integer(each.type) or pa.types.is_floating(each.type) for each in held)
    wider = "DOUBLE" if numbers else "VARCHAR" if quote == '"' else "STRING"
    parts = [f"CAST({begin}{_quoted(each.name, quote)} AS {wider})" for each in held]
    return f"coalesce({', '.join(parts)}) AS {name}"


def _quoted(name: str, quote: str) -> str:
    return f"{quote}{name.replace(quote, 2 * quote)}{quote}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _spark_text(value: str) -> str:
    """Return a literal of Spark's SQL, where a backslash escapes: a type may be any title of a JSON Schema."""
    marked = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{marked}'"

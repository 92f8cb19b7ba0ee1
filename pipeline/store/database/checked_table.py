"""Makes the control store's tables, whose database itself refuses a row that does not fit.

SQLite checks types in strict tables only, which know no lengths and one kind of integer. Whether a text is UTF-8 no
function of SQLite tells.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, get_args, get_type_hints

from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

MAX_NUMBER: Final = 1e18
"""No measure, time or amount is larger; the CHECK against it refuses what is not finite."""

metadata = MetaData()
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_BY_TYPE: Final[Mapping[type, type[TypeEngine[Any]]]] = {float: Float, int: BigInteger, str: Text}
_ON_SQLITE: Final[Mapping[type, TypeEngine[Any]]] = {String: Text(), BigInteger: Integer(), Float: REAL()}


class _JsonIs(FunctionElement[bool]):
    """Whether a text is JSON, and an array or an object."""

    type = Boolean()
    inherit_cache = False

    def __init__(self, column: str, kind: str) -> None:
        super().__init__()
        self.column, self.kind = column, kind


@compiles(_JsonIs, "sqlite")
def _on_sqlite(element: _JsonIs, *_arguments: Any, **_options: Any) -> str:
    column = element.column
    return f"CASE WHEN json_valid({column}) THEN json_type({column}) = '{element.kind}' ELSE 0 END"


@compiles(_JsonIs, "postgresql")
def _on_postgresql(element: _JsonIs, *_arguments: Any, **_options: Any) -> str:
    return f"json_typeof(CAST({element.column} AS json)) = '{element.kind}'"


def columns_of(record: type, besides: Collection[str] = ()) -> list[Column[Any]]:
    """Return a column for each field of a dataclass of numbers and texts, `besides` those that the table spells itself.

    A column takes null where its field takes None. A field with any other type is JSON in a text, null where empty.
    """
    columns = []
    for name, hint in get_type_hints(record).items():
        if name not in besides:
            kinds = set(get_args(hint)) if isinstance(hint, UnionType) else {hint}
            (kind,) = kinds - {NoneType}
            is_null = NoneType in kinds or kind not in _BY_TYPE
            columns.append(Column(name, _BY_TYPE.get(kind, Text)(), nullable=is_null))
    return columns


def store_table(
    name: str,
    *parts: Column[Any] | UniqueConstraint,
    allowed: Mapping[str, str | tuple[str, ...]] = _NOTHING,
    json: Mapping[str, str] = _NOTHING,
) -> Table:
    """Return a table that refuses values of a wrong type and numbers that are not finite.

    `allowed` gives the texts, or the SQL condition, by column; `json` gives what its JSON is: an array or an object.
    """
    checks = []
    for column in (each for each in parts if isinstance(each, Column)):
        if isinstance(column.type, Float):
            finite = f"{column.name} BETWEEN -{MAX_NUMBER:.0f} AND {MAX_NUMBER:.0f}"
            checks.append(CheckConstraint(finite, f"ck_{name}_{column.name}_finite"))
        if (on_sqlite := _ON_SQLITE.get(type(column.type))) is not None:
            column.type = column.type.with_variant(on_sqlite, "sqlite")
    for named, values in allowed.items():
        condition = values if isinstance(values, str) else "IN ({})".format(", ".join(f"'{each}'" for each in values))
        checks.append(CheckConstraint(f"{named} {condition}", f"ck_{name}_{named}"))
    for named, kind in json.items():
        checks.append(CheckConstraint(_JsonIs(named, kind), f"ck_{name}_{named}"))
    return Table(name, metadata, *parts, *checks, sqlite_strict=True)


def applied_sets(name: str, column: str) -> Table:
    """Return a table with all that each application of a file held; append-only, the newest row counts."""
    return store_table(
        name,
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column(column, Text, nullable=False),  # JSON
        Column("actor", Text, nullable=False),
        Column("reason", Text, nullable=False),
        Column("applied_at", Float, nullable=False),
        allowed={"number": "> 0"},
        json={column: "array"},
    )

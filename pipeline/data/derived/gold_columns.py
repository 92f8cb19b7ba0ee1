"""The columns of a gold table, and the question whose answer they are. Pure.

Everything is exact: a sketch would need no less than the files that hold the rows, and another order of them would
change its answer.
"""

import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.texts import join_limited
from pipeline.data.derived.definitions import Aggregate, Function, GoldDefinition

EVENT_TIME: Final = "_event_time"
"""The column of a silver table by which rows belong to windows."""

START: Final = "window_start"
END: Final = "window_end"
ROWS: Final = "_rows"
CLOSING: Final = "_closing_seq"

_SIDE: Final = re.compile(r"__v[0-9]+(?=_|$)")
"""What the name of a column has that continues a field whose kind has changed."""

_MOMENT: Final = pa.timestamp("us", "UTC")
_EXACT_DIGITS: Final = 38


def gold_schema(silver: pa.Schema, definition: GoldDefinition) -> pa.Schema:
    """Return the columns of a gold table over a silver table with these columns.

    Raises:
        Refused: the silver table lacks a column that the definition names, or has it in a type that does not suit.
    """
    named = [EVENT_TIME, *needed_columns(definition)]
    if lacking := [each for each in dict.fromkeys(named) if each not in silver.names]:
        what = join_limited([shown(each) for each in lacking], 10)
        raise Refused(f"Silver {definition.silver.name} has no column {what}, which gold {definition.name} needs.")
    needed = needed_columns(definition)
    if sides := [each for each in silver.names if each not in needed and _SIDE.sub("", each) in {*needed} - {each}]:
        what = join_limited([shown(each) for each in sides], 10)
        raise Refused(
            f"Silver {definition.silver.name} has further values of a field in {what}, as its kind has changed. "
            f"Name it in gold {definition.name}, too: else its numbers would lack them."
        )
    problems = [
        *(f"it cannot group by {each}, which is {kind}" for each, kind in _ungroupable(silver, definition)),
        *(
            f"{each.name} cannot be the {each.function} of {each.column}, which is {silver.field(each.column).type}"
            for each in definition.aggregates
            if each.column is not None and not _suits(each.function, silver.field(each.column).type)
        ),
    ]
    if problems:
        raise Refused(f"Gold {definition.name}: {'; '.join(problems)}.")
    return pa.schema(
        [
            (START, _MOMENT), (END, _MOMENT),
            *((each, silver.field(each).type) for each in definition.by),
            *((each.name, _type_of(each, silver)) for each in definition.aggregates),
            (ROWS, pa.int64()), (CLOSING, pa.int64()),
        ]
    )  # fmt: skip


def needed_columns(definition: GoldDefinition) -> tuple[str, ...]:
    """Return the columns of the silver table that are grouped by or computed of, each once."""
    computed = (each.column for each in definition.aggregates if each.column is not None)
    return tuple(dict.fromkeys([*definition.by, *computed]))


def question(silver: pa.Schema, definition: GoldDefinition) -> str:
    """Return the SQL over a table `rows` whose answer has the columns of the gold table by position, without names.

    `rows` has `ended`, the end of a row's window, `closing`, that window's closing seq, and the needed columns as `c0`,
    `c1` and so on.
    """
    place = {name: f"c{number}" for number, name in enumerate(needed_columns(definition))}
    keys = ["ended", *(place[each] for each in definition.by)]
    inner, outer, joins = [*keys], [f"whole.{key}" for key in keys], ""
    for number, each in enumerate(definition.aggregates):
        if each.at is None or each.column is None:
            inner.append(f"{_computed(each, place, silver)} AS a{number}")
            outer.append(f"whole.a{number}")
        else:
            column = place[each.column]
            inner.append(f"count({column}) AS n{number}")
            outer.append(f"p{number}.value")
            joins += _ranked(keys, column, f"p{number}", f"(whole.n{number} * {each.at} + 9999) // 10000")
    inner += ["count(*) AS n", "any_value(closing) AS closing"]
    whole = f"(SELECT {', '.join(inner)} FROM rows GROUP BY {', '.join(keys)}) AS whole"  # noqa: S608 - no texts
    order = ", ".join(f"whole.{key}" for key in keys)
    return f"SELECT {', '.join([*outer, 'whole.n', 'whole.closing'])} FROM {whole}{joins} ORDER BY {order}"  # noqa: S608


def _ranked(keys: list[str], column: str, name: str, rank: str) -> str:
    """Return the join of the values that have a rank among those of their group: DuckDB sorts them on disk."""
    own = ", ".join(keys)
    same = " AND ".join(f"{name}.{key} IS NOT DISTINCT FROM whole.{key}" for key in keys)
    ranks = f"row_number() OVER (PARTITION BY {own} ORDER BY {column}) AS rank"
    values = f"SELECT {own}, {column} AS value, {ranks} FROM rows WHERE {column} IS NOT NULL"  # noqa: S608 - no texts
    return f" LEFT JOIN ({values}) AS {name} ON {same} AND {name}.rank = {rank}"


def _computed(each: Aggregate, place: dict[str, str], silver: pa.Schema) -> str:
    """Return the expression of an aggregate that needs no rank."""
    if each.column is None:
        return "count(*)"
    column = place[each.column]
    match each.function:
        case "distinct":
            return f"count(DISTINCT {column})"
        case "sum" if pa.types.is_integer(silver.field(each.column).type):
            return f"sum({column})::DECIMAL({_EXACT_DIGITS}, 0)"
        case "sum" if pa.types.is_floating(silver.field(each.column).type):
            return f"sum({column}::DOUBLE)"
        case function:
            return f"{function}({column})"


def _type_of(each: Aggregate, silver: pa.Schema) -> pa.DataType:
    if each.column is None or each.function in {"count", "distinct"}:
        return pa.int64()
    kind = silver.field(each.column).type
    if each.function != "sum":
        return kind
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.decimal128(_EXACT_DIGITS, kind.scale if pa.types.is_decimal(kind) else 0)


def _ungroupable(silver: pa.Schema, definition: GoldDefinition) -> Iterator[tuple[str, pa.DataType]]:
    for each in definition.by:
        kind = silver.field(each).type
        if pa.types.is_floating(kind) or not (_is_ordered(kind) or pa.types.is_boolean(kind)):
            yield each, kind


def _suits(function: Function, kind: pa.DataType) -> bool:
    match function:
        case "sum" | "percentile":
            return _is_number(kind)
        case "min" | "max":
            return _is_ordered(kind)
        case "distinct":
            return not pa.types.is_nested(kind)
        case _:
            return True


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_ordered(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_date, pa.types.is_timestamp)
    return _is_number(kind) or any(test(kind) for test in tests)

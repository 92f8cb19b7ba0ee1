"""A file's column statistics in the table's log, so that readers can skip files. Pure.

delta-rs skips a file without statistics of a column, as soon as another file of the table has them; so a merged file
has statistics of every column for which any file of its table has them.
"""

import json
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.lake.delta.opening import DeltaTable

_LONGEST: Final = 32  # characters of a text; more would bloat the log
_LAST_CHARACTER: Final = "\U0010ffff"
_LAST_MILLISECOND: Final = int(np.datetime64("9999-12-31T23:59:59.999", "ms").astype(int))


def columns_with_statistics(table: DeltaTable) -> set[str]:
    """Return the columns for which any file of a table has statistics."""
    names = [name.partition(".") for name in pa.table(table.get_add_actions(flatten=True)).column_names]
    return {column for kind, _, column in names if kind in {"min", "max", "null_count"}}


def stats_of(rows: pa.Table, columns: Sequence[str]) -> str:
    """Return the statistics of rows as the Delta protocol describes them; a column without bounds has none."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        column = rows.column(name)
        nulls[name] = column.null_count
        bounds = _bounds(column)
        if bounds is not None:
            low[name], high[name] = bounds
    return json.dumps({"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    kind = column.type
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py():
        return None
    ordered = (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        or pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_boolean(kind)
    )  # fmt: skip
    if pa.types.is_timestamp(kind):
        numbers = column.drop_null().cast(pa.int64()).to_numpy()
        return (_moment(int(np.min(numbers)), 0), _moment(int(np.max(numbers)), 999)) if numbers.size else None
    if not ordered:
        return None
    extremes = pc.min_max(column).as_py()
    return None if extremes["min"] is None else (_low(extremes["min"]), _high(extremes["max"]))


def _moment(micros: int, rounding: int) -> str:
    """Return a time in the log's format, in milliseconds: a lower bound rounded down, an upper bound rounded up.

    In the last millisecond of the year 9999 an upper bound is rounded down: no reader writes a later year.
    """
    millis = min((micros + rounding) // 1000, _LAST_MILLISECOND)
    return f"{np.datetime64(millis, 'ms')}Z"


def _low(value: Any) -> Any:
    return value[:_LONGEST] if isinstance(value, str) else _plain(value)


def _high(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST:
        return value[:_LONGEST] + _LAST_CHARACTER
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.isoformat() if isinstance(value, date) else value

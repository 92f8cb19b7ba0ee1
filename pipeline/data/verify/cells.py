"""Compares the expected columns with those of a table's file, value by value. Pure; called by `value_tasks`.

Two NaN are equal, 0.0 and -0.0 are not; a map is equal in any order of its keys, but each key counts.
"""

import datetime as dt
import decimal
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.columns import holds_type

_MAX_SHOWN: Final = 80  # characters of a value in a report
_ABSENT: Final = "no such column"


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs."""

    row: int
    column: str  # with the path inside it, such as `sub.at` or `tags[2]`
    expected: str  # as `shown` gives it
    found: str


def differences(expected: pa.Table, found: pa.Table, limit: int) -> tuple[int, list[Difference]]:
    """Compare two tables of the same rows; return the number of differing values, and the first of them.

    A column that only one table has must be null there.
    """
    count = 0
    named: list[Difference] = []
    for name in dict.fromkeys([*expected.column_names, *found.column_names]):
        want = _column(expected, name)
        have = _column(found, name)
        rows = _suspects(want, have)
        if not len(rows):
            continue
        kind = _type(want, have)
        places = pa.array(rows)
        wanted = [None] * len(rows) if want is None else want.take(places).to_pylist()
        held = [None] * len(rows) if have is None else have.take(places).to_pylist()
        for row, one, other in zip(rows.tolist(), wanted, held, strict=True):
            where = _first_difference(kind, one, other, name)
            if where is None:
                continue
            count += 1
            if len(named) < limit:
                path, left, right = where
                named.append(Difference(row, path, shown(left), _ABSENT if have is None else shown(right)))
    return count, named


def shown(value: object) -> str:
    """Return a value for a report: without control characters, cut when long."""
    if isinstance(value, str | bytes):
        value = value[: _MAX_SHOWN * 2]  # a payload may hold a megabyte
    if isinstance(value, dt.datetime | decimal.Decimal):
        return str(value)
    text = "null" if value is None else ascii(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def _column(table: pa.Table, name: str) -> pa.Array | None:
    if name not in table.column_names:
        return None
    whole = table.column(name).combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _type(*columns: pa.Array | None) -> pa.DataType:
    return next(column.type for column in columns if column is not None)


def _suspects(want: pa.Array | None, have: pa.Array | None) -> npt.NDArray[np.int64]:
    """Return the rows to compare one by one: none where the whole columns are equal."""
    if want is None or have is None:
        one = want if want is not None else have
        assert one is not None
        return np.flatnonzero(one.is_valid().to_numpy(zero_copy_only=False)).astype(np.int64)
    everything = np.arange(len(want), dtype=np.int64)
    if pa.types.is_nested(want.type) and have.type != want.type:
        return everything  # a cast drops the struct members that the other column lacks
    try:
        same = have if have.type == want.type else have.cast(want.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return everything
    if pa.types.is_floating(want.type):
        want, same = (_bits(each) for each in (want, same))
    elif holds_type(want.type, _is_float_or_map):
        return everything  # Arrow takes 0.0 for -0.0, and is sensitive to the order of keys
    if want.equals(same):
        return everything[:0]
    if pa.types.is_nested(want.type):
        return everything
    unlike = pc.or_(pc.fill_null(pc.not_equal(want, same), fill_value=False), pc.xor(want.is_null(), same.is_null()))
    return np.flatnonzero(unlike.to_numpy(zero_copy_only=False)).astype(np.int64)


def _bits(values: pa.Array) -> pa.Array:
    one_nan = pc.if_else(pc.is_nan(values), pa.scalar(math.nan, pa.float64()), values)
    return one_nan.view(pa.int64())


def _is_float_or_map(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_map(kind))


def _first_difference(kind: pa.DataType, want: Any, have: Any, path: str) -> tuple[str, Any, Any] | None:
    """Return the path and both values of the first difference of two values, None when they are equal."""
    if want is None or have is None:
        return None if want is have else (path, want, have)
    if pa.types.is_struct(kind):
        return _in_struct(kind, want, have, path)
    if pa.types.is_map(kind):
        return _in_map(kind, want, have, path)
    if pa.types.is_list(kind):
        if len(want) != len(have):
            return path, want, have
        pairs = enumerate(zip(want, have, strict=True))
        inside = (_first_difference(kind.value_type, a, b, f"{path}[{index}]") for index, (a, b) in pairs)
        return next((each for each in inside if each is not None), None)
    return None if _alike(want, have) else (path, want, have)


def _in_struct(kind: pa.DataType, want: Any, have: Any, path: str) -> tuple[str, Any, Any] | None:
    types = {member.name: member.type for member in kind}
    for name in dict.fromkeys([*types, *have]):
        one, other = want.get(name), have.get(name)
        difference = _first_difference(types.get(name, pa.null()), one, other, f"{path}.{name}")
        if difference is not None:
            return difference
    return None


def _in_map(kind: pa.DataType, want: Any, have: Any, path: str) -> tuple[str, Any, Any] | None:
    wanted, held = dict(want), dict(have)
    if len(held) != len(have) or wanted.keys() != held.keys():
        return path, want, have
    for key, one in wanted.items():
        difference = _first_difference(kind.item_type, one, held[key], f"{path}[{shown(key)}]")
        if difference is not None:
            return difference
    return None


def _alike(want: object, have: object) -> bool:
    if isinstance(want, float) and isinstance(have, float):
        if math.isnan(want) or math.isnan(have):
            return math.isnan(want) and math.isnan(have)
        return want == have and math.copysign(1, want) == math.copysign(1, have)
    return want == have

"""Finds times that no reader of a table could show, among decoded columns."""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.decoded import Rows
from pipeline.data.contracts.nested import parents, union_rows

FIRST_TIME: Final = -62_135_596_800_000_000  # microseconds: the year 1
LAST_TIME: Final = 253_402_300_799_999_999  # microseconds: the end of the year 9999
FIRST_DAY: Final = -719_162  # days since 1970: the first one of the year 1
LAST_DAY: Final = 2_932_896  # the last one of the year 9999
_LONGEST: Final = 315_576_000_000_999_999  # microseconds: the last second that protobuf allows a Duration, to its end


def is_time(kind: pa.DataType) -> bool:
    """Return whether values of this type are times, durations or dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_date(kind))


def unreal_times(batch: pa.RecordBatch, timed: Iterable[str]) -> dict[int, str]:
    """Return the rows with a time or duration out of range, each with the first of these columns that has one."""
    reasons: dict[int, str] = {}
    for name in timed:
        for row in rows_with(batch.column(name), out_of_range).tolist():
            reasons.setdefault(row, name)
    return reasons


def rows_with(values: pa.Array, odd: Callable[[pa.Array], npt.NDArray[np.bool_] | None]) -> Rows:
    """Return the rows of an array with an odd value at any depth; `odd` is None where it cannot be."""
    kind = values.type
    if (those := odd(values)) is not None:
        return np.flatnonzero(those).astype(np.int64)
    if pa.types.is_struct(kind):
        return union_rows([rows_with(member, odd) for member in values.flatten()])
    if pa.types.is_list(kind):
        return parents(values, rows_with(values.values, odd))
    if pa.types.is_map(kind):
        return parents(values, union_rows([rows_with(values.keys, odd), rows_with(values.items, odd)]))
    return np.empty(0, dtype=np.int64)


def out_of_range(values: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Return which times and durations are out of range, None without any."""
    kind = values.type
    if pa.types.is_date(kind):
        first, last, whole = FIRST_DAY, LAST_DAY, pa.int32()
    elif pa.types.is_timestamp(kind):
        first, last, whole = FIRST_TIME, LAST_TIME, pa.int64()
    elif pa.types.is_duration(kind):
        first, last, whole = -_LONGEST, _LONGEST, pa.int64()
    else:
        return None
    numbers = pc.fill_null(values.cast(whole), 0).to_numpy(zero_copy_only=False)
    return np.asarray((numbers < first) | (numbers > last))

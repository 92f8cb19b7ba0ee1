"""Cuts rows so that what they decode to is bounded: one byte of a payload may be an item of a list of wide messages."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from pipeline.data.contracts.decoded import Rows
from pipeline.data.contracts.formats.supported import columns
from pipeline.data.contracts.schemas import Schema


def portions(rows: Rows, sizes: Rows, schema: Schema, most_bytes: int) -> Iterator[Rows]:
    """Yield rows, in order, in portions whose values take at most `most_bytes`; a row that may take more is alone.

    Args:
        rows: some rows.
        sizes: the size of each one's payload.
        schema: their schema.
        most_bytes: of their columns, were every payload the worst of its size.
    """
    width, growth = _growth(schema)
    ends = np.cumsum(sizes.astype(np.int64) * growth + width)
    start = 0
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most_bytes, side="right")))
        yield rows[start:stop]
        start = stop


@lru_cache(maxsize=4096)
def _growth(schema: Schema) -> tuple[int, int]:
    """Return the bytes of a row's fixed parts, and the most bytes that one byte of its payload becomes."""
    kinds = [each.type for each in columns(schema)]
    return sum(map(_width, kinds)), max([1, *map(_most_of_a_byte, kinds)])


def _inside(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(index).type for index in range(kind.num_fields)]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_map(kind))


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value whose lists and texts are empty."""
    if pa.types.is_struct(kind):
        return sum(map(_width, _inside(kind)))
    if _is_list(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return 4  # an offset
    return max(1, int(kind.bit_width) // 8)


def _most_of_a_byte(kind: pa.DataType) -> int:
    of_item = sum(map(_width, _inside(kind))) if _is_list(kind) else 0
    return max([of_item, *map(_most_of_a_byte, _inside(kind))])

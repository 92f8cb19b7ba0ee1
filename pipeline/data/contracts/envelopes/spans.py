"""Cuts pieces out of many byte strings at once. Pure, vectorised: one copy in C++, whatever the number of rows."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


def starts_and_ends(values: pa.BinaryArray) -> tuple[Places, Places]:
    """Return where each value begins and ends in `content(values)`; a null value is empty."""
    if not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    if values.null_count:  # the format does not say that a null has no bytes
        ends = np.where(values.is_null().to_numpy(zero_copy_only=False), starts, ends)
    return starts, ends


def content(values: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """Return the bytes of all values; one byte at least, so that a clamped place can be read."""
    data = values.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)


def between(values: pa.BinaryArray, starts: Places, ends: Places) -> pa.BinaryArray:
    """Return the bytes of each value between two places, which lie inside of that value; null stays null."""
    if not len(values):
        return pa.array([], pa.binary())
    data = values.buffers()[2]
    edges = np.empty(2 * len(values), np.int32)
    edges[0::2], edges[1::2] = starts, ends
    offsets = np.append(edges, edges[-1])
    pieces = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"") if data is None else data]
    )
    chosen: Any = np.arange(0, 2 * len(values), 2)
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    return pieces.take(pa.array(chosen, mask=mask))


def first_bytes(values: pa.BinaryArray, starts: Places, ends: Places) -> Places:
    """Return the first byte of each value, -1 without one."""
    data = content(values)
    return np.where(ends > starts, data[np.minimum(starts, len(data) - 1)].astype(np.int64), -1)


def present(values: pa.BinaryArray) -> pa.BinaryArray:
    """Return the values with null in place of those without bytes."""
    is_empty = pc.equal(pc.binary_length(values), 0)
    return pc.if_else(is_empty, pa.scalar(None, values.type), values) if pc.any(is_empty).as_py() else values


def nulled(values: pa.Array, rows: list[int]) -> pa.Array:
    """Return the values with null at these rows."""
    if not rows:
        return values
    return pc.if_else(pa.array(np.isin(np.arange(len(values)), rows)), pa.scalar(None, values.type), values)

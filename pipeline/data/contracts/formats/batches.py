"""Cuts an array of payloads into parts that are decoded at once, and joins their columns: the same for every format."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.contracts.decoded import MAX_PAYLOAD_BYTES, Refusal, Rows, malformed

_PART_ROWS: Final = 32_768  # decoded at once; more would leave the processor's caches
_PART_BYTES: Final = 64 * 1024 * 1024  # of payloads decoded at once


def sized(payloads: pa.BinaryArray, most: int = MAX_PAYLOAD_BYTES) -> tuple[Rows, Rows, list[Refusal]]:
    """Return the bytes of each payload, -1 for null; the rows that can be decoded; and the refusals of the others.

    `most` is the number of bytes of the largest that can be.
    """
    sizes = pc.fill_null(pc.binary_length(payloads), -1).to_numpy(zero_copy_only=False)
    refused = [Refusal(row, "empty_payload", "the payload is empty") for row in np.flatnonzero(sizes < 0).tolist()]
    refused += [
        malformed(row, f"larger than {most} bytes: {sizes[row]}") for row in np.flatnonzero(sizes > most).tolist()
    ]
    return sizes, np.flatnonzero((sizes >= 0) & (sizes <= most)).astype(np.int64), refused


def parts(rows: Rows, sizes: Rows) -> Iterator[Rows]:
    """Cut rows into parts that are decoded at once."""
    ends = np.cumsum(sizes[rows], dtype=np.int64)
    start = 0
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        within = int(np.searchsorted(ends, before + _PART_BYTES, side="right"))
        stop = max(start + 1, min(start + _PART_ROWS, within))
        yield rows[start:stop]
        start = stop


def held(payloads: pa.BinaryArray, rows: Rows) -> pa.BinaryArray:
    """Return the payloads of a part's rows; neighbours without a copy."""
    if int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return payloads.slice(int(rows[0]), len(rows))
    return payloads.take(pa.array(rows))


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of all batches as one batch."""
    if len(batches) == 1:
        return batches[0]
    return one_batch(pa.Table.from_batches(batches, schema))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch."""
    return pa.RecordBatch.from_arrays([_one(column) for column in table.columns], schema=table.schema)


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Return the only chunk of a column, or all of them as one."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

"""Bronze, the append-only table of all records with their payloads untouched (law L1).

Holds its columns, its slices, and the definitions of its rows' profiles, which are properties of the table.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location

_TIME: Final = pa.timestamp("us", "UTC")

BRONZE: Final = pa.schema(
    [
        ("game_key", pa.string()),
        ("game", pa.string()),
        ("schema_id", pa.int64()),
        ("seq", pa.int64()),
        ("pos", pa.int32()),
        ("prev_seq", pa.int64()),
        ("refused", pa.string()),
        ("event_time", _TIME),
        ("event_id", pa.string()),
        ("producer_id", pa.string()),
        ("sequence", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("source_time", _TIME),
        ("ingest_time", _TIME),
        ("key", pa.binary()),
        ("raw", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("source_clock", pa.string()),
        ("profile", pa.int32()),
        ("registry", pa.string()),
        ("writer", pa.binary()),
    ]
)

FRAMED: Final = ("profile", "registry", "writer")
"""Columns of sources with a profile. Files of other sources lack them and readers take them for null: no cost."""

PROFILE: Final = "turnout.profile."
"""The beginning of the properties that hold profiles; the number follows."""

SLICE_BYTES: Final = 128 * 1024 * 1024
"""Most values that a task holds at once; it needs about ten times as much memory. An Arrow column ends at 2 GiB."""

_ROW_BYTES: Final = 128  # of the fixed-width columns, roughly, so that many small rows are cut, too


def profile_texts(folder: Location) -> dict[int, str]:
    """Return the definitions of profiles that bronze's properties hold, by number; raises what `open_table` raises."""
    properties = open_table(folder).metadata().configuration
    numbers = {name: name.removeprefix(PROFILE) for name in properties if name.startswith(PROFILE)}
    return {int(number): properties[name] for name, number in numbers.items() if number.isdecimal()}


def text(name: str) -> pc.Expression:
    """Return a text column for a filter: delta-rs writes it as views, which cannot be compared with strings."""
    return pc.field(name).cast(pa.string())


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, which is what the parsers take; `sliced` cuts rows so that they fit."""
    if column.num_chunks == 1:
        return column.chunk(0)  # Arrow copies even a single chunk
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def sliced(batches: Iterable[pa.RecordBatch], max_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows of the batches, in order, as tables of at most `max_bytes`; a larger row is one by itself."""
    held: list[pa.RecordBatch] = []
    room = max_bytes
    for batch in batches:
        ends = np.cumsum(_sizes(batch))
        start = 0
        while start < batch.num_rows:
            before = int(ends[start - 1]) if start else 0
            end = int(np.searchsorted(ends, before + room, side="right"))
            if end == start and not held:
                end += 1
            if end > start:
                held.append(batch.slice(start, end - start))
                room -= int(ends[end - 1]) - before
            if end < batch.num_rows:
                yield pa.Table.from_batches(held)
                held, room = [], max_bytes
            start = end
    if held:
        yield pa.Table.from_batches(held)


def _sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return about how many bytes each row takes in memory."""
    sizes = np.full(batch.num_rows, _ROW_BYTES, dtype=np.int64)
    for column in batch.columns:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        elif pa.types.is_list(column.type) and len(column):
            sizes += column.nbytes // len(column)  # headers are few and small, so their average is close enough
    return sizes

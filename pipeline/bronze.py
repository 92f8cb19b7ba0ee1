"""Bronze, the append-only table of everything that arrived, payload untouched (law L1): its columns."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

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
    ]
)


def text(name: str) -> pc.Expression:
    """Return a column of text for a filter: delta-rs writes it as views, which compare with no string."""
    return pc.field(name).cast(pa.string())


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, which is what the parsers take."""
    if column.num_chunks == 1:
        return column.chunk(0)  # Arrow copies even a single one
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined

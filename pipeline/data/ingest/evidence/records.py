"""Rows of bronze as records that can be compared with those of their source. Pure; used in tasks and by the driver."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from pipeline.data.ingest.evidence.marks import LastRecord, digest

RECORD_COLUMNS: Final = ["topic", "partition", "offset", "source_time", "key", "raw"]
"""The columns of bronze that make a record."""


def records_of(rows: pa.Table) -> Iterator[tuple[str, int, LastRecord]]:
    """Yield topic, partition and record of each row with `RECORD_COLUMNS`."""
    micros = rows.column("source_time").cast(pa.int64()).to_pylist()  # as numbers: no calendar has each of them
    others = (rows.column(name).to_pylist() for name in RECORD_COLUMNS if name != "source_time")
    for at, topic, number, offset, key, raw in zip(micros, *others, strict=True):
        yield topic, number, LastRecord(offset, None if at is None else at // 1000, digest(key), digest(raw))

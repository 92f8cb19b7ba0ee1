"""Commits of a table with times and sizes of their own."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

AT = 1_800_000_000


def commit(folder: Path, seq: int, *rows: tuple[int | None, int | None]) -> None:
    """Write one file of rows (schema id, seconds after AT)."""
    times = [None if second is None else datetime.fromtimestamp(AT + second, UTC) for _, second in rows]
    table = pa.table(
        {
            "_seq": pa.array([seq] * len(rows), pa.int64()),
            "_pos": pa.array(range(len(rows)), pa.int32()),
            "_schema_id": pa.array([schema for schema, _ in rows], pa.int64()),
            "_source_time": pa.array(times, pa.timestamp("us", "UTC")),
            "move": pa.array(["e4"] * len(rows)),
        }
    )
    write_deltalake(folder, table, mode="append")

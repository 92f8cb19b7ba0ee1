"""Data files of a Delta table: Parquet files that are written into its folder before a commit names them."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.failpoints import effect
from pipeline.lake.delta import parquet
from pipeline.lake.delta.log import Action
from pipeline.lake.storage.location import Location


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file already in a table's folder, not yet part of the table."""

    path: str  # relative to the table
    size: int  # bytes
    rows: int
    stats: str  # JSON, as the Delta protocol describes it

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, for a report between processes."""
        return asdict(self)

    def to_action(self, now_ms: int) -> Action:
        """Return the action that adds the file in a commit at this time (Unix milliseconds)."""
        return {
            "add": {
                "path": self.path,
                "partitionValues": {},
                "size": self.size,
                "modificationTime": now_ms,
                "dataChange": True,
                "stats": self.stats,
            }
        }

    def span(self, column: str) -> tuple[int, int]:
        """Return the least and the greatest value of an integer column, from the file's statistics."""
        stats = json.loads(self.stats)
        return stats["minValues"][column], stats["maxValues"][column]


def write_file(
    table: pa.Table,
    folder: Location,
    stats_columns: Sequence[str] = (),
    compression: Literal["snappy", "zstd"] = "snappy",
    *,
    settled: bool = True,
) -> DataFile:
    """Write rows as one Parquet file into a table's folder and return what a commit needs to know of it.

    Snappy costs half the time of zstd for the small files of a pass; zstd is for files that are kept long. With
    `settled` False the caller puts many files on disk at once, before a commit names them (`Location.settle`).
    """
    name = f"part-{uuid.uuid4()}.parquet"
    target = folder / name
    try:
        size = _write_parquet(table, target, compression, settled=settled)
    except FileNotFoundError:
        with effect("make_folder"):
            folder.make()
        size = _write_parquet(table, target, compression, settled=settled)
    return DataFile(name, size, table.num_rows, _stats(table, stats_columns))


def _write_parquet(table: pa.Table, target: Location, compression: str, *, settled: bool) -> int:
    with effect("write_data_file"):
        return parquet.write(table, target, compression, settled=settled)


def _stats(table: pa.Table, columns: Sequence[str]) -> str:
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for name in columns:
        extremes = pc.min_max(table.column(name)).as_py()
        if extremes["min"] is not None:
            low[name], high[name] = extremes["min"], extremes["max"]
    return json.dumps({"numRecords": table.num_rows, "minValues": low, "maxValues": high, "nullCount": {}})


def discard(folder: Location, files: Sequence[DataFile]) -> None:
    """Delete files that were never offered to a commit; missing files are fine."""
    for file in files:
        with effect("delete_data_file"):
            (folder / file.path).delete()

"""The rows of landing files, for the task that lands them: each file from start to end."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pipeline.delta.bronze import BRONZE
from pipeline.ingest.sources.kind import INPUT
from pipeline.ingest.sources.landing_log import LANDING, file_name, place

_TYPES: Final = {field.name: field.type for field in (*BRONZE, *LANDING)}
_BATCH_ROWS: Final = 2_000
_BATCH_BYTES: Final = 32_000_000


def names_in_files(table: DeltaTable) -> Mapping[str, str]:
    """Return the name of each landing column in the files, which differs where columns are mapped."""
    fields = json.loads(table.schema().to_json())["fields"]
    return {
        field["name"]: field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"])
        for field in fields
        if field["name"] in LANDING.names
    }


def read_files(
    batches: Iterator[pa.RecordBatch], landing: Path, columns: Mapping[str, str], skip: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, given by their paths in the log, with the columns of `INPUT`.

    Files whose name is in `skip` are skipped; `columns` are the names of the columns in the files.
    """
    for path in (path for batch in batches for path in batch.column("topic").to_pylist()):
        if file_name(path, landing) not in skip:
            yield from _rows(path, landing, columns)


def _rows(path: str, landing: Path, columns: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    where = place(landing, path)
    system, name = pa.fs.FileSystem.from_uri(path) if where is None else (pa.fs.LocalFileSystem(), str(where))
    with system.open_input_file(name) as stream, pq.ParquetFile(stream) as file:
        meta = file.metadata
        size = sum(meta.row_group(number).total_byte_size for number in range(meta.num_row_groups))
        most = _BATCH_BYTES * meta.num_rows // max(1, size)
        there = [name for name in columns.values() if name in file.schema_arrow.names]
        for batch in file.iter_batches(max(1, min(_BATCH_ROWS, most)), columns=there):
            count = batch.num_rows
            known = {"topic": pa.repeat(path, count), "source_clock": pa.repeat("landing", count)}
            for column in LANDING:
                if columns[column.name] in there:  # added after this file
                    known[column.name] = batch.column(columns[column.name]).cast(column.type)
            yield pa.record_batch({each: known.get(each, pa.nulls(count, _TYPES[each])) for each in INPUT})

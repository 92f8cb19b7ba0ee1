"""The rows of landing files, for the task that lands them: each file from start to end."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from pipeline.data.ingest.sources.kind import INPUT
from pipeline.data.ingest.sources.landing_log import LANDING, file_name, place
from pipeline.lake.delta import parquet
from pipeline.lake.delta.bronze import BRONZE
from pipeline.lake.delta.opening import DeltaTable
from pipeline.lake.storage.location import Location

HEADERS: Final = "headers"
"""The optional column of a landing table: a map of text to bytes, or a list as in bronze."""

_TYPES: Final = {field.name: field.type for field in (*BRONZE, *LANDING)}
_PAIR: Final = ("key", "value")
_BATCH_ROWS: Final = 2_000
_BATCH_BYTES: Final = 32_000_000


def names_in_files(table: DeltaTable) -> Mapping[str, str]:
    """Return the name of each landing column in the files, which differs where columns are mapped.

    The fields of a list of headers are `headers.key` and `headers.value`.
    """
    fields = json.loads(table.schema().to_json())["fields"]
    names = {field["name"]: _in_files(field) for field in fields if field["name"] in {*LANDING.names, HEADERS}}
    lists = (field["type"] for field in fields if field["name"] == HEADERS and isinstance(field["type"], dict))
    for kind in lists:
        if kind["type"] == "array":
            names |= {f"{HEADERS}.{each['name']}": _in_files(each) for each in kind["elementType"]["fields"]}
    return names


def are_headers(kind: pa.DataType) -> bool:
    """Return whether a column of this type can hold headers."""
    if pa.types.is_map(kind):
        return bool(kind.key_type == pa.string() and kind.item_type == pa.binary())
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    return {field.name: field.type for field in kind.value_type} == dict(
        zip(_PAIR, (pa.string(), pa.binary()), strict=True)
    )


def _in_files(field: Mapping[str, Any]) -> str:
    name: str = field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"])
    return name


def read_files(
    batches: Iterator[pa.RecordBatch], landing: Location, columns: Mapping[str, str], skip: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, given by their paths in the log, with the columns of `INPUT`.

    Files whose name is in `skip` are skipped; `columns` are the names of the columns in the files.
    """
    for path in (path for batch in batches for path in batch.column("topic").to_pylist()):
        if file_name(path, landing) not in skip:
            yield from _rows(path, landing, columns)


def _rows(path: str, landing: Location, columns: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    where = place(landing, path)
    with parquet.open_uri(path) if where is None else parquet.open_file(where) as file:
        meta = file.metadata
        size = sum(meta.row_group(number).total_byte_size for number in range(meta.num_row_groups))
        most = _BATCH_BYTES * meta.num_rows // max(1, size)
        wanted = [columns[name] for name in (*LANDING.names, HEADERS) if name in columns]
        there = [name for name in wanted if name in file.schema_arrow.names]
        for batch in file.iter_batches(max(1, min(_BATCH_ROWS, most)), columns=there):
            count = batch.num_rows
            known = {"topic": pa.repeat(path, count), "source_clock": pa.repeat("landing", count)}
            for column in LANDING:
                if columns[column.name] in there:  # added after this file
                    known[column.name] = batch.column(columns[column.name]).cast(column.type)
            if columns.get(HEADERS) in there:
                known[HEADERS] = _headers(batch.column(columns[HEADERS]), columns)
            yield pa.record_batch({each: known.get(each, pa.nulls(count, _TYPES[each])) for each in INPUT})


def _headers(given: pa.Array, columns: Mapping[str, str]) -> pa.Array:
    """Return headers with bronze's type, from a map or a list, in their order."""
    pairs = given.values
    if pa.types.is_map(given.type):
        parts = [given.keys, given.items]
    else:
        names = [pairs.type.field(number).name for number in range(pairs.type.num_fields)]
        children = dict(zip(names, pairs.flatten(), strict=True))
        parts = [children[columns.get(f"{HEADERS}.{name}", name)] for name in _PAIR]
    keys, values = _valid_text(parts[0].cast(pa.string())), parts[1].cast(pa.binary())
    wanted = _TYPES[HEADERS]
    struct = pa.StructArray.from_arrays([keys, values], fields=list(wanted.value_type))
    return pa.ListArray.from_arrays(given.offsets, struct, type=wanted, mask=given.is_null())


def _valid_text(keys: pa.StringArray) -> pa.StringArray:
    """Return text that every reader of bronze can decode: a Parquet file may claim that any bytes are text."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        raw = keys.cast(pa.binary()).to_pylist()
        return pa.array([None if each is None else each.decode(errors="replace") for each in raw], pa.string())
    return keys

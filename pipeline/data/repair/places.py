"""Finds rows by their place (seq, pos) in Delta tables, without Spark, and skips files that cannot have them."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.lake.delta import parquet
from pipeline.lake.delta.files import files_with
from pipeline.lake.delta.opening import DeltaTable
from pipeline.lake.storage.location import Location

PLACES: Final = pa.schema([("seq", pa.int64()), ("pos", pa.int32())])
"""The columns of a table of places."""

_KEYS: Final = ["seq", "pos"]


def landed(table: DeltaTable, folder: Location, wanted: pa.Table) -> pa.Table:
    """Return the wanted places that a game's table holds, each once."""
    seqs = pc.unique(wanted.column("seq"))
    files = files_with(table, folder, "_seq", seqs.to_numpy())
    if not files or not wanted.num_rows:
        return PLACES.empty_table()
    columns = {"seq": pc.field("_seq").cast(pa.int64()), "pos": pc.field("_pos").cast(pa.int32())}
    rows = parquet.dataset(files).to_table(columns=columns, filter=pc.field("_seq").isin(seqs))
    return distinct(within(rows, wanted))


def within(rows: pa.Table, places: pa.Table) -> pa.Table:
    """Return the rows whose place is among these, in no particular order."""
    return rows.join(places.select(_KEYS), _KEYS, join_type="left semi")


def without(rows: pa.Table, places: pa.Table) -> pa.Table:
    """Return the rows whose place is not among these, in no particular order."""
    return rows.join(places.select(_KEYS), _KEYS, join_type="left anti")


def distinct(places: pa.Table) -> pa.Table:
    """Return the places, each once."""
    return places.group_by(_KEYS).aggregate([]).cast(PLACES)

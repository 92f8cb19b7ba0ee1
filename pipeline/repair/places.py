"""Finds rows by their place (seq, pos) in Delta tables, without Spark and without files that cannot have them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

PLACES: Final = pa.schema([("seq", pa.int64()), ("pos", pa.int32())])
"""The columns of a table of places."""

Seqs: TypeAlias = npt.NDArray[np.int64] | range
"""Some seqs one by one, or all of a span."""

_KEYS: Final = ["seq", "pos"]


def landed(table: DeltaTable, folder: Path, wanted: pa.Table) -> pa.Table:
    """Return those of the wanted places that a game's table holds, each once."""
    seqs = pc.unique(wanted.column("seq"))
    files = files_with(table, folder, "_seq", seqs.to_numpy())
    if not files or not wanted.num_rows:
        return PLACES.empty_table()
    columns = {"seq": pc.field("_seq").cast(pa.int64()), "pos": pc.field("_pos").cast(pa.int32())}
    there = ds.dataset(files).to_table(columns=columns, filter=pc.field("_seq").isin(seqs))
    return distinct(within(there, wanted))


def files_with(
    table: DeltaTable, folder: Path, column: str, seqs: Seqs, keys: Sequence[str] | None = None
) -> list[str]:
    """Return the paths of the data files that may hold rows of one of these seqs, ordered by their first seq.

    Args:
        table: the table at the version to look at.
        folder: where it is.
        column: the name of its seq column.
        seqs: what is looked for, in any order.
        keys: only files that may hold one of these game keys.
    """
    stats = pa.table(table.get_add_actions(flatten=True))
    if not stats.num_rows:
        return []
    low, high = (_bounds(stats, f"{end}.{column}", unknown) for end, unknown in (("min", -1), ("max", 2**63 - 1)))
    if isinstance(seqs, range):
        may = (high >= seqs.start) & (low < seqs.stop)
    else:
        wanted = np.sort(seqs)
        may = np.searchsorted(wanted, high, side="right") > np.searchsorted(wanted, low, side="left")
    if keys is not None and {"min.game_key", "max.game_key"} <= set(stats.column_names):
        first, last = (stats.column(f"{end}.game_key").to_pylist() for end in ("min", "max"))
        may &= np.array([_may_hold(keys, a, b) for a, b in zip(first, last, strict=True)], dtype=np.bool_)
    paths = stats.column("path").to_pylist()
    return [str(folder / unquote(paths[row])) for row in np.argsort(low, kind="stable") if may[row]]


def within(rows: pa.Table, places: pa.Table) -> pa.Table:
    """Return the rows whose place is among these, in no particular order."""
    return rows.join(places.select(_KEYS), _KEYS, join_type="left semi")


def without(rows: pa.Table, places: pa.Table) -> pa.Table:
    """Return the rows whose place is not among these, in no particular order."""
    return rows.join(places.select(_KEYS), _KEYS, join_type="left anti")


def distinct(places: pa.Table) -> pa.Table:
    """Return the places, each once."""
    return places.group_by(_KEYS).aggregate([]).cast(PLACES)


def _bounds(stats: pa.Table, name: str, unknown: int) -> npt.NDArray[np.int64]:
    if name not in stats.column_names:
        return np.full(stats.num_rows, unknown, dtype=np.int64)
    bounds: npt.NDArray[np.int64] = pc.fill_null(stats.column(name).cast(pa.int64()), unknown).to_numpy()
    return bounds


def _may_hold(keys: Sequence[str], first: str | None, last: str | None) -> bool:
    # An upper bound may be cut short by the writer, so a key that begins with it is let through.
    return first is None or last is None or any(first <= key and (key <= last or key.startswith(last)) for key in keys)

"""The data files of a Delta table, the search for those that may hold some seqs, and the rows of a file."""

import hashlib
from bisect import bisect_left
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pipeline.base.errors import Refused
from pipeline.lake.delta import parquet
from pipeline.lake.delta.scratch import Database
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located

_AT_ONCE: Final = 16  # copies of files from a store

Seqs: TypeAlias = npt.NDArray[np.int64] | range
"""A list of seqs, or a range of them."""


def files_with(
    table: DeltaTable,
    folder: Location,
    column: str,
    seqs: Seqs,
    keys: Sequence[str] | None = None,
    *,
    by_game: bool = False,
) -> list[str]:
    """Return the paths of the data files that may hold rows of these seqs, ordered by their first seq.

    Args:
        table: the table at the wanted version.
        folder: its folder.
        column: the name of its seq column.
        seqs: the wanted seqs, in any order.
        keys: only files that may hold one of these game keys.
        by_game: order them by their first game key, then by their first seq.
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
    if keys is not None:
        may &= _with_keys(stats, keys)
    paths = stats.column("path").to_pylist()
    order = np.argsort(low, kind="stable").tolist()
    if by_game and "min.game_key" in stats.column_names:
        games = stats.column("min.game_key").to_pylist()
        order.sort(key=lambda row: games[row] or "")
    return [str(folder / unquote(paths[row])) for row in order if may[row]]


def newest_files(
    table: DeltaTable, folder: Location, column: str, label: str, keys: Sequence[str] | None = None
) -> list[tuple[str, int]]:
    """Return the paths of the data files with the highest seq that each may hold, the highest first.

    Args:
        table: the table at the wanted version.
        folder: its folder.
        column: the name of its seq column.
        label: what people call the table.
        keys: only files that may hold one of these game keys.

    Raises:
        Refused: it has deletion vectors.
    """
    require_no_deletion_vectors(table, label)
    stats = pa.table(table.get_add_actions(flatten=True))
    if not stats.num_rows:
        return []
    high = _bounds(stats, f"max.{column}", 2**63 - 1)
    may = np.ones(len(high), dtype=np.bool_) if keys is None else _with_keys(stats, keys)
    paths = stats.column("path").to_pylist()
    order = np.argsort(-high, kind="stable").tolist()
    return [(str(folder / unquote(paths[row])), int(high[row])) for row in order if may[row]]


def paths_of(table: DeltaTable, label: str) -> tuple[str, ...]:
    """Return the paths of all data files of a table.

    Raises:
        Refused: it has deletion vectors.
    """
    require_no_deletion_vectors(table, label)
    return tuple(unquote(uri).removeprefix("file://") for uri in table.file_uris())


def require_no_deletion_vectors(table: DeltaTable, label: str) -> None:
    """Go on only where a table's files hold no row that the table does not, which would be counted.

    Raises:
        Refused: it has deletion vectors.
    """
    features = table.protocol().reader_features or []
    if "deletionVectors" in features and table.deletion_vectors().read_all().num_rows:
        raise Refused(
            f"{label} uses deletion vectors, which turnout does not read. Run REORG TABLE … APPLY (PURGE) on it."
        )


def readable(database: Database, paths: Sequence[str], columns: Collection[str] | None = None) -> list[str]:
    """Return what a temporary database calls data files, in their order.

    A file of a folder is read where it is. One in a bucket is copied beside the database first, with the given columns
    or all: DuckDB has its reader of buckets as an extension that is fetched when it is first used, which a machine
    without that address cannot, and files of Python's wait for the interpreter (see `repair/quarantined`).

    Raises:
        OSError: a file cannot be copied; also FileNotFoundError.
        pyarrow.ArrowException: it is damaged.
    """
    if not any(located(path).is_far for path in paths):
        return [_pattern(path) for path in paths]
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # most of the time each waits for its store
        return list(pool.map(partial(_copied, _temporary(database), columns), paths))


def copy_of(database: Database, path: str, columns: Collection[str] | None = None) -> str:
    """Return the path of the copy of a file in a bucket, made at its first use; see `readable`."""
    return _copied(_temporary(database), columns, path)


def _temporary(database: Database) -> str:
    """Return the folder beside a temporary database."""
    ((folder,),) = database.execute("SELECT current_setting('temp_directory')").fetchall()
    return str(folder)


def _copied(folder: str, columns: Collection[str] | None, path: str) -> str:
    wanted = None if columns is None else sorted(columns)
    copy = Path(folder, f"copy-{hashlib.sha256(repr((path, wanted)).encode()).hexdigest()}.parquet")
    if not copy.exists():
        parquet.copy(path, copy, wanted)
    return str(copy)


def _pattern(path: str) -> str:
    """Escape a path for DuckDB, where `*`, `?` and `[` would otherwise be wildcards."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def read_file(path: str | Location, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a data file, also where delta-rs rewrote it; a folder `a=b` on its path adds no column."""
    return without_views(parquet.read(path, columns))


def without_views(rows: pa.Table) -> pa.Table:
    """Return the rows with texts and bytes of the usual types.

    delta-rs writes them as views when it deletes rows; Arrow can neither compare, filter nor take views.
    """
    return rows.cast(pa.schema([field.with_type(_usual(field.type)) for field in rows.schema]))


def _usual(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_usual(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_usual(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_usual(kind.key_type), kind.item_field.with_type(_usual(kind.item_type)))
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def _bounds(stats: pa.Table, name: str, unknown: int) -> npt.NDArray[np.int64]:
    if name not in stats.column_names:
        return np.full(stats.num_rows, unknown, dtype=np.int64)
    bounds: npt.NDArray[np.int64] = pc.fill_null(stats.column(name).cast(pa.int64()), unknown).to_numpy()
    return bounds


def _with_keys(stats: pa.Table, keys: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which files may hold one of the keys."""
    if not {"min.game_key", "max.game_key"} <= set(stats.column_names):
        return np.ones(stats.num_rows, dtype=np.bool_)
    first, last = (stats.column(f"{end}.game_key").to_pylist() for end in ("min", "max"))
    ordered = sorted(keys)
    return np.array([_may_hold(ordered, a, b) for a, b in zip(first, last, strict=True)], dtype=np.bool_)


def _may_hold(keys: Sequence[str], first: str | None, last: str | None) -> bool:
    """Return whether one of the keys, which are in order, may lie in a file with these bounds."""
    if first is None or last is None:
        return True
    at = bisect_left(keys, first)
    # An upper bound may be cut short by the writer, so a key that begins with it is let through.
    return at < len(keys) and (keys[at] <= last or keys[at].startswith(last))

"""The one place where a Delta table is opened, or made, through delta-rs."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Schema
from pyarrow.fs import FileSystem, SubTreeFileSystem

from pipeline.base.errors import is_panic
from pipeline.base.failpoints import effect
from pipeline.lake.delta.marks import marked
from pipeline.lake.delta.meanings import PROPERTY, carried
from pipeline.lake.storage.location import Location
from pipeline.lake.storage.places import located

if TYPE_CHECKING:  # Arrow's datasets load pandas, which planners of sources never need
    from pyarrow.dataset import Dataset

__all__ = ["DeltaTable", "columns_of", "create", "files_below", "open_table", "rows_of"]


def open_table(folder: Location | Path | str, version: int | None = None) -> DeltaTable:
    """Open a table at this version, or at its newest.

    Reads its transactions too: delta-rs reads them only on first use, and damage that only they show would surface long
    after the opening.

    Over some damaged logs delta-rs panics. Python sees that as a BaseException, which passes every handler that keeps
    one game's table from stopping the others (law L6), so it is raised like any other damage.

    Raises:
        DeltaError: its log is damaged, storage does not give it now, or, as a `TableNotFoundError`, there is no table.
    """
    place = located(folder)
    try:
        table = DeltaTable(str(place), version, storage_options=place.options)
        table.transaction_version("")
    except BaseException as error:
        if is_panic(error):
            raise DeltaError(f"delta-rs panicked on the log of {folder}: {error}") from error
        raise
    return table


def create(folder: Location, columns: pa.Schema, description: str | None = None) -> DeltaTable:
    """Make an empty table where there is none, and open it.

    Where storage loses the reply to the first commit, delta-rs tries it again and finds its own commit: the table
    is there then, as when another process was first. Its property says what the columns carry (`meanings`).
    """
    held = carried(columns)
    try:
        with effect("create_table"):
            return DeltaTable.create(
                str(folder),
                Schema.from_arrow(columns.remove_metadata()),
                mode="ignore",
                description=description,
                configuration={PROPERTY: held} if held else None,
                raise_if_key_not_exists=False,
                storage_options=folder.options,
                commit_properties=marked("table created"),
            )
    except CommitFailedError as error:
        try:
            return open_table(folder)
        except TableNotFoundError:
            raise error from None


def columns_of(schema: str) -> pa.Schema:
    """Return the columns that a schema's JSON names, as `DeltaTable.schema().to_json()` gives it."""
    return pa.schema(Schema.from_json(schema).to_arrow())


def files_below(folder: Location | Path | str) -> FileSystem:
    """Return Arrow's file system of a table's folder, for readers that take one."""
    place = located(folder)
    system, path = place.storage.arrow(place.path)
    return SubTreeFileSystem(path, system)


def rows_of(folder: Location | Path | str) -> "Dataset":
    """Open a table at its newest version, and return its rows, to be scanned by Arrow's own file system.

    With delta-rs's, Arrow's threads read ahead through Python. When a scan was not read to its end, by an error or a
    limit, and the process ends, Python ends such a thread inside delta-rs, which is a segmentation fault (1.6.6).

    Raises:
        DeltaError: as of `open_table`.
    """
    return open_table(folder).to_pyarrow_dataset(filesystem=files_below(folder))

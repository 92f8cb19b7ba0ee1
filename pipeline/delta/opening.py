"""The one place where a Delta table is opened, or made, through delta-rs."""

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.schema import Schema
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem

from pipeline.errors import is_panic
from pipeline.failpoints import effect
from pipeline.storage.location import Location

__all__ = ["DeltaTable", "create_plain", "files_below", "open_table"]


def open_table(folder: Location | str, version: int | None = None) -> DeltaTable:
    """Open a table at this version, or at its newest.

    Reads its transactions too: delta-rs reads them only on first use, and damage that only they show would surface long
    after the opening.

    Over some damaged logs delta-rs panics. Python sees that as a BaseException, which passes every handler that keeps
    one game's table from stopping the others (law L6), so it is raised like any other damage.

    Raises:
        DeltaError: its log is damaged, storage does not give it now, or, as a `TableNotFoundError`, there is no table.
    """
    try:
        table = DeltaTable(str(folder), version)
        table.transaction_version("")
    except BaseException as error:
        if is_panic(error):
            raise DeltaError(f"delta-rs panicked on the log of {folder}: {error}") from error
        raise
    return table


def create_plain(folder: Location, columns: pa.Schema) -> None:
    """Make an empty table where there is none."""
    with effect("create_table"):
        DeltaTable.create(str(folder), Schema.from_arrow(columns), mode="ignore")


def files_below(folder: Location | str) -> FileSystem:
    """Return Arrow's file system of a table's folder, for readers that take one."""
    return SubTreeFileSystem(str(folder), LocalFileSystem())

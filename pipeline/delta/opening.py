"""The one place where a Delta table is opened through delta-rs."""

from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.errors import is_panic


def open_table(folder: str | Path, version: int | None = None) -> DeltaTable:
    """Open a table at this version, or at its newest.

    Its transactions are read too: delta-rs reads them when the first is wanted, and damage that only this shows
    would end a caller who has opened the table long ago. Over some damaged logs delta-rs panics. What Python then sees
    is no Exception: it would pass every handler that keeps one game's table from stopping the others (law L6), so it
    is raised as any other damage.

    Raises:
        DeltaError: its log is damaged, storage does not give it now, or, as a `TableNotFoundError`, there is no table.
    """
    try:
        table = DeltaTable(folder, version)
        table.transaction_version("")
    except BaseException as error:
        if is_panic(error):
            raise DeltaError(f"delta-rs panicked over the log of {folder}: {error}") from error
        raise
    return table

"""Temporary folders, and databases in them for questions over the rows of many files: DuckDB, with bounded memory."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection as Database
from duckdb import Error as DatabaseError
from duckdb import OutOfMemoryException as OutOfMemory

__all__ = ["Database", "DatabaseError", "OutOfMemory", "scratch", "scratch_folder"]


@contextmanager
def scratch_folder(what: str) -> Iterator[Path]:
    """Yield an empty folder of this machine, `turnout-WHAT-…`; it is deleted after the block."""
    with tempfile.TemporaryDirectory(prefix=f"turnout-{what}-") as folder:
        yield Path(folder)


@contextmanager
def scratch(
    what: str, memory: str, *, threads: int | None = None, on_disk: bool = False, ordered: bool = True
) -> Iterator[Database]:
    """Yield an empty database; it and its folder are deleted after the block.

    Args:
        what: of the folder's name, into which it spills.
        memory: how much it holds, such as `256MB`; the rest is spilled.
        threads: how many it uses; None: one for each core. Each thread holds rows beyond the limit.
        on_disk: keep tables in a file, for rows beyond the limit.
        ordered: keep the order in which rows were inserted.
    """
    with scratch_folder(what) as folder:
        config: dict[str, Any] = {
            "memory_limit": memory, "temp_directory": str(folder), "preserve_insertion_order": ordered,
        }  # fmt: skip
        if threads is not None:
            config["threads"] = threads
        database = duckdb.connect(str(folder / "rows.duckdb") if on_disk else ":memory:", config=config)
        try:
            yield database
        finally:
            database.close()

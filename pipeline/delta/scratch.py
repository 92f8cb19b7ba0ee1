"""Temporary databases for questions over the rows of many files: DuckDB, with bounded memory, spilling to a folder."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection as Database
from duckdb import Error as DatabaseError
from duckdb import OutOfMemoryException as OutOfMemory

__all__ = ["Database", "DatabaseError", "OutOfMemory", "scratch"]


@contextmanager
def scratch(
    what: str, memory: str, *, threads: int | None = None, on_disk: bool = False, ordered: bool = True
) -> Iterator[Database]:
    """Yield an empty database; it and its folder are deleted after the block.

    Args:
        what: the middle of the folder's name, `turnout-WHAT-…`.
        memory: how much it holds, such as `256MB`; the rest is spilled.
        threads: how many it uses; None: one for each core. Each thread holds rows beyond the limit.
        on_disk: keep tables in a file, for rows beyond the limit.
        ordered: keep the order in which rows were inserted.
    """
    with tempfile.TemporaryDirectory(prefix=f"turnout-{what}-") as folder:
        config: dict[str, Any] = {"memory_limit": memory, "temp_directory": folder, "preserve_insertion_order": ordered}
        if threads is not None:
            config["threads"] = threads
        database = duckdb.connect(str(Path(folder, "rows.duckdb")) if on_disk else ":memory:", config=config)
        try:
            yield database
        finally:
            database.close()

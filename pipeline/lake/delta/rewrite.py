"""Commits that replace files of a plain Delta table, beside `CursorTable`, which only adds files.

By the same protocol: create the next log file if absent. No transaction is written here, so no cursor moves.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from pipeline.base.errors import Conflict
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.log import Action, is_plain, publish_commit, read_commit
from pipeline.lake.delta.marks import ENGINE
from pipeline.lake.delta.opening import open_table
from pipeline.lake.storage.location import Location

_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9_./=-]+")


class RewriteConflict(Conflict):
    """The table no longer has the files or columns of which the new files were made; nothing was committed."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that is part of a table."""

    path: str  # relative to the table
    size: int  # bytes
    rows: int | None  # None when the log lacks it
    modified_ms: int  # Unix milliseconds
    partition: Mapping[str, str | None] = field(default_factory=dict)
    low: Mapping[str, Any] = field(default_factory=dict)  # the least value by column, where the log has it
    high: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)  # by column, likewise


def table_files(table: DeltaTable) -> list[TableFile]:
    """Return the files of a table's version from its log."""
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        TableFile(
            row["path"],
            row["size_bytes"],
            row.get("num_records"),
            row["modification_time"],
            {name: None if value is None else str(value) for name, value in _under("partition.", row).items()},
            {name: value for name, value in _under("min.", row).items() if value is not None},
            {name: value for name, value in _under("max.", row).items() if value is not None},
            {name: value for name, value in _under("null_count.", row).items() if value is not None},
        )
        for row in rows
    ]


def replaceable(file: TableFile) -> bool:
    """Return whether the log spells the file's path as it stands here; an escaped path may be spelled otherwise."""
    return _PLAIN_PATH.fullmatch(file.path) is not None


def replace_files(path: Location, old: Sequence[TableFile], new: Sequence[DataFile], operation: str) -> int:
    """Replace files of one partition in one commit that changes no data; return its version.

    The commit is valid only on a version that still has every old file. Files that others appended meanwhile stay.

    Raises:
        RewriteConflict: an old file has left the table, or its columns or protocol change at this moment.
    """
    table = open_table(path)
    leaving = {file.path for file in old}
    if not is_plain(table) or not leaving <= {file.path for file in table_files(table)}:
        raise RewriteConflict(f"{path.name}: its files have changed")
    version = table.version()
    actions = _actions(old, new, operation)
    while not publish_commit(path, version + 1, actions):
        version += 1
        others = read_commit(path, version)
        if others is None or any(_hinders(action, leaving) for action in others):
            raise RewriteConflict(f"{path.name}: another writer made commit {version}")
    return version + 1


def _hinders(action: Action, leaving: set[str]) -> bool:
    gone = action.get("remove")
    return "metaData" in action or "protocol" in action or (gone is not None and gone["path"] in leaving)


def _actions(old: Sequence[TableFile], new: Sequence[DataFile], operation: str) -> list[Action]:
    now_ms = int(time.time() * 1000)
    partition = dict(old[0].partition)
    # The age of the rows, not of the file, so that files sorted by age keep their neighbours.
    newest_ms = max(file.modified_ms for file in old)
    info = {"timestamp": now_ms, "operation": operation, "engineInfo": ENGINE, "isBlindAppend": False}
    removes = [
        {
            "path": file.path,
            "deletionTimestamp": now_ms,
            "dataChange": False,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.partition),
            "size": file.size,
        }
        for file in old
    ]
    adds = [
        {
            "path": file.path,
            "partitionValues": partition,
            "size": file.size,
            "modificationTime": newest_ms,
            "dataChange": False,
            "stats": file.stats,
        }
        for file in new
    ]
    return [{"commitInfo": info}, *({"remove": remove} for remove in removes), *({"add": add} for add in adds)]


def _under(prefix: str, row: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}

"""Commits of finished files through delta-rs, to tables of any protocol: a new generation, or files without some rows.

`CursorTable` and `replace_files` write plain tables themselves; these two replace rows, which delta-rs checks better.
"""

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction

from pipeline.base.failpoints import effect
from pipeline.lake.delta.columns import merges_of
from pipeline.lake.delta.data_files import DataFile
from pipeline.lake.delta.log import commits_after, settle_commits
from pipeline.lake.delta.marks import marked
from pipeline.lake.delta.table import QUIET
from pipeline.lake.storage.location import Location

_ONCE: Final = 0  # retries: the commit follows the version that was read, or fails


def overwrite(
    folder: Location,
    table: DeltaTable,
    files: Iterable[DataFile],
    columns: pa.Schema,
    transactions: Mapping[str, int],
    note: str,
) -> None:
    """Replace all files of a table, and its columns where they differ, in one commit, which fails behind another."""
    held, wanted = table.schema(), Schema.from_arrow(columns)
    with _read_back(folder, table, transactions, note) as properties, effect("switch_generation"):
        table.create_write_transaction(
            _added(files),
            mode="overwrite",
            schema=held if _columns(held) == _columns(wanted) else wanted,
            commit_properties=properties,
            post_commithook_properties=QUIET,
        )


def exchange(
    folder: Location,
    table: DeltaTable,
    removed: Mapping[str, int],
    added: Iterable[DataFile],
    transactions: Mapping[str, int],
    note: str,
) -> None:
    """Replace some files, given with their sizes in bytes, by others in one commit, which fails behind another."""
    now_ms = int(time.time() * 1000)
    removes = [RemoveAction(path, True, now_ms, size, {}) for path, size in sorted(removed.items())]
    with _read_back(folder, table, transactions, note) as properties, effect("remove_rows"):
        table.create_write_transaction(
            [*_added(added), *removes],
            mode="append",
            schema=table.schema(),
            commit_properties=properties,
            post_commithook_properties=QUIET,
        )


def _added(files: Iterable[DataFile]) -> list[AddAction | RemoveAction]:
    now_ms = int(time.time() * 1000)
    return [AddAction(file.path, file.size, {}, now_ms, True, file.stats) for file in files]


@contextmanager
def _read_back(
    folder: Location, table: DeltaTable, transactions: Mapping[str, int], note: str
) -> Iterator[CommitProperties]:
    """Give a commit an id, and look for it where the commit failed by its reply: that alone may be lost.

    After the block the commit is on disk: what it replaces may be deleted, and rows that it has may leave quarantine.
    """
    own = str(uuid.uuid4())
    properties = marked(note, transactions, custom_metadata={"txnId": own}, max_commit_retries=_ONCE)
    seen = table.version()
    try:
        yield properties
    except CommitFailedError:
        infos = (each.get("commitInfo", {}) for _, actions in commits_after(folder, seen) for each in actions)
        if all(info.get("txnId") != own for info in infos):
            raise
    settle_commits(folder, seen)


def _columns(schema: Schema) -> tuple[dict[str, object], str]:
    return {field.name: field.type for field in schema.fields}, merges_of(pa.schema(schema.to_arrow()))

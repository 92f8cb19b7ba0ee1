"""A commit that removes rows from a Delta table: replaces files by files of the remaining rows, moves repair counters.

Used for quarantine (`stale_quarantine`) and for game tables (`dedupe`). Rows that others append meanwhile stay.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from pipeline.delta.opening import open_table
from pipeline.delta.table import DataFile, TableConflict, discard
from pipeline.failpoints import effect
from pipeline.lists import join_limited
from pipeline.repair.switch import ONCE, QUIET


@dataclass(frozen=True, slots=True)
class Removal:
    """The files that leave a table and their replacements."""

    counters: Mapping[str, int | None]  # repair counters by application id, as they were when the attempt began
    removed: Collection[str]  # paths, as the log has them
    added: Sequence[DataFile]  # discarded when nothing is committed
    note: str  # for the table's history


def publish(folder: Path, removal: Removal) -> None:
    """Commit a removal and move the counters, on top of rows that others have appended meanwhile.

    Raises:
        TableConflict: another repair was first, or one of the files has left the table (a compaction, a rebuild).
        CommitFailedError: the storage or the table's features do not let it be written.
    """
    while True:
        table = open_table(folder)
        present = file_sizes(table)
        if removal.added and removal.added[0].path in present:
            return  # the commit succeeded, only its reply was lost
        moved = [app for app, version in removal.counters.items() if table.transaction_version(app) != version]
        if moved or not set(removal.removed) <= present.keys():
            discard(folder, removal.added)
            first = join_limited(moved, 3)
            raise TableConflict(f"{folder.name}: another repair ({first}) or a compaction committed first")
        try:
            _commit(table, removal, present)
        except CommitFailedError:
            if open_table(folder).version() == table.version():
                raise  # no other commit was first: storage is the cause
            continue
        return


def file_sizes(table: DeltaTable) -> dict[str, int]:
    """Return path → size in bytes of every data file in the log."""
    actions = pa.table(table.get_add_actions(flatten=True))
    return dict(zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True))


def _commit(table: DeltaTable, removal: Removal, sizes: dict[str, int]) -> None:
    now_ms = int(time.time() * 1000)
    removes = [RemoveAction(path, True, now_ms, sizes[path], {}) for path in sorted(removal.removed)]
    adds = [AddAction(file.path, file.size, {}, now_ms, True, file.stats) for file in removal.added]
    properties = CommitProperties(
        app_transactions=[Transaction(app, (version or 0) + 1) for app, version in removal.counters.items()],
        custom_metadata={"turnout": removal.note},
        max_commit_retries=ONCE,
    )
    with effect("remove_rows"):
        table.create_write_transaction(
            [*adds, *removes],
            mode="append",
            schema=table.schema(),
            commit_properties=properties,
            post_commithook_properties=QUIET,
        )

"""A commit that removes rows from a Delta table: replaces files by files of the remaining rows, moves repair counters.

Used for quarantine (`stale_quarantine`) and for game tables (`dedupe`). Rows that others append meanwhile stay.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipeline.base.texts import join_limited
from pipeline.lake.delta.commits import exchange
from pipeline.lake.delta.data_files import DataFile, discard
from pipeline.lake.delta.errors import CommitFailedError
from pipeline.lake.delta.opening import DeltaTable, open_table
from pipeline.lake.delta.table import TableConflict
from pipeline.lake.storage.location import Location


@dataclass(frozen=True, slots=True)
class Removal:
    """The files that leave a table and their replacements."""

    counters: Mapping[str, int | None]  # repair counters by application id, as they were when the attempt began
    removed: Collection[str]  # paths, as the log has them
    added: Sequence[DataFile]  # discarded when nothing is committed
    note: str  # for the table's history


def publish(folder: Location, removal: Removal) -> None:
    """Commit a removal and move the counters, on top of rows that others have appended meanwhile.

    Raises:
        TableConflict: another repair was first, or one of the files has left the table (a compaction, a rebuild).
        CommitFailedError: the storage or the table's features do not let it be written.
    """
    while True:
        table = open_table(folder)
        present = file_sizes(table)
        moved = [app for app, version in removal.counters.items() if table.transaction_version(app) != version]
        if moved or not set(removal.removed) <= present.keys():
            discard(folder, removal.added)
            first = join_limited(moved, 3)
            raise TableConflict(f"{folder.name}: another repair ({first}) or a compaction committed first")
        try:
            _commit(folder, table, removal, present)
        except CommitFailedError:
            if open_table(folder).version() == table.version():
                raise  # no other commit was first: storage is the cause
            continue
        return


def file_sizes(table: DeltaTable) -> dict[str, int]:
    """Return path → size in bytes of every data file in the log."""
    actions = pa.table(table.get_add_actions(flatten=True))
    return dict(zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True))


def _commit(folder: Location, table: DeltaTable, removal: Removal, sizes: dict[str, int]) -> None:
    removed = {path: sizes[path] for path in removal.removed}
    counted = {app: (version or 0) + 1 for app, version in removal.counters.items()}
    exchange(folder, table, removed, removal.added, counted, removal.note)

"""Reads what was appended to a metrics table since the last look, each file once.

Called by the bridge's thread alone. A file that maintenance merged is new and holds rows that were read before: the
caller knows them by their keys.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from listeners.metrics_schema import MetricsTable, moment
from listeners.minutes.reader import TablePlace

_REOPEN_SECONDS: Final = 60.0  # after which the whole log is read again: the table may be another one


class Appended:
    """One table's rows as they come. `clock` is the column with a row's time."""

    def __init__(self, place: TablePlace, kind: MetricsTable, clock: str) -> None:
        self._place, self._clock = place, clock
        self._schema = pa.schema([field for field in kind.schema if field.name != "event_date"])
        self._table: DeltaTable | None = None
        self._opened_at = float("-inf")
        self._known: tuple[str, int] | None = None  # id and version of what was read
        self._read: frozenset[str] = frozenset()

    def rows(self, since: float, now: float) -> pa.Table:
        """Return the rows from that time on (Unix seconds) in files that were not read yet; empty without a table.

        `now` is a monotonic clock's. After an error the same rows come again.

        Raises:
            OSError: a file cannot be read; a log that cannot be read raises deltalake's own errors.
        """
        table, self._table = self._table, None  # after an error the next look opens it again
        if table is None or now - self._opened_at > _REOPEN_SECONDS:
            table, self._opened_at = self._place.open(), now
        else:
            table.update_incremental()
        if table is None:
            self._known, self._read = None, frozenset()
            return self._schema.empty_table()
        found = (str(table.metadata().id), table.version())
        if found == self._known:
            self._table = table
            return self._schema.empty_table()
        files = self._files(table)
        is_another = self._known is not None and self._known[0] != found[0]
        read = frozenset() if is_another else self._read
        rows = self._scan([path for path, newest in files.items() if path not in read and newest >= since], since)
        self._table, self._known, self._read = table, found, frozenset(files)
        return rows

    def _files(self, table: DeltaTable) -> dict[str, float]:
        """Return each file with the newest time in it, infinity where its statistics are unknown."""
        added = pa.table(table.get_add_actions(flatten=True))
        column = f"max.{self._clock}"
        newest = added[column].to_pylist() if column in added.column_names else [None] * added.num_rows
        return {
            unquote(path): float("inf") if at is None else at.timestamp()
            for path, at in zip(added["path"].to_pylist(), newest, strict=True)
        }

    def _scan(self, paths: Sequence[str], since: float) -> pa.Table:
        if not paths:
            return self._schema.empty_table()
        files = self._place.files
        form = ds.ParquetFileFormat()
        dataset = ds.FileSystemDataset([form.make_fragment(path, files) for path in paths], self._schema, form, files)
        wanted = pc.field(self._clock) >= pa.scalar(moment(since), self._schema.field(self._clock).type)
        return dataset.to_table(filter=wanted)

"""Reads the minute tables into series for the dashboard: each row once, and after the first time only new files.

It survives merged files, a doubled batch and a table that was made again. One reader serves all viewers of a process.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from deltalake import DeltaTable
from numpy.typing import NDArray

from listeners.metrics_schema import INGEST_MINUTE, PROCESS_MINUTE, STREAM_MINUTE, MetricsTable, moment
from listeners.metrics_table import BATCH_ROWS
from listeners.minutes.fold import MINUTE_SECONDS
from listeners.minutes.seen import Seen
from listeners.minutes.window import Window, encoded
from listeners.series import Series

_REOPEN_SECONDS: Final = 60.0  # after which the whole log is read again: the table may be another one
_QUIET_SECONDS: Final = 10.0  # the same where nothing was added: it may have been moved away, which no listing tells
_AHEAD_SECONDS: Final = 3600.0  # rows this far in the future are left out: their driver's clock is wrong
_BACK_SECONDS: Final = 120.0  # a clock that goes back by more was ahead: its window is read again
_BATCH_ROWS: Final = 131_072  # held in memory at once
_REPEATED: Final = ("writer", "game_key", "cluster_group", "status")  # read as dictionaries
_KEY: Final = ("writer", "row")
_FORMAT: Final = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(dictionary_columns=list(_REPEATED)))


class MinutesGone(OSError):
    """A table that was read before is no longer where it was."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table is."""

    open: Callable[[], DeltaTable | None]  # at its newest version; None: there is no table yet
    files: pafs.FileSystem  # in which the table's folder is the root


class SeriesReader:
    """Reads series. Any thread may call it; calls take turns.

    Args:
        streams: the table `stream_minute`.
        ingest: the table `ingest_minute`.
        processes: the table `process_minute`.
        windows: the width of a slot in seconds → how many slots are kept of it.
    """

    def __init__(
        self, streams: TablePlace, ingest: TablePlace, processes: TablePlace, windows: Mapping[int, int]
    ) -> None:
        self._tables = (
            _Table(streams, STREAM_MINUTE), _Table(ingest, INGEST_MINUTE), _Table(processes, PROCESS_MINUTE),
        )  # fmt: skip
        self._slots = dict(windows)
        self._windows: dict[int, _Filled] = {}
        self._replaced_at: float | None = None  # Unix seconds: when a table was seen to be another one than before
        self._turn = threading.Lock()

    def read(self, slot_seconds: int, slots: int, until: float, now: float) -> Series:
        """Return the last `slots` slots of this width, up to the minute that ends at or before `until` (Unix seconds).

        `now` is a monotonic clock's. The same series is returned until something was added.

        Raises:
            MinutesGone: a table that was read before is no longer there.
            OSError: a file cannot be read; a log that cannot be read raises deltalake's own errors.
            KeyError: no window has slots of this width.
        """
        until = until // MINUTE_SECONDS * MINUTE_SECONDS
        with self._turn:
            try:
                return self._read(slot_seconds, slots, until, now)
            except FileNotFoundError:  # the table was made again
                return self._read(slot_seconds, slots, until, now)

    def _read(self, slot_seconds: int, slots: int, until: float, now: float) -> Series:
        for table in self._tables:
            if table.refresh(now):
                self._replaced_at = until
        window = self._windows.get(slot_seconds)
        is_ahead = window is not None and window.is_ahead(until)
        if window is None or is_ahead or any(window.is_of_another(table) for table in self._tables):
            window = self._windows[slot_seconds] = _Filled(
                Window(slot_seconds, self._slots[slot_seconds], self._replaced_at)
            )
        try:
            window.advance(until)
            for table in self._tables:
                window.fill(table)
        except BaseException:  # rows may be marked as read that were not added
            del self._windows[slot_seconds]
            for table in self._tables:
                table.forget()
            raise
        return window.series(slots)


class _Table:
    """One table's newest snapshot."""

    def __init__(self, place: TablePlace, kind: MetricsTable) -> None:
        self.filesystem, self.kind = place.files, kind
        self.identity: str | None = None  # the table's own id; None: there is no table yet
        self.files: dict[str, _File] = {}
        self._open = place.open
        self._table: DeltaTable | None = None
        self._version = -1
        self._opened_at = self._changed_at = float("-inf")  # by the monotonic clock

    def refresh(self, now: float) -> bool:
        """Look for a newer version; return whether another table is there than the one that was read before.

        Raises:
            MinutesGone: it was there, and is not any more; once it is back all goes on.
        """
        table, self._table = self._table, None  # after an error the next reading opens it again
        is_quiet = now - max(self._opened_at, self._changed_at) > _QUIET_SECONDS
        if table is None or is_quiet or now - self._opened_at > _REOPEN_SECONDS:
            table, self._opened_at = self._open(), now
        else:
            table.update_incremental()
        before = self.identity
        if table is None:
            if before is not None:
                raise MinutesGone(f"the table {self.kind.name} was read before and is gone")
            return False
        if (before, self._version) != (found := (str(table.metadata().id), table.version())):
            self.identity, self._version = found
            self.files, self._changed_at = _files(table), now
        self._table = table
        return before is not None and before != self.identity

    def forget(self) -> None:
        """Open the table again at the next reading."""
        self._table = None

    def batches(self, paths: Sequence[str], since: float, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of the rows of files from a minute on, a bounded number of rows at a time."""
        if not paths:
            return
        schema = pa.schema([_as_read(field) for field in self.kind.schema if field.name != "event_date"])
        fragments = [_FORMAT.make_fragment(path, self.filesystem) for path in paths]
        dataset = ds.FileSystemDataset(fragments, schema, _FORMAT, self.filesystem)
        batches, rows = [], 0
        wanted = pc.field("minute") >= pa.scalar(moment(since), schema.field("minute").type)
        for batch in dataset.scanner(columns=list(columns), filter=wanted, batch_size=_BATCH_ROWS).to_batches():
            batches.append(batch)
            rows += batch.num_rows
            if rows >= _BATCH_ROWS:
                yield pa.Table.from_batches(batches)
                batches, rows = [], 0
        if rows:
            yield pa.Table.from_batches(batches)


@dataclass(frozen=True, slots=True)
class _File:
    """What a table's log has of one data file."""

    newest_at: float | None  # its latest minute, Unix seconds; None: unknown
    is_merged: bool


def _files(table: DeltaTable) -> dict[str, _File]:
    added = pa.table(table.get_add_actions(flatten=True))
    nothing = [None] * added.num_rows
    names = added.column_names
    minutes = added["max.minute"].to_pylist() if "max.minute" in names else nothing
    rows = added["num_records"].to_pylist() if "num_records" in names else nothing
    return {
        unquote(path): _File(None if minute is None else minute.timestamp(), (count or 0) > BATCH_ROWS)
        for path, minute, count in zip(added["path"].to_pylist(), minutes, rows, strict=True)
    }


def _as_read(field: pa.Field) -> pa.Field:
    return field.with_type(pa.dictionary(pa.int32(), pa.string())) if field.name in _REPEATED else field


@dataclass(slots=True)
class _Reading:
    """What was read of one table."""

    identity: str
    files: set[str] = field(default_factory=set)
    seen: Seen = field(default_factory=Seen)
    open_rows: list[pa.Table] = field(default_factory=list)  # of minutes that are not closed yet


class _Filled:
    """A window and what was read into it."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._readings: dict[str, _Reading] = {}
        self._answers: dict[int, Series] = {}
        self._until = float("-inf")

    def is_of_another(self, table: _Table) -> bool:
        """Return whether the window was filled from another table than there is now."""
        reading = self._readings.get(table.kind.name)
        return reading is not None and reading.identity != table.identity

    def is_ahead(self, until: float) -> bool:
        """Return whether the window was moved by a clock that was ahead: it has lost old minutes, and shows none."""
        return self._until - until > _BACK_SECONDS

    def advance(self, until: float) -> None:
        """Close the minutes before this one."""
        if until > self._until:
            self._until = until
            self._answers.clear()
            self._window.move(until)

    def fill(self, table: _Table) -> None:
        """Add the rows that were not read yet."""
        if table.identity is None:
            return
        reading = self._readings.setdefault(table.kind.name, _Reading(table.identity))
        since, is_first = self._window.since, not reading.files
        reading.seen.forget(since)
        waiting, reading.open_rows = reading.open_rows, []
        for rows in waiting:
            self._add(rows, table.kind, reading)
        added = {path: file for path, file in table.files.items() if path not in reading.files}
        wanted = [
            path
            for path, file in added.items()
            if (file.newest_at is None or file.newest_at >= since)
            and (is_first or not file.is_merged or _has_new(table, path, since, reading.seen))
        ]
        for rows in table.batches(wanted, since, [name for name in table.kind.schema.names if name != "event_date"]):
            self._add(_new(rows, reading.seen), table.kind, reading)
        reading.files = set(table.files)

    def series(self, slots: int) -> Series:
        """Return the last `slots` slots."""
        if slots not in self._answers:
            self._answers[slots] = self._window.series(slots, self._until)
        return self._answers[slots]

    def _add(self, rows: pa.Table, kind: MetricsTable, reading: _Reading) -> None:
        """Add the rows of closed minutes; the others wait."""
        zone = rows["minute"].type
        is_closed = pc.less(rows["minute"], pa.scalar(moment(self._until), zone))
        closed = rows.filter(is_closed)
        if closed.num_rows:
            self._answers.clear()
            if kind is STREAM_MINUTE:
                self._window.add_streams(closed)
            elif kind is INGEST_MINUTE:
                self._window.add_ingest(closed)
            else:
                self._window.add_processes(closed)
        if closed.num_rows < rows.num_rows:
            is_soon = pc.less(rows["minute"], pa.scalar(moment(self._until + _AHEAD_SECONDS), zone))
            reading.open_rows.append(rows.filter(pc.and_not(is_soon, is_closed)))


def _has_new(table: _Table, path: str, since: float, seen: Seen) -> bool:
    """Return whether a merged file has a row that was not read: so large a file is seldom read for nothing."""
    return any(
        seen.has_new(writer, numbers[rows])
        for keys in table.batches([path], since, _KEY)
        for writer, rows, numbers in _by_writer(keys)
    )


def _new(rows: pa.Table, seen: Seen) -> pa.Table:
    """Return the rows that were not read yet, and mark them as read."""
    fresh = np.zeros(rows.num_rows, np.bool_)
    minutes = pc.cast(rows["minute"], pa.int64()).to_numpy()
    for writer, places, numbers in _by_writer(rows):
        fresh[places] = seen.mark(writer, numbers[places], minutes[places].max() / 1_000_000)
    return rows.filter(pa.array(fresh))


def _by_writer(rows: pa.Table) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield each writer, the places of its rows, and the numbers of all rows."""
    codes, writers = encoded(rows["writer"])
    numbers = rows["row"].to_numpy()
    order = np.argsort(codes, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(places):
            yield writers[codes[places[0]]], places, numbers

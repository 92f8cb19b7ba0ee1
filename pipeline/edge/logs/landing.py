"""Writes batches into a Delta landing table, all that wait in one commit, and says of each whether it is there.

Acknowledged means that the commit is durable. Where a commit fails nothing is known: it may be in the table.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa

from pipeline.base.errors import first_line
from pipeline.data.ingest.sources.landing_appends import landing_for_appends
from pipeline.data.ingest.sources.landing_log import LANDING
from pipeline.edge.logs.log import LandedFile
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.opening import open_table
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.kafka.acknowledged import DeliveredOffsets
from pipeline.lake.storage.location import Location

COMMIT_SECONDS: Final = 0.25
"""Least time from one commit to the next while batches wait: each commit is a file, which ingest opens."""

_COMMIT_BYTES: Final = 32 * 1024 * 1024  # about the most of one file
_FAILED: Final = "the landing table could not be written"  # to producers: errors of storage name places within
_log: Final = logging.getLogger("turnout")


@dataclass(frozen=True, slots=True)
class Landed:
    """What became of a batch."""

    why: str | None = None
    offsets: Mapping[LandedFile, DeliveredOffsets] = field(default_factory=dict)  # rows, from 0
    is_full: bool = False


class _Batch(NamedTuple):
    keys: Sequence[bytes]
    values: Sequence[bytes]
    done: Callable[[Landed], None]


class LandingLog:
    """A landing table with one thread that commits."""

    record_bytes = 4 * 1024 * 1024  # a row may be as large as a request
    fatal: str | None = None  # never: what fails is tried again

    def __init__(self, landing: Location, *, own: bool) -> None:
        """Open the table; the environment's `own` one is created where there is none.

        Raises:
            Refused: there is none, or another kind of table.
        """
        self._landing, self._open = landing, partial(landing_for_appends, landing, create=own)
        self._table: CursorTable | None = self._open()
        self.topic_id = self._table_id()
        self._waiting: deque[_Batch] = deque()
        self._bytes = 0  # of what waits
        self._unreported = 0  # events
        self._ends, self._is_away, self._due = False, False, 0.0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="landing commits", daemon=True)
        self._thread.start()

    def send(self, keys: Sequence[bytes], values: Sequence[bytes], done: Callable[[Landed], None]) -> None:
        """Hand over a batch; `done` is called once, in the thread, when its commit is durable or has failed."""
        with self._changed:
            if self._ends:
                done(Landed("the edge ends"))
                return
            self._waiting.append(_Batch(keys, values, done))
            self._bytes += sum(map(len, values))
            self._unreported += len(values)
            self._changed.notify_all()

    def close(self, seconds: float) -> int:
        """Commit what waits at once; return how many events were not reported within this time."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        self._thread.join(seconds)
        with self._changed:
            return self._unreported

    def _run(self) -> None:
        while batches := self._following():
            self._due = time.monotonic() + COMMIT_SECONDS
            file = self._commit(batches)
            start = 0
            for batch in batches:
                rows = DeliveredOffsets(start, start + len(batch.values) - 1)
                start = rows.last + 1
                batch.done(Landed(_FAILED) if file is None else Landed(offsets={file: rows}))
            with self._changed:
                self._unreported -= start

    def _following(self) -> list[_Batch]:
        """Wait for batches, and return those of the next commit; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ends)
            wait = self._due - time.monotonic()
            self._changed.wait_for(lambda: self._ends or self._bytes >= _COMMIT_BYTES, max(0.0, wait))
            taken: list[_Batch] = []
            size = 0
            while self._waiting and (not taken or size < _COMMIT_BYTES):
                taken.append(self._waiting.popleft())
                size += sum(map(len, taken[-1].values))
            self._bytes -= size
            return taken

    def _commit(self, batches: Sequence[_Batch]) -> LandedFile | None:
        """Return the file with the rows of batches; None where they may not be in the table."""
        keys = [each for batch in batches for each in batch.keys]
        values = [each for batch in batches for each in batch.values]
        rows = pa.Table.from_arrays([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=LANDING)
        try:
            if (table := self._table) is None:
                table = self._open()
                self.topic_id = self._table_id()
            file = write_file(rows, self._landing)
            version = table.append([file])
        except Exception as error:  # noqa: BLE001 -- the thread goes on: producers send their events again
            self._table = None  # it may have been made again
            if not self._is_away:
                _log.warning("the landing table %s cannot be written: %s", self._landing, first_line(error))
            self._is_away = True
            return None
        self._table, self._is_away = table, False
        return LandedFile(file.path, version)

    def _table_id(self) -> str:
        return str(open_table(self._landing).metadata().id)

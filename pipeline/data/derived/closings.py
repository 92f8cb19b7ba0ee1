"""The closing seqs of windows, kept once they are known: pairs are thinned with age, and windows may have no rows.

A Delta table beside each gold table. Windows whose ends lie after one row's and up to the next one's close at the
latter's seq. Rows are only added, by the owner whose cursor, the last end, is the table's (law L4).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.names import closings_key, stream_app_id
from pipeline.data.derived.definitions import GoldDefinition
from pipeline.lake.delta.data_files import write_file
from pipeline.lake.delta.errors import TableNotFoundError
from pipeline.lake.delta.opening import rows_of
from pipeline.lake.delta.table import CursorTable
from pipeline.lake.delta.through import ThroughPair, closing_seq
from pipeline.lake.storage.location import Location

CLOSINGS: Final = pa.schema(
    [
        ("window_seconds", pa.int64()),
        ("lateness_seconds", pa.int64()),
        ("window_end", pa.timestamp("us", "UTC")),
        ("closing_seq", pa.int64()),
    ]
)

MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Closings:
    """The closing seqs that are known of the windows of one definition."""

    ends: tuple[int, ...] = ()  # Unix seconds, in order
    seqs: tuple[int, ...] = ()  # of the windows that end after the one before and up to this one

    @property
    def until(self) -> int | None:
        """The end of the last window of which it is known; None: of none."""
        return self.ends[-1] if self.ends else None

    def of(self, ends: np.ndarray) -> np.ndarray:
        """Return the closing seqs of windows with these ends, of which they are known."""
        seqs: np.ndarray = np.asarray(self.seqs, dtype=np.int64)[np.searchsorted(self.ends, ends)]
        return seqs


def last_end(definition: GoldDefinition, through: float) -> int:
    """Return the end of the last window that closes once something is complete through a time."""
    return math.floor((through - definition.lateness) / definition.window) * definition.window


class ClosingTable:
    """The table of one gold table."""

    def __init__(self, folder: Location, environment: str, definition: GoldDefinition, interval: int) -> None:
        """Keep the folder; reads nothing yet. `interval` is that between two checkpoints, in commits."""
        self._folder, self._definition, self._interval = folder, definition, interval
        self._app = stream_app_id(environment, closings_key(definition.name, definition.window, definition.lateness), 1)

    def read(self) -> Closings:
        """Return what is known of windows of this length and lateness; of others the table may have rows, too."""
        same = (pc.field("window_seconds") == self._definition.window) & (
            pc.field("lateness_seconds") == self._definition.lateness
        )
        try:
            # Filtered afterwards: the files have no statistics, by which delta-rs would leave them out.
            rows = rows_of(self._folder).to_table().filter(same).sort_by("window_end")
        except TableNotFoundError:
            return Closings()
        ends = pc.divide(rows.column("window_end").cast(pa.int64()), MICROS).to_pylist()
        return Closings(tuple(ends), tuple(rows.column("closing_seq").to_pylist()))

    def extend(self, known: Closings, pairs: Sequence[ThroughPair], until: int) -> Closings:
        """Keep the closing seqs of the windows that end up to `until`, a time that the pairs have reached.

        Raises:
            TableConflict: another owner extended them meanwhile; nothing was added.
        """
        new = list(self._following(known, pairs, until))
        if not new:
            return known
        ends, seqs = [end for end, _ in new], [seq for _, seq in new]
        count, wanted = len(new), self._definition
        rows = pa.table(
            [
                pa.array([wanted.window] * count, pa.int64()), pa.array([wanted.lateness] * count, pa.int64()),
                pa.array([end * MICROS for end in ends], pa.int64()).cast(CLOSINGS.field("window_end").type),
                pa.array(seqs, pa.int64()),
            ],
            schema=CLOSINGS,
        )  # fmt: skip
        what = f"closing seqs of gold {wanted.name}"
        table = CursorTable.create(self._folder, CLOSINGS, self._app, self._interval, description=what)
        table.commit([write_file(rows, self._folder)], known.until, ends[-1])
        return Closings((*known.ends, *ends), (*known.seqs, *seqs))

    def _following(self, known: Closings, pairs: Sequence[ThroughPair], until: int) -> Iterator[tuple[int, int]]:
        before = known.until
        for pair in pairs:
            end = min(last_end(self._definition, pair.at), until)
            if before is None or end > before:
                seq = closing_seq(pairs, end + self._definition.lateness)
                if seq is not None:
                    yield end, seq
                before = end
